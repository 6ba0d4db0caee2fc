// The kernels that this processor can run. The file of each instruction set compiles the kernels of runs.h and
// vectors.h with its instructions. All of them produce the same bytes.
#pragma once

#include <span>

#include "copy/gather.h"
#include "copy/lanes.h"
#include "isa/runs.h"

namespace splitops {

struct InstructionSet {
    const char *name;
    void (*copy_runs)(const Runs &runs);
    // Copies whole lines to an aligned target, past the caches if possible.
    void (*stream_lines)(char *target, const char *source, Extent bytes);

    // The vector kernels; null if the set has none.
    GatherCost gather_cost = nullptr;
    PrepareGather prepare_gather = nullptr;
    Gather gather = nullptr;
    TakeApart take_apart = nullptr;
    TakeApartStreaming take_apart_streaming = nullptr;
};

// The set that every processor of the architecture has.
InstructionSet generic();

#if defined(__x86_64__)
InstructionSet avx2();
InstructionSet avx512();
#elif defined(__aarch64__)
InstructionSet neon();
#endif

// The set in use, initially the best one; and all that this processor has, best first.
const InstructionSet &instruction_set();
std::span<const InstructionSet> instruction_sets();
void use_instruction_set(const InstructionSet &set);  // one of instruction_sets()

}  // namespace splitops
