// AVX-512 with VBMI: the kernels of AVX2, but runs are gathered by shuffles that select from two whole registers.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "isa/instruction_sets.h"

#define SPLITOPS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

namespace splitops {
namespace {

constexpr Extent kVector = 64;

double gather_cost(Extent run, Extent pitch) {
    const Extent rows = kVector / run;
    const Extent loads = rows == 0 ? 0 : gather_loads(kVector, run, pitch, rows);
    if (rows == 0 || loads > GatherTable::kMaxLoads)
        return kNever;
    const Extent pairs = (loads + 1) / 2;
    return static_cast<double>(5 * pairs + 1) / static_cast<double>(rows * run);
}

void prepare_gather(Extent run, Extent pitch, GatherTable &t) {
    std::memset(t.index, 0, sizeof t.index);
    std::memset(t.mask, 0, sizeof t.mask);
    prepare_gather(kVector, run, pitch, kVector / run, t, [&](int i, int from) {
        const int pair = from / 128;  // one shuffle selects from two vectors
        t.index[pair][i] = static_cast<std::uint8_t>(from % 128);
        t.mask[pair] |= std::uint64_t{1} << i;
    });
}

// A mask of the first `count` bytes of a vector.
inline std::uint64_t first_bytes(Extent count) {
    return count >= kVector ? ~std::uint64_t{0} : count <= 0 ? 0 : (std::uint64_t{1} << count) - 1;
}

// A step reads whole vectors from the start of its first row and writes a whole vector. If these could extend too far,
// it only reads and writes the bytes that exist.
template <int Loads>
SPLITOPS_AVX512 void gather_loaded(const GatherTable &t, const char *source, Extent count, Extent readable,
                                   char *target, Extent writable) {
    constexpr int pairs = (Loads + 1) / 2;
    __m512i index[pairs];
    for (int p = 0; p < pairs; ++p)
        index[p] = _mm512_load_si512(t.index[p]);
    const Extent source_step = t.rows * t.pitch, target_step = t.rows * t.run;
    Extent steps = (count + t.rows - 1) / t.rows;
    steps = std::min(steps, readable < Loads * kVector ? 0 : (readable - Loads * kVector) / source_step + 1);
    steps = std::min(steps, writable < kVector ? 0 : (writable - kVector) / target_step + 1);
    for (Extent i = 0; i < steps; ++i) {
        const char *from = source + i * source_step;
        __m512i result = _mm512_setzero_si512();
        for (int p = 0; p < pairs; ++p) {
            const __m512i low = _mm512_loadu_si512(from + 128 * p);
            const __m512i high = 2 * p + 1 < Loads ? _mm512_loadu_si512(from + 128 * p + 64) : low;
            result = _mm512_or_si512(result, _mm512_maskz_permutex2var_epi8(t.mask[p], low, index[p], high));
        }
        _mm512_storeu_si512(target + i * target_step, result);
    }
    for (Extent row = steps * t.rows; row < count; row += t.rows) {
        const char *from = source + row * t.pitch;
        const Extent available = readable - row * t.pitch;
        __m512i result = _mm512_setzero_si512();
        for (int p = 0; p < pairs; ++p) {
            const __m512i low = _mm512_maskz_loadu_epi8(first_bytes(available - 128 * p), from + 128 * p);
            const __m512i high = _mm512_maskz_loadu_epi8(first_bytes(available - 128 * p - 64), from + 128 * p + 64);
            result = _mm512_or_si512(result, _mm512_maskz_permutex2var_epi8(t.mask[p], low, index[p], high));
        }
        _mm512_mask_storeu_epi8(target + row * t.run, first_bytes(std::min<Extent>(t.rows, count - row) * t.run), result);
    }
}

void gather(const GatherTable &t, const char *source, Extent count, Extent readable, char *target, Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_loaded<loads()>; });
    kernels[static_cast<std::size_t>(t.loads - 1)](t, source, count, readable, target, writable);
}

}  // namespace

InstructionSet avx512() {
    InstructionSet set = avx2();
    set.name = "avx512";
    set.gather_cost = gather_cost;
    set.prepare_gather = prepare_gather;
    set.gather = gather;
    return set;
}

}  // namespace splitops

#endif
