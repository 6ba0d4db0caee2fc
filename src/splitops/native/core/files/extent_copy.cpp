#include "files/extent_copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "copy/split_copy.h"
#include "files/crc32.h"
#include "isa/instruction_sets.h"

namespace splitops::files {
namespace {

constexpr Offset kLongRun = Offset{64} << 10;     // from this length on, a system call per run costs little
constexpr Offset kCacheBytes = Offset{128} << 10;  // moved at a time, so that source and target stay in the caches
constexpr Offset kPieceBytes = 1024;               // minimum for each target at a time
constexpr Offset kReadBytes = Offset{64} << 10;    // read from each source lane at a time
constexpr Offset kReadAtOnce = Offset{1} << 20;    // read from all source lanes at a time, if they are few
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr Offset kScattered = 512;                 // from this length on, the system scatters the runs
constexpr std::size_t kVectors = 1024;             // limit of Linux
constexpr std::size_t kManyFiles = 64;             // from this number on, files are synced at once
constexpr Offset kMostBytes = Offset{1} << 60;     // maximum of a block: more than any machine has
constexpr auto kTick = std::chrono::milliseconds(50);

// Whether a lane is read as one range of the file, with the gaps between its rows.
bool is_read_whole(const Lane &lane) {
    return lane.used == lane.stride || (lane.used < kLongRun && lane.used * 2 >= lane.stride);
}

Offset pitch_of_source(const Lane &lane) { return is_read_whole(lane) ? lane.stride : lane.used; }

// The lanes and moves of one pass.
struct Part {
    const Pass *pass;
    const Lane *sources, *targets;
    const Move *moves;
    std::size_t source_count, target_count, move_count;
    std::size_t first_source, first_target, first_move;
    std::size_t first_block, blocks;
    std::vector<bool> target_alone;  // for each target: whether one move fills it
    bool scattered = false;          // the system reads each byte into its target buffer
    std::vector<std::size_t> order;  // then: the moves, ordered by source and column
    Offset gap = 0;                  // then: the longest range that is read and not used
    Offset read_rows = 0;            // otherwise: read and moved at a time
    std::size_t bytes = 0;           // of the buffers of a block

