// The kernels that this processor can run.
#pragma once

#include "isa/gather.h"
#include "isa/lanes.h"
#include "isa/runs.h"
#include "copy/strided_copy.h"

namespace splitops {

struct InstructionSet {
    const char *name;
    void (*copy_runs)(const Runs &runs);
    // Copies whole lines of 64 bytes to an aligned target, past the caches where that can be had.
    void (*stream_lines)(char *target, const char *source, Extent bytes);

    GatherCost gather_cost;
    PrepareGather prepare_gather = nullptr;
    Gather gather = nullptr;
    Gather gather_streaming = nullptr;  // where a step gives a whole line of an aligned target; null: there is none

    TakeApart take_apart = nullptr;  // null: there is none
    TakeApartStreaming take_apart_streaming = nullptr;
};

// The best that this processor has; all that it has, best first, for tests.
const InstructionSet &instruction_set();
const InstructionSet *const *instruction_sets();  // ends with null
void use_instruction_set(const InstructionSet &set);

}  // namespace splitops
