// Kernels that take rows of bytes apart into runs: one run a part and row.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "isa/instruction_sets.h"
#include "copy/strided_copy.h"
#include "copy/strips.h"

namespace splitops {

// Bytes of a part that are written in one stretch, at least, if it can be; more gain nothing. Runs of so many are
// stretches by themselves.
constexpr Extent kStretchBytes = 16 * kLine;

struct RowPart {
    char *target;   // of row 0
    Extent pitch;   // bytes between the rows of the target
    Extent source;  // bytes from the start of a source row
    Extent run;     // bytes, > 0
};

// A memcpy that costs no function call for a few bytes. With `stream` the target bypasses the caches.
void copy_bytes(char *target, const char *source, Extent bytes, bool stream);

// Makes streamed bytes visible to other threads; once, after the last of them.
void finish_streaming();

// Short runs: rows are copied in tiles, and within a tile one part after the other, so that both sides
// are walked in long stretches while the tile's source stays in the cache.
class RunPlan {
  public:
    // `rows`: how many will be copied in all, `source_pitch` bytes apart.
    RunPlan(const std::vector<RowPart> &parts, Extent source_pitch, Extent rows, bool stream);

    Extent tile_rows() const { return tile_rows_; }

    // Copies rows [first, first + count) of parts [begin, end): the row `first` begins at `source`.
    void copy(const char *source, Extent first, Extent count, std::size_t begin, std::size_t end) const;

    // Where parts can be cut for tasks of their own: the nearest such place from `part` on.
    std::size_t boundary(std::size_t part) const;

  private:
    // Neighbouring parts that are taken apart together, or one part.
    struct Group {
        std::size_t begin, end;  // parts
        const LaneTable *lanes;  // null: it is one part
        const GatherTable *gather;  // null: its runs are copied one by one
    };
    // Neighbouring groups whose bytes of a tile are fetched together.
    struct Block {
        std::size_t begin, end;  // groups
        Extent source;           // first byte within a row
        Extent span;             // bytes of a row that the parts cover
    };
    // The rows of a tile.
    struct Tile {
        const char *data;  // of the first row
        Extent first;      // its number
        Extent count;
        Extent readable;  // bytes from `data` on
    };

    struct Scratch;  // memory of a thread for one call

    // How the tiles of one call go on: what to fetch meanwhile, and a carry a part, null without.
    struct Progress {
        Ahead ahead;
        Carry *carries;
        bool last;  // no further tile follows
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
    Extent first_byte_, last_byte_;  // of a row that the parts cover, and behind
    Extent tile_rows_;
    bool dense_;  // tiles are fetched whole, and fit into the cache
    std::vector<Block> blocks_;
    std::vector<Group> groups_;
    std::vector<std::unique_ptr<GatherTable>> gather_tables_;
    std::vector<std::unique_ptr<LaneTable>> lane_tables_;
};

}  // namespace splitops
