// Copies extents between files: equally spaced rows of bytes are read from sources, rearranged in memory if necessary,
// and written equally spaced to targets. It only knows integers and file descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace splitops::files {

using Offset = std::int64_t;

// Row r of a lane is `used` bytes at `base + r * stride` of one file. Every lane belongs to one pass.
struct Lane {
    Offset pass;
    Offset file;  // index of the descriptor
    Offset base;
    Offset used;
    Offset stride;
};

// In every row of a pass: copies `run` bytes from a column of a source lane to a column of a target lane.
struct Move {
    Offset source_lane;
    Offset source_column;
    Offset target_lane;
    Offset target_column;
    Offset run;
};

// Rows that are read, moved and written together, one block at a time.
struct Pass {
    Offset rows;
    Offset block_rows;
};

struct Work {
    std::vector<Pass> passes;
    std::vector<Lane> sources;  // ordered by pass
    std::vector<Lane> targets;  // ordered by pass; their moves fill every row
    std::vector<Move> moves;    // ordered by pass
    std::vector<int> source_files;
    std::vector<int> target_files;
    bool writing = true;  // false: only compute checksums
};

// The first failure. `error` is an errno, or 0 if a source ended early.
struct Failure {
    bool writing;
    Offset file;
    Offset offset;
    int error;
};

struct Outcome {
    std::vector<std::uint32_t> checksums;  // CRC-32 of the bytes of each move, row after row
    std::optional<Failure> failure;
};

// Returns why the work is inconsistent, or null.
const char *problem_of(const Work &work);

// Executes consistent work on `threads` threads, including the caller's, which calls `tick` repeatedly with the number
// of bytes that are done. If it returns false, the copy stops. Throws std::bad_alloc.
Outcome copy_extents(const Work &work, int threads, const std::function<bool(Offset)> &tick);

// Flushes files to disk one by one or, if there are many, their whole file system at once. Returns 0 or an errno.
int sync_files(const std::vector<int> &files);

}  // namespace splitops::files
