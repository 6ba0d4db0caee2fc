// Kernels that divide rows of bytes into runs: one run per part and row.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "isa/instruction_sets.h"
#include "copy/strided_copy.h"
#include "copy/strips.h"

namespace splitops {

// Minimum bytes of a part to write in one range, if possible. Longer ranges are not faster. Runs of this length are
// written one by one.
constexpr Extent kStretchBytes = 16 * kLine;

struct RowPart {
    char *target;   // of row 0
    Extent pitch;   // bytes between the rows of the target
    Extent source;  // bytes from the start of a source row
    Extent run;     // bytes, > 0
};

// A memcpy without a function call for a few bytes. With `stream`, the target bypasses the caches.
void copy_bytes(char *target, const char *source, Extent bytes, bool stream);

// Makes streamed bytes visible to other threads. Called once, after the last of them.
void finish_streaming();

// Short runs: rows are copied in tiles, and within a tile part by part, so that both sides are accessed in long ranges
// while the tile of the source stays in the cache.
class RunPlan {
  public:
    // `rows`: number of rows that will be copied in total, `source_pitch` bytes apart.
    RunPlan(const std::vector<RowPart> &parts, Extent source_pitch, Extent rows, bool stream);

    Extent tile_rows() const { return tile_rows_; }

    // Copies rows [first, first + count) of parts [begin, end). Row `first` begins at `source`.
    void copy(const char *source, Extent first, Extent count, std::size_t begin, std::size_t end) const;

    // The first place at or after `part` at which tasks can be divided.
    std::size_t boundary(std::size_t part) const;

  private:
    // Adjacent parts that are separated together, or a single part.
    struct Group {
        std::size_t begin, end;  // parts
        const LaneTable *lanes;  // null: a single part
        const GatherTable *gather;  // null: its runs are copied one by one
    };
    // Adjacent groups whose bytes of a tile are prefetched together.
    struct Block {
        std::size_t begin, end;  // groups
        Extent source;           // first byte within a row
        Extent span;             // bytes of a row that the parts cover
    };
    // The rows of a tile.
    struct Tile {
        const char *data;  // first row
        Extent first;      // number of the first row
        Extent count;
        Extent readable;  // bytes from `data` on
    };

    struct Scratch;  // memory of a thread for one call

    // State between the tiles of one call: what to prefetch, and a carry per part, or null.
    struct Progress {
        Ahead ahead;
        Carry *carries;
        bool last;  // this is the last tile
    };

    void make_groups();
    Group group_at(std::size_t begin);
    const LaneTable *lanes_for(std::size_t begin);
    const GatherTable *gather_for(const RowPart &part);
    void make_blocks();
    void copy_group(const Group &group, const Tile &tile, Scratch &scratch, Progress &progress, Carry *carries) const;
    void copy_part(const Group &group, const Tile &tile, Scratch &scratch, Progress &progress, Carry *carry) const;

    const std::vector<RowPart> &parts_;
    Extent source_pitch_;
    Extent rows_;
    bool stream_;
    Extent first_byte_, last_byte_;  // first and past-the-end byte of a row that the parts cover
    Extent tile_rows_;
    bool dense_;  // tiles are prefetched whole, and fit into the cache
    std::vector<Block> blocks_;
    std::vector<Group> groups_;
    std::vector<std::unique_ptr<GatherTable>> gather_tables_;
    std::vector<std::unique_ptr<LaneTable>> lane_tables_;
};

}  // namespace splitops