    std::size_t source_of(const Move &move) const { return static_cast<std::size_t>(move.source_lane) - first_source; }
    std::size_t target_of(const Move &move) const { return static_cast<std::size_t>(move.target_lane) - first_target; }
};

// Whether no two moves read the same byte, and all are long: then no byte has to be moved in memory.
void find_scattered(Part &part) {
    Offset row = 0;
    for (std::size_t i = 0; i < part.move_count; ++i)
        row += part.moves[i].run;
    if (row / static_cast<Offset>(part.move_count) < kScattered)
        return;
    part.order.resize(part.move_count);
    std::iota(part.order.begin(), part.order.end(), 0);
    const auto place = [&](std::size_t i) { return std::pair(part.moves[i].source_lane, part.moves[i].source_column); };
    std::sort(part.order.begin(), part.order.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
    Offset end = 0;
    for (std::size_t i = 0; i < part.move_count; ++i) {
        const Move &move = part.moves[part.order[i]];
        const bool first = i == 0 || part.moves[part.order[i - 1]].source_lane != move.source_lane;
        const bool last = i + 1 == part.move_count || part.moves[part.order[i + 1]].source_lane != move.source_lane;
        const Offset before = first ? 0 : end;
        if (move.source_column < before)
            return;
        end = move.source_column + move.run;
        const Offset behind = last ? pitch_of_source(part.sources[part.source_of(move)]) - end : 0;
        part.gap = std::max({part.gap, move.source_column - before, behind});
    }
    part.scattered = true;
}

// Number of rows of a source that are moved at a time, so that both sides stay in the caches.
Offset rows_in_cache(const Part &part, Offset left) {
    Offset row = 0;
    for (std::size_t i = 0; i < part.source_count; ++i)
        row += pitch_of_source(part.sources[i]);
    const Offset piece = part.moves[0].run;  // the others are similar
    return std::clamp<Offset>(std::max(kCacheBytes / row, kPieceBytes / piece), 1, left);
}

// Number of rows of a block that are read at a time: all if there are many sources, otherwise few, for a small buffer.
Offset rows_of_read(const Part &part, Offset rows) {
    Offset row = 0;
    for (std::size_t i = 0; i < part.source_count; ++i)
        row += pitch_of_source(part.sources[i]);
    const Offset few = std::min(rows_in_cache(part, rows), kReadAtOnce / row);
    return std::clamp<Offset>(std::max(few, kReadBytes * static_cast<Offset>(part.source_count) / row), 1, rows);
}

struct Block {
    const Part *part;
    Offset first;
    Offset rows;
    std::size_t index;  // within the part
};

std::vector<Part> parts_of(const Work &work) {
    std::vector<Part> parts(work.passes.size());
    std::size_t s = 0, t = 0, m = 0, blocks = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        Part &part = parts[p];
        const Offset number = static_cast<Offset>(p);
        part.pass = &work.passes[p];
        part.first_source = s;
        part.first_target = t;
        part.first_move = m;
        while (s < work.sources.size() && work.sources[s].pass == number)
            ++s;
        while (t < work.targets.size() && work.targets[t].pass == number)
            ++t;
        while (m < work.moves.size() && work.moves[m].source_lane < static_cast<Offset>(s))
            ++m;
        part.sources = work.sources.data() + part.first_source;
        part.targets = work.targets.data() + part.first_target;
        part.moves = work.moves.data() + part.first_move;
        part.source_count = s - part.first_source;
        part.target_count = t - part.first_target;
        part.move_count = m - part.first_move;
        part.first_block = blocks;
        part.blocks = static_cast<std::size_t>((part.pass->rows - 1) / part.pass->block_rows + 1);
        blocks += part.blocks;

        part.target_alone.assign(part.target_count, false);
        for (std::size_t i = 0; i < part.move_count; ++i) {
            const std::size_t to = part.target_of(part.moves[i]);
            part.target_alone[to] = part.moves[i].run == part.targets[to].used;
        }
        find_scattered(part);
        const std::size_t rows = static_cast<std::size_t>(std::min(part.pass->rows, part.pass->block_rows));
        part.read_rows = rows_of_read(part, static_cast<Offset>(rows));
        for (std::size_t i = 0; !part.scattered && i < part.source_count; ++i)
            part.bytes += static_cast<std::size_t>(part.read_rows * pitch_of_source(part.sources[i]));
        for (std::size_t i = 0; i < part.target_count; ++i)
            part.bytes += rows * static_cast<std::size_t>(part.targets[i].used);
        part.bytes += part.scattered ? static_cast<std::size_t>(part.gap) : 0;
    }
    return parts;
}

class Copy {
  public:
    Copy(const Work &work, const std::function<bool(Offset)> &tick)
        : work_(work), tick_(tick), parts_(parts_of(work)) {
        for (const Part &part : parts_) {
            blocks_ += part.blocks;
            buffer_bytes_ = std::max(buffer_bytes_, part.bytes);
            widest_ = std::max({widest_, part.source_count, part.target_count});
        }
        checksums_.resize(work.moves.size());
        for (const Part &part : parts_)
            for (std::size_t i = 0; i < part.move_count; ++i)
                checksums_[part.first_move + i].resize(part.blocks);
    }

    Outcome run(int threads) {
        std::vector<Room> rooms(static_cast<std::size_t>(std::clamp<Offset>(threads, 1, std::max<Offset>(1, count()))));
        for (Room &room : rooms)
            room = Room(buffer_bytes_, widest_);
        std::vector<std::thread> others;
        others.reserve(rooms.size());
        try {
            for (std::size_t i = 1; i < rooms.size(); ++i)
                others.emplace_back([this, room = &rooms[i]] { work_on(*room, false); });
        } catch (const std::exception &) {
            // No more threads can be created: this one does the work.
        }
        work_on(rooms[0], true);
        for (std::thread &other : others)
            other.join();
        Outcome outcome;
        outcome.failure = failure_;
        if (!failure_ && !stop_)
            outcome.checksums = joined();
        return outcome;
    }

