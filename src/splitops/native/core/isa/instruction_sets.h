// The kernels that this processor can run. Each instruction set has a file with its instructions, in which it
// makes the kernels of runs.h and vectors.h; all of them give the same bytes.
#pragma once

#include <span>

#include "copy/gather.h"
#include "copy/lanes.h"
#include "isa/runs.h"

namespace splitops {

struct InstructionSet {
    const char *name;
    void (*copy_runs)(const Runs &runs);
    // Copies whole lines to an aligned target, past the caches where that can be had.
    void (*stream_lines)(char *target, const char *source, Extent bytes);

    // Null: there is none.
    GatherCost gather_cost = nullptr;
    PrepareGather prepare_gather = nullptr;
    Gather gather = nullptr;
    TakeApart take_apart = nullptr;
    TakeApartStreaming take_apart_streaming = nullptr;
};

// What any processor of the architecture has.
InstructionSet generic();

#if defined(__x86_64__)
InstructionSet avx2();
InstructionSet avx512();
#elif defined(__aarch64__)
InstructionSet neon();
#endif

// The one in use, at first the best that this processor has; all that it has, best first.
const InstructionSet &instruction_set();
std::span<const InstructionSet> instruction_sets();
void use_instruction_set(const InstructionSet &set);  // of these

}  // namespace splitops
