#include "isa/instruction_sets.h"

#include <atomic>

#include "isa/processor.h"

namespace splitops {
namespace {

struct Found {
    InstructionSet sets[3];
    std::size_t count = 0;

    Found() {
#if defined(__x86_64__)
        if (processor().avx512)
            sets[count++] = avx512();
        if (processor().avx2)
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
    const InstructionSet *set = g_current.load(std::memory_order_acquire);
    if (set == nullptr) {
        set = &instruction_sets().front();
        g_current.store(set, std::memory_order_release);
    }
    return *set;
}

void use_instruction_set(const InstructionSet &set) { g_current.store(&set, std::memory_order_release); }

}  // namespace splitops
