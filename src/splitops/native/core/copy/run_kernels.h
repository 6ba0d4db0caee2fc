// Kernels that take rows of bytes apart into runs: one run a part and row.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "isa/instruction_sets.h"
#include "copy/strided_copy.h"
#include "copy/strips.h"

namespace splitops {

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
    // Neighbouring parts that are copied together.
    struct Group {
        std::size_t begin, end;  // parts
        const LaneTable *lanes;  // null: one part after the other
    };
    // Neighbouring groups whose bytes are brought into the cache together; if packed, into a buffer in which
    // only their bytes of each row follow each other.
    struct Block {
        std::size_t begin, end;  // groups
        Extent source;           // first byte within a row
        Extent span;             // bytes of a row that the parts cover
        bool packed;
    };
    // Rows as a kernel finds them: `origin` bytes of each row of the source are skipped.
    struct Window {
        const char *data;
        Extent pitch;
        Extent origin;
        Extent readable;  // bytes from `data` on
    };

    struct Scratch;  // memory of a thread for one call

    // How the tiles of one call go on: what to fetch meanwhile, and a carry a part, null without.
    struct Progress {
        Ahead ahead;
        Carry *carries;
        bool last;  // no further tile follows
    };

    void add_block(std::size_t begin, std::size_t end, Extent source, Extent span, bool packed);
    std::size_t add_group(std::size_t begin, std::size_t end, Extent pitch, Extent origin, std::size_t back);
    void add_gather(std::size_t part, Extent pitch, Extent origin, std::size_t back);
    void copy_group(const Group &group, const Window &window, Extent first, Extent count, Scratch &scratch,
                    Progress &progress, Carry *carries) const;
    void copy_part(std::size_t index, const Window &window, Extent first, Extent count, Scratch &scratch,
                   Progress &progress, Carry *carry) const;

    const std::vector<RowPart> &parts_;
    Extent source_pitch_;
    Extent rows_;
    bool stream_;
    Extent tile_rows_;
    Extent first_byte_;   // of a row that a part covers
    bool dense_ = false;  // the parts cover whole rows, and a tile of them fits into the cache
    std::vector<Block> blocks_;
    std::vector<Group> groups_;
    std::vector<const GatherTable *> gathers_;  // one a part; null: copied run by run
    std::vector<std::unique_ptr<GatherTable>> gather_tables_;
    std::vector<std::unique_ptr<LaneTable>> lane_tables_;
};

}  // namespace splitops
