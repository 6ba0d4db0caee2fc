#include "isa/instruction_sets.h"

#include <atomic>

namespace splitops {
namespace {

struct Found {
    InstructionSet sets[3];
    std::size_t count = 0;

    Found() {
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl"))
            sets[count++] = avx512();
        if (__builtin_cpu_supports("avx2"))
            sets[count++] = avx2();
#elif defined(__aarch64__)
        sets[count++] = neon();
#endif
        sets[count++] = generic();
    }
};

std::atomic<const InstructionSet *> g_current{nullptr};

}  // namespace

std::span<const InstructionSet> instruction_sets() {
    static const Found found;
    return {found.sets, found.count};
}

const InstructionSet &instruction_set() {
    const InstructionSet *set = g_current.load(std::memory_order_relaxed);
    if (set == nullptr) {
        set = &instruction_sets().front();
        g_current.store(set, std::memory_order_relaxed);
    }
    return *set;
}

void use_instruction_set(const InstructionSet &set) { g_current.store(&set, std::memory_order_relaxed); }

}  // namespace splitops
