// Copies extents between files: rows of bytes that lie equally spaced in the sources are read, moved in memory
// where they must be, and written equally spaced into the targets. Integers and file descriptors, nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace splitops::files {

using Offset = std::int64_t;

// Row r of a lane: `used` bytes at `base + r * stride` of one file. Every lane belongs to one pass.
struct Lane {
    Offset pass;
    Offset file;  // its position among the descriptors
    Offset base;
    Offset used;
    Offset stride;
};

// In every row of a pass: `run` bytes from one place in a lane that is read to one in a lane that is written.
struct Move {
    Offset source_lane;
    Offset source_column;
    Offset target_lane;
    Offset target_column;
    Offset run;
};

// Rows that are read, moved and written together, so many at a time.
struct Pass {
    Offset rows;
    Offset block_rows;
};

struct Work {
    std::vector<Pass> passes;
    std::vector<Lane> sources;  // in the order of the passes
    std::vector<Lane> targets;  // the same; their moves fill every row
    std::vector<Move> moves;    // the same
    std::vector<int> source_files;
    std::vector<int> target_files;
    bool writing = true;  // false: the bytes are read for their checksums alone
};

// What went wrong first; `error` is an errno, or 0 where a source ended too early.
struct Failure {
    bool writing;
    Offset file;
    Offset offset;
    int error;
};

struct Outcome {
    std::vector<std::uint32_t> checksums;  // of each move: the CRC-32 of its bytes, row after row
    std::optional<Failure> failure;
};

// Why the work is not consistent in itself; null where it is.
const char *problem_of(const Work &work);

// Does work that has no problem, on `threads` threads, the caller's included. `tick` is called by the caller's thread
// now and then with the bytes that are done so far; false from it ends the copy early. Throws std::bad_alloc.
Outcome copy_extents(const Work &work, int threads, const std::function<bool(Offset)> &tick);

// Makes the data of files durable: one by one, or their whole file system at once where they are many. 0 or an errno.
int sync_files(const std::vector<int> &files);

}  // namespace splitops::files
