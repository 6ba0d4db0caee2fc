// Gathers short runs with byte shuffles: the same few bytes of each row, from rows of a small pitch.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "copy/strided_copy.h"

namespace splitops {

// Shuffles that select the first `run` bytes of each row of `pitch` bytes. One step reads `loads` vectors from the
// start of a row and produces the runs of `rows` rows, packed.
struct GatherTable {
    static constexpr int kMaxLoads = 16;

    Extent run, pitch;
    int rows, loads;
    alignas(64) std::uint8_t index[kMaxLoads][64];
    std::uint64_t mask[kMaxLoads];  // bytes of the result that come from these loads
};

// Instructions per byte; kNever if such runs cannot be gathered.
using GatherCost = double (*)(Extent run, Extent pitch);
constexpr double kNever = std::numeric_limits<double>::infinity();

using PrepareGather = void (*)(Extent run, Extent pitch, GatherTable &table);

// Writes count * run bytes to `target`, from `count` rows at `source`. It may read `readable` bytes of the source and
// overwrite `writable` bytes of the target. Both are at least what the runs need.
using Gather = void (*)(const GatherTable &table, const char *source, Extent count, Extent readable, char *target,
                        Extent writable);

// Number of vectors that a step reads for the runs of some rows.
constexpr Extent gather_loads(Extent vector, Extent run, Extent pitch, Extent rows) {
    return ((rows - 1) * pitch + run + vector - 1) / vector;
}

// Fills everything except the shuffles. Calls place(i, from) with the source byte of each byte of the result.
template <class Place>
void prepare_gather(Extent vector, Extent run, Extent pitch, Extent rows, GatherTable &t, Place place) {
    t.run = run;
    t.pitch = pitch;
    t.rows = static_cast<int>(rows);
    t.loads = static_cast<int>(gather_loads(vector, run, pitch, rows));
    for (Extent i = 0; i < rows * run; ++i)
        place(static_cast<int>(i), static_cast<int>(i / run * pitch + i % run));
}

// Returns the kernel for a number of loads: make(n) returns that of the constant n.
template <class Make, int... Count>
constexpr std::array<Gather, sizeof...(Count)> each_count(Make make, std::integer_sequence<int, Count...>) {
    return {make(std::integral_constant<int, Count + 1>())...};
}

template <class Make>
constexpr std::array<Gather, GatherTable::kMaxLoads> each_count(Make make) {
    return each_count(make, std::make_integer_sequence<int, GatherTable::kMaxLoads>());
}

}  // namespace splitops
