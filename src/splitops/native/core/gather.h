// Gathering short runs with byte shuffles: from rows of a small pitch, the same few bytes of each row.
#pragma once

#include <cstdint>

#include "lanes.h"
#include "strided_copy.h"

namespace splitops {

// The shuffles that take `run` bytes at `offset` of each row of `pitch` bytes. One step reads `loads`
// vectors from the start of a row and gives the runs of `rows` rows, packed.
struct GatherTable {
    static constexpr int kMaxLoads = 16;

    Extent run, pitch, offset;
    int rows, loads;
    alignas(64) std::uint8_t index[kMaxLoads][64];
    std::uint64_t mask[kMaxLoads];  // which bytes of the result come from these loads
};

struct InstructionSet {
    const char *name;
    // The instructions that a byte costs; infinite where such runs cannot be gathered.
    double (*gather_cost)(Extent run, Extent pitch, Extent offset);
    void (*prepare)(Extent run, Extent pitch, Extent offset, GatherTable &table);
    // Writes count * run bytes to `target`, from `count` rows at `source`. It may read `readable` bytes of
    // the source, and may overwrite `writable` bytes of the target, both at least what the runs need.
    void (*gather)(const GatherTable &table, const char *source, Extent count, Extent readable, char *target,
                   Extent writable);
    // Copies whole lines of 64 bytes to an aligned target, past the caches where that can be had.
    void (*stream_lines)(char *target, const char *source, Extent bytes);
    // Gathers past the caches, where a step gives a whole line of an aligned target; null: there is none.
    void (*stream)(const GatherTable &table, const char *source, Extent count, Extent readable, char *target,
                   Extent writable);
    TakeApart take_apart;  // null: there is none
    TakeApartStreaming take_apart_streaming;
};

// The best that this processor has; all that it has, best first, for tests.
const InstructionSet &instruction_set();
const InstructionSet *const *instruction_sets();  // ends with null
void use_instruction_set(const InstructionSet &set);

}  // namespace splitops