  private:
    // Buffers of one thread.
    struct Room {
        Room() = default;
        Room(std::size_t bytes, std::size_t widest) : sources(widest), targets(widest) {
            const std::size_t page = bytes < kLargePage ? 4096 : kLargePage, size = (bytes / page + 1) * page;
            data.reset(static_cast<char *>(std::aligned_alloc(page, size)));
            if (data == nullptr)
                throw std::bad_alloc();
#if defined(__linux__)
            if (page == kLargePage)
                ::madvise(data.get(), size, MADV_HUGEPAGE);  // 512 times fewer page faults; a failure is harmless
#endif
            gathered.resize(static_cast<std::size_t>(kCacheBytes));
        }
        struct Free {
            void operator()(char *data) const { std::free(data); }
        };
        std::unique_ptr<char, Free> data;
        std::vector<char> gathered;
        std::vector<char *> sources, targets;
        std::vector<SplitTarget> split;
        std::vector<iovec> vectors;
    };

    Offset count() const { return static_cast<Offset>(blocks_); }

    // Must not throw, because it runs on threads of its own.
    void work_on(Room &room, bool caller) noexcept {
        auto last = std::chrono::steady_clock::now();
        std::size_t part = 0;
        for (std::size_t i; !stop_ && (i = next_.fetch_add(1, std::memory_order_relaxed)) < blocks_;) {
            while (i >= parts_[part].first_block + parts_[part].blocks)
                ++part;
            const Part &found = parts_[part];
            const std::size_t index = i - found.first_block;
            const Offset first = static_cast<Offset>(index) * found.pass->block_rows;
            try {
                do_block({&found, first, std::min(found.pass->block_rows, found.pass->rows - first), index}, room);
            } catch (const std::bad_alloc &) {
                fail({false, found.sources[0].file, found.sources[0].base, ENOMEM});
            }
            if (caller && std::chrono::steady_clock::now() - last >= kTick) {
                if (!tick_(done_))
                    stop_ = true;
                last = std::chrono::steady_clock::now();
            }
        }
    }

    void do_block(const Block &block, Room &room) {
        const Part &part = *block.part;
        char *at = room.data.get();
        for (std::size_t i = 0; i < part.target_count; ++i) {
            room.targets[i] = at;
            at += block.rows * part.targets[i].used;
        }
        if (part.scattered ? !read_scattered(block, room, at) : !read_and_move(block, room, at))
            return;
        Offset bytes = 0;
        for (std::size_t i = 0; i < part.move_count; ++i) {
            checksums_[part.first_move + i][block.index] = checksum(part, i, block, room);
            bytes += part.moves[i].run * block.rows;
        }
        for (std::size_t i = 0; work_.writing && i < part.target_count; ++i)
            if (!write(part.targets[i], block, room.targets[i]))
                return;
        done_.fetch_add(bytes, std::memory_order_relaxed);
    }

    // Reads all rows directly into the target buffers. Unused bytes go to `unused`.
    bool read_scattered(const Block &block, Room &room, char *unused) {
        const Part &part = *block.part;
        for (std::size_t next = 0; next < part.move_count;) {
            const std::size_t begin = next, source = part.source_of(part.moves[part.order[begin]]);
            while (next < part.move_count && part.source_of(part.moves[part.order[next]]) == source)
                ++next;
            const Lane &lane = part.sources[source];
            const bool whole = is_read_whole(lane);
            room.vectors.clear();
            for (Offset row = 0; row < block.rows; ++row) {
                Offset end = 0;
                for (std::size_t i = begin; i < next; ++i) {
                    const Move &m = part.moves[part.order[i]];
                    const std::size_t to = part.target_of(m);
                    add(room.vectors, unused, m.source_column - end);
                    add(room.vectors, room.targets[to] + row * part.targets[to].used + m.target_column, m.run);
                    end = m.source_column + m.run;
                }
                if (whole && row + 1 < block.rows)
                    add(room.vectors, unused, lane.stride - end);
                else if (!read_vectors(lane, lane.base + (block.first + (whole ? 0 : row)) * lane.stride, room.vectors))
                    return false;
            }
        }
        return true;
    }

