// Gathering short runs with byte shuffles: from rows of a small pitch, the same few bytes of each row.
#pragma once

#include <cstdint>

#include "copy/strided_copy.h"

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

// The instructions that a byte costs; infinite where such runs cannot be gathered.
using GatherCost = double (*)(Extent run, Extent pitch, Extent offset);

using PrepareGather = void (*)(Extent run, Extent pitch, Extent offset, GatherTable &table);

// Writes count * run bytes to `target`, from `count` rows at `source`. It may read `readable` bytes of the source,
// and may overwrite `writable` bytes of the target, both at least what the runs need.
using Gather = void (*)(const GatherTable &table, const char *source, Extent count, Extent readable, char *target,
                        Extent writable);

#if defined(__x86_64__)
double gather_cost_avx512(Extent run, Extent pitch, Extent offset);
void prepare_gather_avx512(Extent run, Extent pitch, Extent offset, GatherTable &table);
void gather_avx512(const GatherTable &, const char *, Extent, Extent, char *, Extent);
void gather_streaming_avx512(const GatherTable &, const char *, Extent, Extent, char *, Extent);
#endif

#if defined(__x86_64__) || defined(__aarch64__)
// With shuffles of 16 bytes: AVX2 or Neon.
double gather_cost_shuffle(Extent run, Extent pitch, Extent offset);
void prepare_gather_shuffle(Extent run, Extent pitch, Extent offset, GatherTable &table);
void gather_shuffle(const GatherTable &, const char *, Extent, Extent, char *, Extent);
#endif

}  // namespace splitops
