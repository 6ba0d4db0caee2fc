// Two vectors of 16 bytes that go through the same steps: one register with AVX2, two with Neon. Only for files
// that compile kernels for them: everything here needs the instructions that SPLITOPS_SIMD names.
#pragma once

#include <cstdint>
#include <cstring>

#include "copy/strided_copy.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define SPLITOPS_SIMD __attribute__((target("avx2")))
#define SPLITOPS_INLINE SPLITOPS_SIMD inline __attribute__((always_inline))

namespace splitops {
namespace {

// Two vectors of 16 bytes that go through the same steps.
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

// Writes whole lines past the caches, from memory that is aligned alike.
SPLITOPS_INLINE void stream_lines(char *target, const char *source, Extent bytes) {
    for (const char *const end = source + bytes; source != end; source += 64, target += 64) {
        const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i *>(source));
        const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i *>(source + 32));
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target), low);
        _mm256_stream_si256(reinterpret_cast<__m256i *>(target + 32), high);
    }
}

}  // namespace
}  // namespace splitops

#elif defined(__aarch64__)

#include <arm_neon.h>

#define SPLITOPS_SIMD
#define SPLITOPS_INLINE inline __attribute__((always_inline))

namespace splitops {
namespace {

struct Pair {
    uint8x16_t a, b;

    static SPLITOPS_INLINE Pair load(const char *low, const char *high) {
        return {vld1q_u8(reinterpret_cast<const std::uint8_t *>(low)),
                vld1q_u8(reinterpret_cast<const std::uint8_t *>(high))};
    }
    static SPLITOPS_INLINE Pair both(const std::uint8_t *index) {
        const uint8x16_t v = vld1q_u8(index);
        return {v, v};
    }
    SPLITOPS_INLINE Pair shuffled(Pair index) const { return {vqtbl1q_u8(a, index.a), vqtbl1q_u8(b, index.b)}; }
    SPLITOPS_INLINE void store(char *to) const { store(to, to + 16); }
    SPLITOPS_INLINE void store(char *low, char *high) const {
        vst1q_u8(reinterpret_cast<std::uint8_t *>(low), a);
        vst1q_u8(reinterpret_cast<std::uint8_t *>(high), b);
    }
    SPLITOPS_INLINE Pair operator|(Pair other) const { return {vorrq_u8(a, other.a), vorrq_u8(b, other.b)}; }
    template <int Lane>
    static SPLITOPS_INLINE uint8x16_t zip1(uint8x16_t x, uint8x16_t y) {
        switch (Lane) {
            case 1: return vzip1q_u8(x, y);
            case 2: return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(x), vreinterpretq_u16_u8(y)));
            case 4: return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
            default: return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(x), vreinterpretq_u64_u8(y)));
        }
    }
    template <int Lane>
    static SPLITOPS_INLINE uint8x16_t zip2(uint8x16_t x, uint8x16_t y) {
        switch (Lane) {
            case 1: return vzip2q_u8(x, y);
            case 2: return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(x), vreinterpretq_u16_u8(y)));
            case 4: return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
            default: return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(x), vreinterpretq_u64_u8(y)));
        }
    }
    template <int Lane>
    static SPLITOPS_INLINE Pair low(Pair x, Pair y) {
        return {zip1<Lane>(x.a, y.a), zip1<Lane>(x.b, y.b)};
    }
    template <int Lane>
    static SPLITOPS_INLINE Pair high(Pair x, Pair y) {
        return {zip2<Lane>(x.a, y.a), zip2<Lane>(x.b, y.b)};
    }
};

inline void stream_lines(char *target, const char *source, Extent bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

}  // namespace
}  // namespace splitops

#endif
