// Separates adjacent short runs by transposing: rows become lanes of vectors. This file decides how; the instructions
// are in isa/.
#pragma once

#include <cstdint>

#include "copy/strided_copy.h"
#include "copy/strips.h"

namespace splitops {

// How up to 16 adjacent runs of a row are separated together. A load of 16 bytes reads them from a few rows and moves
// all runs of a part into one lane. As many loads as a vector has lanes are transposed, so that each part fills a
// vector.
struct LaneTable {
    static constexpr int kVector = 16;
    static constexpr int kMaxParts = 16;

    Extent pitch;  // bytes from row to row
    int parts;
    int lane;      // bytes: 1, 2, 4 or 8
    int rows;      // per lane
    bool spreads;  // the bytes of a load are moved first
    bool packs;    // the lanes have gaps, which are closed afterwards
    Extent run[kMaxParts];
    alignas(kVector) std::uint8_t spread[kVector];
    alignas(kVector) std::uint8_t pack[kMaxParts][kVector];
};

// A way to separate runs, and its cost in instructions per byte.
struct LaneChoice {
    int parts;
    int lane;
    int rows;
    double cost;
};

// Finds the cheapest way to separate at least two of the `count` runs that follow each other in rows of `pitch` bytes,
// including the first. The cost is infinite if there is none.
LaneChoice choose_lanes(const Extent *runs, int count, Extent pitch);

void fill_table(const LaneChoice &choice, const Extent *runs, Extent pitch, LaneTable &table);

// Writes count * run bytes to each target, from `count` rows. The first run of the first row is at `source`. It may
// read `readable` bytes of the source.
using TakeApart = void (*)(const LaneTable &table, const char *source, Extent count, Extent readable,
                           char *const *targets);

// The same into strips, whose whole lines are written when they are full. Less than a line remains in each.
using TakeApartStreaming = void (*)(const LaneTable &table, const char *source, Extent count, Extent readable,
                                    Strip *strips, Ahead &ahead);

// A step produces up to two vectors per part. Strips are flushed after this number of steps: up to 16 of them share the
// first-level cache, so each collects half as much.
constexpr Extent kHalves = 2;
constexpr Extent kLaneSteps = kStageBytes / 2 / (kHalves * LaneTable::kVector);
constexpr Extent kLaneStripBytes = kStageBytes / 2 + 2 * kLine;

}  // namespace splitops
