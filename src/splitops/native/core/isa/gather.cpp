#include "isa/gather.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "isa/pairs.h"

namespace splitops {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// step(from, to) takes one step. It reads whole vectors from the start of its first row and writes a whole
// vector; where these could reach too far, last(from, readable, to, bytes) gives exactly `bytes`.
template <int Vector, class Step, class Last>
inline __attribute__((always_inline)) void gather_rows(const GatherTable &t, const char *source, Extent count,
                                                       Extent readable, char *target, Extent writable, Step step,
                                                       Last last) {
    const Extent source_step = t.rows * t.pitch;
    const Extent target_step = t.rows * t.run;
    Extent steps = (count + t.rows - 1) / t.rows;
    steps = std::min(steps, readable < t.loads * Vector ? 0 : (readable - t.loads * Vector) / source_step + 1);
    steps = std::min(steps, writable < Vector ? 0 : (writable - Vector) / target_step + 1);
    for (Extent i = 0; i < steps; ++i)
        step(source + i * source_step, target + i * target_step);
    for (Extent row = steps * t.rows; row < count; row += t.rows)
        last(source + row * t.pitch, readable - row * t.pitch, target + row * t.run,
             std::min<Extent>(t.rows, count - row) * t.run);
}

// Vectors that a step reads for the runs of some rows.
template <int Vector>
Extent loads_for(Extent run, Extent pitch, Extent offset, Extent rows) {
    return ((rows - 1) * pitch + offset + run + Vector - 1) / Vector;
}

// Fills rows, loads and the place of each byte of the result.
template <int Vector, class Place>
void prepare(Extent run, Extent pitch, Extent offset, Extent rows, GatherTable &t, Place place) {
    t.run = run;
    t.pitch = pitch;
    t.offset = offset;
    t.rows = static_cast<int>(rows);
    t.loads = static_cast<int>(loads_for<Vector>(run, pitch, offset, rows));
    for (Extent i = 0; i < rows * run; ++i)
        place(static_cast<int>(i), static_cast<int>(i / run * pitch + offset + i % run));
}

// A kernel for each number of loads.
template <class Make, int... Count>
constexpr std::array<Gather, sizeof...(Count)> each_count(Make make, std::integer_sequence<int, Count...>) {
    return {make(std::integral_constant<int, Count + 1>())...};
}

template <class Make>
constexpr std::array<Gather, GatherTable::kMaxLoads> each_count(Make make) {
    return each_count(make, std::make_integer_sequence<int, GatherTable::kMaxLoads>());
}

}  // namespace

#if defined(__x86_64__)

#define SPLITOPS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

double gather_cost_avx512(Extent run, Extent pitch, Extent offset) {
    // Measured: what is cheaper than moving the runs one by one, which takes two moves for odd lengths.
    const Extent max_loads = run < 8 ? 16 : run == 8 ? 6 : run < 16 ? 10 : run == 16 ? 4 : 3;
    if (run > 32 || loads_for<64>(run, pitch, offset, 64 / run) > max_loads)
        return kNever;
    const Extent pairs = (loads_for<64>(run, pitch, offset, 64 / run) + 1) / 2;
    return static_cast<double>(5 * pairs + 1) / static_cast<double>(64 / run * run);
}

void prepare_gather_avx512(Extent run, Extent pitch, Extent offset, GatherTable &t) {
    std::memset(t.index, 0, sizeof t.index);
    std::memset(t.mask, 0, sizeof t.mask);
    prepare<64>(run, pitch, offset, 64 / run, t, [&](int i, int from) {
        const int pair = from / 128;  // one shuffle selects from two vectors
        t.index[pair][i] = static_cast<std::uint8_t>(from % 128);
        t.mask[pair] |= std::uint64_t{1} << i;
    });
}

