// Taking neighbouring short runs apart by transposing: the rows become the lanes of vectors. Here it is decided
// how; the instructions are in isa/.
#pragma once

#include <cstdint>

#include "copy/strided_copy.h"
#include "copy/strips.h"

namespace splitops {

// How up to 16 neighbouring runs of a row are taken apart together. A load of 16 bytes takes them from a few
// rows, and brings all runs of a part into one lane; as many loads as a vector has lanes are transposed, so
// that each part fills a vector.
struct LaneTable {
    static constexpr int kVector = 16;
    static constexpr int kMaxParts = 16;

    Extent pitch;  // bytes from row to row
    int parts;
    int lane;      // bytes: 1, 2, 4 or 8
    int rows;      // that one lane holds
    bool spreads;  // the bytes of a load are moved before
    bool packs;    // the lanes have gaps, which are closed after
    Extent run[kMaxParts];
    alignas(kVector) std::uint8_t spread[kVector];
    alignas(kVector) std::uint8_t pack[kMaxParts][kVector];
};

// A way to take runs apart, and what it costs: instructions a byte.
struct LaneChoice {
    int parts;
    int lane;
    int rows;
    double cost;
};

// The cheapest way to take apart some of the `count` runs that follow each other in rows of `pitch` bytes, the
// first of them included, and at least two. The cost is infinite where there is none.
LaneChoice choose_lanes(const Extent *runs, int count, Extent pitch);

void fill_table(const LaneChoice &choice, const Extent *runs, Extent pitch, LaneTable &table);

// Writes count * run bytes to each target, from `count` rows, of which the first has its first run at `source`.
// It may read `readable` bytes of the source.
using TakeApart = void (*)(const LaneTable &table, const char *source, Extent count, Extent readable,
                           char *const *targets);

// The same into strips, whose whole lines are written as they fill up; less than a line remains in each.
using TakeApartStreaming = void (*)(const LaneTable &table, const char *source, Extent count, Extent readable,
                                    Strip *strips, Ahead &ahead);

// A step takes up to two vectors of each part. Strips are flushed after so many steps: up to 16 of them share the
// first-level cache, so each brings half as much together.
constexpr Extent kHalves = 2;
constexpr Extent kLaneSteps = kStageBytes / 2 / (kHalves * LaneTable::kVector);
constexpr Extent kLaneStripBytes = kStageBytes / 2 + 2 * kLine;

}  // namespace splitops
