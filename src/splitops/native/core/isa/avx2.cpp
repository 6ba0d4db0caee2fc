// AVX2: a pair of vectors is one register.
#if defined(__x86_64__)

#include <immintrin.h>

#include "isa/instruction_sets.h"

#define SPLITOPS_SIMD __attribute__((target("avx2")))
#define SPLITOPS_INLINE SPLITOPS_SIMD inline __attribute__((always_inline))

namespace splitops {
namespace {

struct Pair {
    __m256i v;

    static SPLITOPS_INLINE Pair load(const char *low, const char *high) {
        const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i *>(low));
        const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i *>(high));
        return {_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1)};
    }
    static SPLITOPS_INLINE Pair both(const std::uint8_t *index) {
        return {_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i *>(index)))};
    }
    SPLITOPS_INLINE Pair shuffled(Pair index) const { return {_mm256_shuffle_epi8(v, index.v)}; }
    SPLITOPS_INLINE void store(char *to) const { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), v); }
    SPLITOPS_INLINE void store(char *low, char *high) const {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(low), _mm256_castsi256_si128(v));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(high), _mm256_extracti128_si256(v, 1));
    }
    SPLITOPS_INLINE Pair operator|(Pair other) const { return {_mm256_or_si256(v, other.v)}; }
    template <int Lane>
    static SPLITOPS_INLINE Pair low(Pair a, Pair b) {
        switch (Lane) {
            case 1: return {_mm256_unpacklo_epi8(a.v, b.v)};
            case 2: return {_mm256_unpacklo_epi16(a.v, b.v)};
            case 4: return {_mm256_unpacklo_epi32(a.v, b.v)};
            default: return {_mm256_unpacklo_epi64(a.v, b.v)};
        }
    }
    template <int Lane>
    static SPLITOPS_INLINE Pair high(Pair a, Pair b) {
        switch (Lane) {
            case 1: return {_mm256_unpackhi_epi8(a.v, b.v)};
            case 2: return {_mm256_unpackhi_epi16(a.v, b.v)};
            case 4: return {_mm256_unpackhi_epi32(a.v, b.v)};
            default: return {_mm256_unpackhi_epi64(a.v, b.v)};
        }
    }
};

SPLITOPS_INLINE void stream_lines(char *target, const char *source, Extent bytes) {
    for (const char *const end = source + bytes; source != end; source += kLine, target += kLine) {
        const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
        const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source + 32));
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target), low);
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target + 32), high);
    }
}

}  // namespace
}  // namespace splitops

#include "isa/vectors.h"

namespace splitops {
namespace {

SPLITOPS_SIMD void copy_runs(const Runs &r) { copy_runs_inline(r); }

}  // namespace

InstructionSet avx2() { return with_vectors("avx2", copy_runs); }

}  // namespace splitops

#endif
