#include "copy/lanes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace splitops {
namespace {

constexpr Extent kVector = LaneTable::kVector;

// Instructions per byte.
double cost(const Extent *runs, int parts, Extent span, int lane, Extent rows) {
    bool spreads = rows > 1, packs = false;
    for (int i = 0; i < parts; ++i) {
        packs |= rows * runs[i] < lane;
        spreads |= runs[i] != lane && i + 1 < parts;
    }
    const unsigned vectors = static_cast<unsigned>(kVector / lane);
    const double lanes = static_cast<double>(vectors);
    const double loads = lanes * (kHalves + (spreads ? 1 : 0));
    const double transposition = lanes * (std::bit_width(vectors) - 1);
    const double stores = parts * (packs ? 4 : 1);
    return (loads + transposition + stores) / (static_cast<double>(kHalves * rows * span) * lanes);
}

}  // namespace

LaneChoice choose_lanes(const Extent *runs, int count, Extent pitch) {
    LaneChoice best{0, 0, 0, std::numeric_limits<double>::infinity()};
    Extent span = runs[0], longest = runs[0];
    for (int parts = 2; parts <= std::min(count, LaneTable::kMaxParts); ++parts) {
        span += runs[parts - 1];
        longest = std::max(longest, runs[parts - 1]);
        // A power of two, so that steps fill lines and tiles.
        for (Extent rows = 1; rows <= kVector && (rows - 1) * pitch + span <= kVector; rows *= 2)
            for (int lane = 1; lane < kVector && lane * parts <= kVector; lane *= 2) {
                if (lane < rows * longest)
                    continue;
                const double price = cost(runs, parts, span, lane, rows);
                if (price < best.cost)
                    best = {parts, lane, static_cast<int>(rows), price};
            }
    }
    return best;
}

void fill_table(const LaneChoice &choice, const Extent *runs, Extent pitch, LaneTable &t) {
    t.pitch = pitch;
    t.parts = choice.parts;
    t.lane = choice.lane;
    t.rows = choice.rows;
    t.spreads = t.packs = false;
    std::memset(t.spread, 0x80, sizeof t.spread);  // an index with the top bit set gives zero
    std::memset(t.pack, 0x80, sizeof t.pack);
    Extent begin = 0;
    for (int i = 0; i < t.parts; ++i) {
        const Extent run = t.run[i] = runs[i];
        const Extent held = t.rows * run;
        for (Extent byte = 0; byte < held; ++byte) {
            const Extent from = byte / run * pitch + begin + byte % run;
            t.spread[i * t.lane + byte] = static_cast<std::uint8_t>(from);
            t.spreads |= from != i * t.lane + byte;
        }
        for (Extent byte = 0; byte < held * (kVector / t.lane); ++byte)
            t.pack[i][byte] = static_cast<std::uint8_t>(byte / held * t.lane + byte % held);
        t.packs |= held != t.lane;
        begin += run;
    }
}

}  // namespace splitops