    // Adds a destination, and merges it with the previous one if they are adjacent.
    static void add(std::vector<iovec> &vectors, char *to, Offset bytes) {
        const std::size_t size = static_cast<std::size_t>(bytes);
        if (!vectors.empty() && static_cast<char *>(vectors.back().iov_base) + vectors.back().iov_len == to)
            vectors.back().iov_len += size;
        else if (size > 0)
            vectors.push_back({to, size});
    }

    // Reads consecutive bytes into the destinations, and then clears the list of these.
    bool read_vectors(const Lane &lane, Offset at, std::vector<iovec> &vectors) {
        const int file = work_.source_files[static_cast<std::size_t>(lane.file)];
        for (std::size_t i = 0; i < vectors.size();) {
            const int count = static_cast<int>(std::min(kVectors, vectors.size() - i));
            const ssize_t got = ::preadv(file, &vectors[i], count, at);
            if (got <= 0) {
                if (got < 0 && errno == EINTR)
                    continue;
                return fail({false, lane.file, at, got < 0 ? errno : 0});
            }
            at += got;
            std::size_t left = static_cast<std::size_t>(got);
            for (; i < vectors.size() && left >= vectors[i].iov_len; ++i)
                left -= vectors[i].iov_len;
            if (left > 0) {
                vectors[i].iov_base = static_cast<char *>(vectors[i].iov_base) + left;
                vectors[i].iov_len -= left;
            }
        }
        vectors.clear();
        return true;
    }

    bool read_and_move(const Block &block, Room &room, char *at) {
        const Part &part = *block.part;
        for (std::size_t i = 0; i < part.source_count; ++i) {
            room.sources[i] = at;
            at += part.read_rows * pitch_of_source(part.sources[i]);
        }
        for (Offset done = 0; done < block.rows; done += part.read_rows) {
            const Offset rows = std::min(part.read_rows, block.rows - done);
            const Block some{&part, block.first + done, rows, block.index};
            for (std::size_t i = 0; i < part.source_count; ++i)
                if (!read(part.sources[i], some, room.sources[i]))
                    return false;
            move(some, done, room);
        }
        return true;
    }

    bool read(const Lane &lane, const Block &block, char *to) {
        const Offset at = lane.base + block.first * lane.stride;
        if (is_read_whole(lane))
            return read_stretch(lane, at, (block.rows - 1) * lane.stride + lane.used, to);
        for (Offset row = 0; row < block.rows; ++row)
            if (!read_stretch(lane, at + row * lane.stride, lane.used, to + row * lane.used))
                return false;
        return true;
    }

    bool read_stretch(const Lane &lane, Offset at, Offset bytes, char *to) {
        const int file = work_.source_files[static_cast<std::size_t>(lane.file)];
        while (bytes > 0) {
            const ssize_t got = ::pread(file, to, static_cast<std::size_t>(bytes), at);
            if (got <= 0) {
                if (got < 0 && errno == EINTR)
                    continue;
                return fail({false, lane.file, at, got < 0 ? errno : 0});
            }
            to += got;
            at += got;
            bytes -= got;
        }
        return true;
    }

    bool write(const Lane &lane, const Block &block, const char *from) {
        const Offset at = lane.base + block.first * lane.stride;
        if (lane.stride == lane.used)
            return write_stretch(lane, at, block.rows * lane.used, from);
        for (Offset row = 0; row < block.rows; ++row)
            if (!write_stretch(lane, at + row * lane.stride, lane.used, from + row * lane.used))
                return false;
        return true;
    }

    bool write_stretch(const Lane &lane, Offset at, Offset bytes, const char *from) {
        const int file = work_.target_files[static_cast<std::size_t>(lane.file)];
        while (bytes > 0) {
            const ssize_t put = ::pwrite(file, from, static_cast<std::size_t>(bytes), at);
            if (put < 0) {
                if (errno == EINTR)
                    continue;
                return fail({true, lane.file, at, errno});
            }
            from += put;
            at += put;
            bytes -= put;
        }
        return true;
    }

    bool fail(Failure failure) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!failure_)
            failure_ = failure;
        stop_ = true;
        return false;
    }

