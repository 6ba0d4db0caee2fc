// Neon: a pair of vectors is two registers.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "isa/instruction_sets.h"

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

// Neon has no store that bypasses the caches.
SPLITOPS_INLINE void stream_lines(char *target, const char *source, Extent bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

}  // namespace
}  // namespace splitops

#include "isa/vectors.h"

namespace splitops {
namespace {

void copy_runs(const Runs &r) { copy_runs_inline(r); }

}  // namespace

InstructionSet neon() { return with_vectors("neon", copy_runs); }

}  // namespace splitops

#endif
