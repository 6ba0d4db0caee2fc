#include "gather.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace splitops {
namespace {

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

// Vectors that a step reads for the runs that fill one vector.
template <int Vector>
Extent loads_for(Extent run, Extent pitch, Extent offset) {
    return ((Vector / run - 1) * pitch + offset + run + Vector - 1) / Vector;
}

// Each load costs `price` instructions, and each vector one more.
template <int Vector>
double cost(Extent run, Extent pitch, Extent offset, Extent max_loads, double price) {
    if (run > Vector / 2 || loads_for<Vector>(run, pitch, offset) > std::min<Extent>(max_loads, GatherTable::kMaxLoads))
        return std::numeric_limits<double>::infinity();
    const double loads = static_cast<double>(loads_for<Vector>(run, pitch, offset));
    return (price * loads + 1) / static_cast<double>(Vector / run * run);
}

// Fills rows, loads and the place of each byte of the result.
template <int Vector, class Place>
void prepare(Extent run, Extent pitch, Extent offset, GatherTable &t, Place place) {
    t.run = run;
    t.pitch = pitch;
    t.offset = offset;
    t.rows = static_cast<int>(Vector / run);
    t.loads = static_cast<int>(loads_for<Vector>(run, pitch, offset));
    for (Extent i = 0; i < t.rows * run; ++i)
        place(static_cast<int>(i), static_cast<int>(i / run * pitch + offset + i % run));
}

using Gather = void (*)(const GatherTable &, const char *, Extent, Extent, char *, Extent);

// A kernel for each number of loads.
template <class Make, int... Count>
constexpr std::array<Gather, sizeof...(Count)> each_count(Make make, std::integer_sequence<int, Count...>) {
    return {make(std::integral_constant<int, Count + 1>())...};
}

template <class Make>
constexpr std::array<Gather, GatherTable::kMaxLoads> each_count(Make make) {
    return each_count(make, std::make_integer_sequence<int, GatherTable::kMaxLoads>());
}

#if defined(__x86_64__)

#define SPLITOPS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define SPLITOPS_AVX2 __attribute__((target("avx2")))

double cost_avx512(Extent run, Extent pitch, Extent offset) {
    // Measured: what is cheaper than moving the runs one by one, which takes two moves for odd lengths.
    const Extent max_loads = run < 8 ? 16 : run == 8 ? 6 : run < 16 ? 10 : run == 16 ? 4 : 3;
    return cost<64>(run, pitch, offset, max_loads, 2.5);
}

void prepare_avx512(Extent run, Extent pitch, Extent offset, GatherTable &t) {
    std::memset(t.index, 0, sizeof t.index);
    std::memset(t.mask, 0, sizeof t.mask);
    prepare<64>(run, pitch, offset, t, [&](int i, int from) {
        const int pair = from / 128;  // one shuffle selects from two vectors
        t.index[pair][i] = static_cast<std::uint8_t>(from % 128);
        t.mask[pair] |= std::uint64_t{1} << i;
    });
}

SPLITOPS_AVX512 void stream_lines_avx512(char *target, const char *source, Extent bytes) {
    for (Extent i = 0; i < bytes; i += 64)
        _mm512_stream_si512(reinterpret_cast<__m512i *>(target + i), _mm512_loadu_si512(source + i));
}

SPLITOPS_AVX2 void stream_lines_avx2(char *target, const char *source, Extent bytes) {
    for (Extent i = 0; i < bytes; i += 64) {
        const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source + i));
        const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source + i + 32));
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target + i), low);
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target + i + 32), high);
    }
}

void stream_lines_sse2(char *target, const char *source, Extent bytes) {
    for (Extent i = 0; i < bytes; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i *>(target + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + i)));
}

#define SPLITOPS_STREAM_LINES stream_lines_sse2

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
void gather_avx512(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                   Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_avx512_loads<loads(), Stream>; });
    kernels[t.loads - 1](t, source, count, readable, target, writable);
}

template <int Loads>
SPLITOPS_AVX2 inline void shuffle_step(const GatherTable &t, const char *from, char *to) {
    __m128i result = _mm_setzero_si128();
    for (int i = 0; i < Loads; ++i) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + 16 * i));
        const __m128i index = _mm_load_si128(reinterpret_cast<const __m128i *>(t.index[i]));
        result = _mm_or_si128(result, _mm_shuffle_epi8(bytes, index));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), result);
}