    // Moves the rows that were read to the next rows of the targets.
    void move(const Block &block, Offset done, Room &room) {
        const Part &part = *block.part;
        const bool split = part.source_count == 1 && part.target_count == part.move_count;
        for (Offset first = 0; first < block.rows;) {
            const Offset rows = rows_in_cache(part, block.rows - first);
            if (split)
                split_rows(part, first, done + first, rows, room);
            for (std::size_t i = 0; !split && i < part.move_count; ++i) {
                const Move &m = part.moves[i];
                const std::size_t from = part.source_of(m), to = part.target_of(m);
                const Offset pitch = pitch_of_source(part.sources[from]), used = part.targets[to].used;
                instruction_set().copy_runs({room.targets[to] + (done + first) * used + m.target_column, used,
                                             room.sources[from] + first * pitch + m.source_column, pitch, m.run,
                                             rows});
            }
            first += rows;
        }
    }

    // Each part of a row goes to its own target: uses the kernels of array splits.
    void split_rows(const Part &part, Offset first, Offset to_first, Offset rows, Room &room) {
        const Offset pitch = pitch_of_source(part.sources[0]);
        room.split.clear();
        for (std::size_t i = 0; i < part.move_count; ++i) {
            const Move &m = part.moves[i];
            room.split.push_back({room.targets[part.target_of(m)] + to_first * m.run, m.source_column, m.run, nullptr});
        }
        const Extent shape[] = {rows, pitch}, strides[] = {pitch, 1};
        split_copy({room.sources[0] + first * pitch, 2, shape, strides, 1, 1}, room.split.data(), room.split.size(),
                   false, false);
    }

    std::uint32_t checksum(const Part &part, std::size_t i, const Block &block, Room &room) {
        const Move &m = part.moves[i];
        const std::size_t to = part.target_of(m);
        const Offset used = part.targets[to].used;
        if (part.target_alone[to])
            return crc32(0, room.targets[to], static_cast<std::size_t>(block.rows * m.run));
        const char *first = room.targets[to] + m.target_column;
        std::uint32_t crc = 0;
        if (m.run >= 1024) {
            for (Offset row = 0; row < block.rows; ++row)
                crc = crc32(crc, first + row * used, static_cast<std::size_t>(m.run));
            return crc;
        }
        for (Offset row = 0; row < block.rows;) {
            const Offset rows = std::min(block.rows - row, kCacheBytes / m.run);
            instruction_set().copy_runs({room.gathered.data(), m.run, first + row * used, used, m.run, rows});
            crc = crc32(crc, room.gathered.data(), static_cast<std::size_t>(rows * m.run));
            row += rows;
        }
        return crc;
    }

    std::vector<std::uint32_t> joined() const {
        std::vector<std::uint32_t> result(checksums_.size());
        for (const Part &part : parts_) {
            const Offset last = part.pass->rows - static_cast<Offset>(part.blocks - 1) * part.pass->block_rows;
            for (std::size_t i = 0; i < part.move_count; ++i) {
                const std::vector<std::uint32_t> &of_blocks = checksums_[part.first_move + i];
                const std::uint64_t run = static_cast<std::uint64_t>(part.moves[i].run);
                std::uint32_t crc = of_blocks[0];
                if (of_blocks.size() > 1) {
                    const CrcJoin whole(run * static_cast<std::uint64_t>(part.pass->block_rows));
                    for (std::size_t b = 1; b + 1 < of_blocks.size(); ++b)
                        crc = whole(crc, of_blocks[b]);
                    crc = CrcJoin(run * static_cast<std::uint64_t>(last))(crc, of_blocks.back());
                }
                result[part.first_move + i] = crc;
            }
        }
        return result;
    }

    const Work &work_;
    const std::function<bool(Offset)> &tick_;
    const std::vector<Part> parts_;
    std::size_t blocks_ = 0, buffer_bytes_ = 0, widest_ = 0;
    std::vector<std::vector<std::uint32_t>> checksums_;  // of each move, for each block
    std::atomic<std::size_t> next_{0};
    std::atomic<Offset> done_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::optional<Failure> failure_;
};

bool overflows(const Lane &lane, const Pass &pass) {
    Offset last;
    return __builtin_mul_overflow(pass.rows, lane.stride, &last) || __builtin_add_overflow(last, lane.base, &last) ||
           __builtin_add_overflow(last, lane.used, &last);
}

