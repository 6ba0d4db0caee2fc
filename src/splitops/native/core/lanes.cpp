#include "lanes.h"

#include <algorithm>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace splitops {
namespace {

constexpr Extent kVector = LaneTable::kVector;
constexpr Extent kHalves = 2;  // a step does twice what one vector of 16 bytes does

int log2_of(int power) {
    int log = 0;
    while (power >> log > 1)
        ++log;
    return log;
}

#if defined(__x86_64__)

#define SPLITOPS_SIMD __attribute__((target("avx2")))
#define SPLITOPS_INLINE SPLITOPS_SIMD inline __attribute__((always_inline))

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

#elif defined(__aarch64__)

#define SPLITOPS_SIMD
#define SPLITOPS_INLINE inline __attribute__((always_inline))

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

#endif

#if defined(SPLITOPS_SIMD)

// Interleaving the halves of a list of vectors, as often as halving the list leaves one, transposes it.
template <int Lane>
SPLITOPS_INLINE void interleave(Pair *v) {
    constexpr int lanes = static_cast<int>(kVector) / Lane;
    Pair mixed[lanes];
    for (int i = 0; i < lanes / 2; ++i) {
        mixed[2 * i] = Pair::low<Lane>(v[i], v[i + lanes / 2]);
        mixed[2 * i + 1] = Pair::high<Lane>(v[i], v[i + lanes / 2]);
    }
    for (int i = 0; i < lanes; ++i)
        v[i] = mixed[i];
}

// Stores the vector of a part. Without gaps all runs are equal, and both halves follow each other.
template <int Lane, bool Packs>
SPLITOPS_INLINE void store_part(const LaneTable &t, Pair v, int part, Extent row, char *const *targets) {
    if (!Packs) {
        v.store(targets[part] + row * t.run[0]);
    } else {
        char *to = targets[part] + row * t.run[part];
        v.shuffled(Pair::both(t.pack[part])).store(to, to + kVector / Lane * t.rows * t.run[part]);
    }
}

// One step: loads are `pitch` bytes apart, and the runs go to `row` of the targets.
template <int Lane, bool Spreads, bool Packs>
SPLITOPS_INLINE void take_step(const LaneTable &t, const char *from, Extent pitch, Extent row, char *const *targets) {
    constexpr int lanes = static_cast<int>(kVector) / Lane;
    Pair v[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
        v[i] = Pair::load(from + i * pitch, from + (lanes + i) * pitch);
        if (Spreads)
            v[i] = v[i].shuffled(Pair::both(t.spread));
    }
    if (lanes >= 4)
        interleave<Lane>(v);
    if (lanes >= 8)
        interleave<Lane>(v);
    if (lanes >= 16)
        interleave<Lane>(v);
#pragma GCC unroll 8
    for (int i = 0; i < lanes / 2; ++i) {  // the last interleaving, as far as there are parts
        if (2 * i < t.parts)
            store_part<Lane, Packs>(t, Pair::low<Lane>(v[i], v[i + lanes / 2]), 2 * i, row, targets);
        if (2 * i + 1 < t.parts)
            store_part<Lane, Packs>(t, Pair::high<Lane>(v[i], v[i + lanes / 2]), 2 * i + 1, row, targets);
    }
}

template <int Lane, bool Spreads, bool Packs>
SPLITOPS_SIMD void take_apart(const LaneTable &t, const char *source, Extent count, Extent readable,
                              char *const *targets, Extent slack) {
    constexpr Extent loads = kHalves * kVector / Lane;
    const Extent step_rows = loads * t.rows;
    const Extent load_pitch = t.rows * t.pitch;
    // The last load of a step may reach beyond the source, and its last store, if packed, behind the target.
    const Extent reach = (loads - 1) * load_pitch + kVector;
    Extent steps = std::min(count / step_rows, readable < reach ? 0 : (readable - reach) / (loads * load_pitch) + 1);
    if (Packs && slack < kVector)
        steps = std::max<Extent>(0, std::min(steps, count / step_rows - 1));
    for (Extent i = 0; i < steps; ++i)
        take_step<Lane, Spreads, Packs>(t, source + i * loads * load_pitch, load_pitch, i * step_rows, targets);
    for (Extent row = steps * step_rows; row < count; row += step_rows) {
        const Extent rows = std::min(step_rows, count - row);
        alignas(32) char in[loads * kVector] = {};
        alignas(32) char out[LaneTable::kMaxParts][4 * kVector];
        char *outs[LaneTable::kMaxParts];
        for (Extent i = 0; i * t.rows < rows; ++i) {
            const Extent at = row * t.pitch + i * load_pitch;
            std::memcpy(in + i * kVector, source + at, static_cast<std::size_t>(std::min(kVector, readable - at)));
        }
        for (int i = 0; i < t.parts; ++i)
            outs[i] = out[i];
        take_step<Lane, Spreads, Packs>(t, in, kVector, 0, outs);
        for (int i = 0; i < t.parts; ++i)
            std::memcpy(targets[i] + row * t.run[i], out[i], static_cast<std::size_t>(rows * t.run[i]));
    }
}

template <int Lane>
void take_apart_lanes(const LaneTable &t, const char *source, Extent count, Extent readable, char *const *targets,
                      Extent slack) {
    if (t.spreads && t.packs)
        take_apart<Lane, true, true>(t, source, count, readable, targets, slack);
    else if (t.spreads)
        take_apart<Lane, true, false>(t, source, count, readable, targets, slack);
    else if (t.packs)
        take_apart<Lane, false, true>(t, source, count, readable, targets, slack);
    else
        take_apart<Lane, false, false>(t, source, count, readable, targets, slack);
}

void take_apart_any(const LaneTable &t, const char *source, Extent count, Extent readable, char *const *targets,
                    Extent slack) {
    switch (t.lane) {
        case 1: return take_apart_lanes<1>(t, source, count, readable, targets, slack);
        case 2: return take_apart_lanes<2>(t, source, count, readable, targets, slack);
        case 4: return take_apart_lanes<4>(t, source, count, readable, targets, slack);
        default: return take_apart_lanes<8>(t, source, count, readable, targets, slack);
    }
}

#endif

}  // namespace