namespace {

// A mask of that many of the first bytes of a vector.
inline std::uint64_t first_bytes(Extent count) {
    return count >= 64 ? ~std::uint64_t{0} : count <= 0 ? 0 : (std::uint64_t{1} << count) - 1;
}

template <int Loads, bool Stream>
SPLITOPS_AVX512 void gather_avx512_loads(const GatherTable &t, const char *source, Extent count, Extent readable,
                         char *target, Extent writable) {
    constexpr int pairs = (Loads + 1) / 2;
    __m512i index[pairs];
    for (int p = 0; p < pairs; ++p)
        index[p] = _mm512_load_si512(t.index[p]);
    const auto step = [&](const char *from, char *to) SPLITOPS_AVX512 {
        __m512i result = _mm512_setzero_si512();
        for (int p = 0; p < pairs; ++p) {
            const __m512i low = _mm512_loadu_si512(from + 128 * p);
            const __m512i high = 2 * p + 1 < Loads ? _mm512_loadu_si512(from + 128 * p + 64) : low;
            result = _mm512_or_si512(result, _mm512_maskz_permutex2var_epi8(t.mask[p], low, index[p], high));
        }
        if (Stream)
            _mm512_stream_si512(reinterpret_cast<__m512i *>(to), result);
        else
            _mm512_storeu_si512(to, result);
    };
    const auto last = [&](const char *from, Extent available, char *to, Extent bytes) SPLITOPS_AVX512 {
        __m512i result = _mm512_setzero_si512();
        for (int p = 0; p < pairs; ++p) {
            const __m512i low = _mm512_maskz_loadu_epi8(first_bytes(available - 128 * p), from + 128 * p);
            const __m512i high = _mm512_maskz_loadu_epi8(first_bytes(available - 128 * p - 64), from + 128 * p + 64);
            result = _mm512_or_si512(result, _mm512_maskz_permutex2var_epi8(t.mask[p], low, index[p], high));
        }
        _mm512_mask_storeu_epi8(to, first_bytes(bytes), result);
    };
    gather_rows<64>(t, source, count, readable, target, writable, step, last);
}

template <bool Stream>
void gather_avx512_any(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                       Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_avx512_loads<loads(), Stream>; });
    kernels[t.loads - 1](t, source, count, readable, target, writable);
}

}  // namespace

void gather_avx512(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                   Extent writable) {
    gather_avx512_any<false>(t, source, count, readable, target, writable);
}

void gather_streaming_avx512(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                             Extent writable) {
    gather_avx512_any<true>(t, source, count, readable, target, writable);
}

#endif

#if defined(SPLITOPS_SIMD)

namespace {

// The rows of a step that cost the fewest instructions a byte, with vectors of 16 bytes.
struct BestRows {
    Extent rows;
    double cost;
};

BestRows best_rows(Extent run, Extent pitch, Extent offset) {
    BestRows best{0, kNever};
    for (Extent rows = 1; rows * run <= 16; ++rows) {
        const Extent loads = loads_for<16>(run, pitch, offset, rows);
        const double cost = static_cast<double>(4 * loads + 2) / static_cast<double>(2 * rows * run);
        if (loads <= GatherTable::kMaxLoads && cost < best.cost)
            best = {rows, cost};
    }
    return best;
}

}  // namespace

double gather_cost_shuffle(Extent run, Extent pitch, Extent offset) { return best_rows(run, pitch, offset).cost; }

// Shuffles of 16 bytes: an index with the top bit set gives zero, on both architectures.
void prepare_gather_shuffle(Extent run, Extent pitch, Extent offset, GatherTable &t) {
    std::memset(t.index, 0x80, sizeof t.index);
    prepare<16>(run, pitch, offset, best_rows(run, pitch, offset).rows, t,
                [&](int i, int from) { t.index[from / 16][i] = static_cast<std::uint8_t>(from % 16); });
}

namespace {

// A step takes two times the rows of the table.
template <int Loads>
SPLITOPS_SIMD void gather_shuffle_loads(const GatherTable &t, const char *source, Extent count, Extent readable,
                                        char *target, Extent writable) {
    const Extent source_step = t.rows * t.pitch, target_step = t.rows * t.run;
    const auto gathered = [&](const char *low, const char *high) SPLITOPS_SIMD {
        Pair result = Pair::load(low, high).shuffled(Pair::both(t.index[0]));
        for (int i = 1; i < Loads; ++i)
            result = result | Pair::load(low + 16 * i, high + 16 * i).shuffled(Pair::both(t.index[i]));
        return result;
    };
    Extent steps = count / (2 * t.rows);
    const Extent reach = source_step + Loads * 16, end = target_step + 16;
    steps = std::min(steps, readable < reach ? 0 : (readable - reach) / (2 * source_step) + 1);
    steps = std::min(steps, writable < end ? 0 : (writable - end) / (2 * target_step) + 1);
    for (Extent i = 0; i < steps; ++i) {
        const char *from = source + 2 * i * source_step;
        char *to = target + 2 * i * target_step;
        gathered(from, from + source_step).store(to, to + target_step);
    }
    for (Extent row = 2 * steps * t.rows; row < count; row += t.rows) {
        const Extent rows = std::min<Extent>(t.rows, count - row);
        char in[Loads * 16] = {}, out[16], unused[16];
        std::memcpy(in, source + row * t.pitch,
                    static_cast<std::size_t>(std::min<Extent>(readable - row * t.pitch, Loads * 16)));
        gathered(in, in).store(out, unused);
        std::memcpy(target + row * t.run, out, static_cast<std::size_t>(rows * t.run));
    }
}

}  // namespace

void gather_shuffle(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                    Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_shuffle_loads<loads()>; });
    kernels[t.loads - 1](t, source, count, readable, target, writable);
}

#endif

}  // namespace splitops