const char *problem_of_lanes(const std::vector<Lane> &lanes, const std::vector<Pass> &passes, std::size_t files,
                             std::vector<Offset> *counts) {
    Offset before = 0;
    for (const Lane &lane : lanes) {
        if (lane.pass < before || lane.pass >= static_cast<Offset>(passes.size()))
            return "the lanes are not in the order of the passes";
        if (lane.file < 0 || lane.file >= static_cast<Offset>(files))
            return "a lane has no file";
        if (lane.base < 0 || lane.used < 1 || lane.stride < lane.used ||
            overflows(lane, passes[static_cast<std::size_t>(lane.pass)]))
            return "a lane is outside of any file";
        before = lane.pass;
        ++(*counts)[static_cast<std::size_t>(lane.pass)];
    }
    return nullptr;
}

// Whether the sums of bytes and rows of all blocks do not overflow. Those of a single lane do not.
bool fits(const Work &work) {
    Offset bytes = 0, blocks = 0;
    for (const auto *lanes : {&work.sources, &work.targets})
        for (const Lane &lane : *lanes) {
            const Pass &pass = work.passes[static_cast<std::size_t>(lane.pass)];
            if (__builtin_add_overflow(bytes, std::min(pass.rows, pass.block_rows) * lane.stride, &bytes))
                return false;
        }
    for (const Pass &pass : work.passes)
        if (__builtin_add_overflow(blocks, (pass.rows - 1) / pass.block_rows + 1, &blocks))
            return false;
    return bytes <= kMostBytes && blocks <= kMostBytes;
}

}  // namespace

const char *problem_of(const Work &work) {
    for (const Pass &pass : work.passes)
        if (pass.rows < 1 || pass.block_rows < 1)
            return "a pass has no rows";
    std::vector<Offset> sources(work.passes.size()), targets(work.passes.size());
    if (const char *problem = problem_of_lanes(work.sources, work.passes, work.source_files.size(), &sources))
        return problem;
    const std::size_t files = work.writing ? work.target_files.size() : static_cast<std::size_t>(INT64_MAX);
    if (const char *problem = problem_of_lanes(work.targets, work.passes, files, &targets))
        return problem;
    if (!fits(work))
        return "a block is larger than any memory";
    std::vector<Offset> filled(work.targets.size());
    Offset before = 0;
    for (const Move &move : work.moves) {
        if (move.source_lane < 0 || move.source_lane >= static_cast<Offset>(work.sources.size()) ||
            move.target_lane < 0 || move.target_lane >= static_cast<Offset>(work.targets.size()))
            return "a move has no lane";
        const Lane &source = work.sources[static_cast<std::size_t>(move.source_lane)];
        const Lane &target = work.targets[static_cast<std::size_t>(move.target_lane)];
        if (source.pass != target.pass || source.pass < before)
            return "the moves are not in the order of the passes";
        if (move.run < 1 || move.source_column < 0 || move.source_column > source.used - move.run ||
            move.target_column < 0 || move.target_column > target.used - move.run)
            return "a move is outside of its lanes";
        // The moves of a lane are in the order of its columns and leave no gap, so everything that is written was read.
        Offset &end = filled[static_cast<std::size_t>(move.target_lane)];
        if (move.target_column != end)
            return "the moves of a target leave a gap";
        end += move.run;
        before = source.pass;
    }
    for (std::size_t i = 0; i < filled.size(); ++i)
        if (filled[i] != work.targets[i].used)
            return "the moves of a target leave a gap";
    for (std::size_t i = 0; i < work.passes.size(); ++i)
        if (sources[i] == 0 || targets[i] == 0)
            return "a pass has no lanes";
    return nullptr;
}

Outcome copy_extents(const Work &work, int threads, const std::function<bool(Offset)> &tick) {
    return Copy(work, tick).run(threads);
}

int sync_files(const std::vector<int> &files) {
#if defined(__linux__)
    if (files.size() > kManyFiles)
        return ::syncfs(files[0]) == 0 ? 0 : errno;
#endif
    for (const int file : files)
        if (::fsync(file) != 0)
            return errno;
    return 0;
}

}  // namespace splitops::files