LaneChoice choose_lanes(const Extent *runs, int count, Extent pitch) {
    LaneChoice best{0, 0, 0, std::numeric_limits<double>::infinity()};
    Extent span = runs[0], longest = runs[0];
    for (int parts = 2; parts <= std::min(count, LaneTable::kMaxParts); ++parts) {
        const Extent run = runs[parts - 1];
        span += run;
        longest = std::max(longest, run);
        if (span > kVector)
            break;
        for (int lane = 1; lane < kVector && lane * parts <= kVector; lane *= 2) {
            if (lane < longest)
                continue;
            const Extent rows = std::min(lane / longest, (kVector - span) / pitch + 1);
            const bool full = span == parts * longest;  // all runs are equal
            const bool spreads = rows > 1 || longest != lane || span - run != (parts - 1) * longest;
            const bool packs = !full || rows * longest != lane;
            const double lanes = static_cast<double>(kVector / lane);
            const double loads = lanes * (kHalves + (spreads ? 1 : 0));
            const double transposition = lanes * log2_of(static_cast<int>(kVector) / lane);
            const double stores = parts * (packs ? 4 : 1);
            const double bytes = static_cast<double>(kHalves * rows * span) * lanes;
            const double cost = (loads + transposition + stores) / bytes;
            if (cost < best.cost)
                best = {parts, lane, static_cast<int>(rows), cost};
        }
    }
    return best;
}

void fill_table(const LaneChoice &choice, const Extent *runs, Extent pitch, LaneTable &t) {
    t.pitch = pitch;
    t.parts = choice.parts;
    t.lane = choice.lane;
    t.rows = choice.rows;
    t.spreads = t.packs = false;
    std::memset(t.spread, 0x80, sizeof t.spread);  // an index with the top bit set gives zero
    std::memset(t.pack, 0x80, sizeof t.pack);
    Extent begin = 0;
    for (int i = 0; i < t.parts; ++i) {
        const Extent run = t.run[i] = runs[i];
        const Extent held = t.rows * run;
        for (Extent byte = 0; byte < held; ++byte) {
            const Extent from = byte / run * pitch + begin + byte % run;
            t.spread[i * t.lane + byte] = static_cast<std::uint8_t>(from);
            t.spreads |= from != i * t.lane + byte;
        }
        for (Extent byte = 0; byte < held * (kVector / t.lane); ++byte)
            t.pack[i][byte] = static_cast<std::uint8_t>(byte / held * t.lane + byte % held);
        t.packs |= held != t.lane;
        begin += run;
    }
}

#if defined(__x86_64__)
void take_apart_avx2(const LaneTable &t, const char *source, Extent count, Extent readable, char *const *targets,
                     Extent slack) {
    take_apart_any(t, source, count, readable, targets, slack);
}
#elif defined(__aarch64__)
void take_apart_neon(const LaneTable &t, const char *source, Extent count, Extent readable, char *const *targets,
                     Extent slack) {
    take_apart_any(t, source, count, readable, targets, slack);
}
#endif

}  // namespace splitops
