#include "isa/instruction_sets.h"

#include <atomic>
#include <cstring>
#include <limits>

#include "isa/pairs.h"

namespace splitops {
namespace {

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void stream_lines_avx512(char *target, const char *source, Extent bytes) {
    for (Extent i = 0; i < bytes; i += 64)
        _mm512_stream_si512(reinterpret_cast<__m512i *>(target + i), _mm512_loadu_si512(source + i));
}

SPLITOPS_SIMD void copy_runs_avx2(const Runs &r) { copy_runs_inline(r); }

SPLITOPS_SIMD void stream_lines_avx2(char *target, const char *source, Extent bytes) {
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

#endif

#if !defined(SPLITOPS_STREAM_LINES)
// No store is known here that passes the caches by.
void copy_whole_lines(char *target, const char *source, Extent bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

#define SPLITOPS_STREAM_LINES copy_whole_lines
#endif

void copy_runs(const Runs &r) { copy_runs_inline(r); }

double never(Extent, Extent, Extent) { return std::numeric_limits<double>::infinity(); }

constexpr InstructionSet kGeneric = {
    .name = "generic",
    .copy_runs = copy_runs,
    .stream_lines = SPLITOPS_STREAM_LINES,
    .gather_cost = never,
};

#if defined(__x86_64__)

constexpr InstructionSet kAvx2 = {
    .name = "avx2",
    .copy_runs = copy_runs_avx2,
    .stream_lines = stream_lines_avx2,
    .gather_cost = gather_cost_shuffle,
    .prepare_gather = prepare_gather_shuffle,
    .gather = gather_shuffle,
    .take_apart = take_apart_pairs,
    .take_apart_streaming = take_apart_pairs_streaming,
};

constexpr InstructionSet kAvx512 = {
    .name = "avx512",
    .copy_runs = copy_runs_avx2,
    .stream_lines = stream_lines_avx512,
    .gather_cost = gather_cost_avx512,
    .prepare_gather = prepare_gather_avx512,
    .gather = gather_avx512,
    .gather_streaming = gather_streaming_avx512,
    .take_apart = take_apart_pairs,
    .take_apart_streaming = take_apart_pairs_streaming,
};

#elif defined(__aarch64__)

constexpr InstructionSet kNeon = {
    .name = "neon",
    .copy_runs = copy_runs,
    .stream_lines = SPLITOPS_STREAM_LINES,
    .gather_cost = gather_cost_shuffle,
    .prepare_gather = prepare_gather_shuffle,
    .gather = gather_shuffle,
    .take_apart = take_apart_pairs,
    .take_apart_streaming = take_apart_pairs_streaming,
};

#endif

const InstructionSet *const *detect() {
    static const InstructionSet *found[4] = {};
    int n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        found[n++] = &kAvx512;
    if (__builtin_cpu_supports("avx2"))
        found[n++] = &kAvx2;
#elif defined(__aarch64__)
    found[n++] = &kNeon;
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