#define SPLITOPS_SHUFFLE SPLITOPS_AVX2

#elif defined(__aarch64__)

template <int Loads>
inline void shuffle_step(const GatherTable &t, const char *from, char *to) {
    uint8x16_t result = vdupq_n_u8(0);
    for (int i = 0; i < Loads; ++i) {
        const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t *>(from) + 16 * i);
        result = vorrq_u8(result, vqtbl1q_u8(bytes, vld1q_u8(t.index[i])));
    }
    vst1q_u8(reinterpret_cast<std::uint8_t *>(to), result);
}

#define SPLITOPS_SHUFFLE

#endif

#if defined(SPLITOPS_SHUFFLE)

double cost_shuffle(Extent run, Extent pitch, Extent offset) {
    return cost<16>(run, pitch, offset, GatherTable::kMaxLoads, 3);
}

// Shuffles of 16 bytes: an index with the top bit set gives zero, on both architectures.
void prepare_shuffle(Extent run, Extent pitch, Extent offset, GatherTable &t) {
    std::memset(t.index, 0x80, sizeof t.index);
    prepare<16>(run, pitch, offset, t,
                [&](int i, int from) { t.index[from / 16][i] = static_cast<std::uint8_t>(from % 16); });
}

template <int Loads>
SPLITOPS_SHUFFLE void gather_shuffle_loads(const GatherTable &t, const char *source, Extent count, Extent readable,
                                     char *target, Extent writable) {
    const auto step = [&](const char *from, char *to) SPLITOPS_SHUFFLE { shuffle_step<Loads>(t, from, to); };
    const auto last = [&](const char *from, Extent available, char *to, Extent bytes) SPLITOPS_SHUFFLE {
        alignas(16) char in[Loads * 16] = {};
        alignas(16) char out[16];
        std::memcpy(in, from, static_cast<std::size_t>(std::min<Extent>(available, Loads * 16)));
        shuffle_step<Loads>(t, in, out);
        std::memcpy(to, out, static_cast<std::size_t>(bytes));
    };
    gather_rows<16>(t, source, count, readable, target, writable, step, last);
}

void gather_shuffle(const GatherTable &t, const char *source, Extent count, Extent readable, char *target,
                    Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_shuffle_loads<loads()>; });
    kernels[t.loads - 1](t, source, count, readable, target, writable);
}

#endif

#if !defined(SPLITOPS_STREAM_LINES)
// No store is known here that passes the caches by.
void copy_whole_lines(char *target, const char *source, Extent bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

#define SPLITOPS_STREAM_LINES copy_whole_lines
#endif

double never(Extent, Extent, Extent) { return std::numeric_limits<double>::infinity(); }

const InstructionSet kGeneric = {"generic", never, nullptr, nullptr, SPLITOPS_STREAM_LINES, nullptr, nullptr};

const InstructionSet *const *detect() {
    static const InstructionSet *found[4] = {};
    int n = 0;
#if defined(__x86_64__)
    static const InstructionSet avx512 = {"avx512", cost_avx512, prepare_avx512, gather_avx512<false>, stream_lines_avx512,
                                          gather_avx512<true>, take_apart_avx2};
    static const InstructionSet avx2 = {"avx2", cost_shuffle, prepare_shuffle, gather_shuffle, stream_lines_avx2, nullptr, take_apart_avx2};
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        found[n++] = &avx512;
    if (__builtin_cpu_supports("avx2"))
        found[n++] = &avx2;
#elif defined(__aarch64__)
    static const InstructionSet neon = {"neon", cost_shuffle, prepare_shuffle, gather_shuffle, SPLITOPS_STREAM_LINES, nullptr,
                                       take_apart_neon};
    found[n++] = &neon;
#endif
    found[n] = &kGeneric;
    return found;
}

std::atomic<const InstructionSet *> g_current{nullptr};

}  // namespace

const InstructionSet *const *instruction_sets() {
    static const InstructionSet *const *sets = detect();
    return sets;
}

const InstructionSet &instruction_set() {
    const InstructionSet *set = g_current.load(std::memory_order_relaxed);
    if (set == nullptr) {
        set = instruction_sets()[0];
        g_current.store(set, std::memory_order_relaxed);
    }
    return *set;
}

void use_instruction_set(const InstructionSet &set) { g_current.store(&set, std::memory_order_relaxed); }

}  // namespace splitops
