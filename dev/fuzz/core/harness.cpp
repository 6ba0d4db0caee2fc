// The native core without Python, for libFuzzer: what it copies is held against a loop over the elements, and
// tables that nobody checked are rejected or done. `python -m dev.fuzz core` builds and runs it; with -DREPLAY it
// reads the files that it is given.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

#include "copy/split_copy.h"
#include "copy/thread_pool.h"
#include "draw.h"
#include "files/crc32.h"
#include "files/extent_copy.h"
#include "isa/instruction_sets.h"
#include "memory/memory_pool.h"

namespace splitops::fuzz {
namespace {

constexpr Extent kMost = Extent{1} << 14;  // elements of an array
bool g_spoils = false;  // a byte of each result, so that the comparison must see it

void draw_machine(Draw &draw) {
    const auto sets = instruction_sets();
    use_instruction_set(sets[static_cast<std::size_t>(draw.upto(static_cast<Extent>(sets.size()) - 1))]);
    set_thresholds({draw.yes() ? 1 : Extent{1} << 60, draw.yes() ? 1 : Extent{1} << 60});
    thread_pool::set_threads(1 + static_cast<int>(draw.upto(2)));
}

std::vector<Extent> draw_shape(Draw &draw) {
    std::vector<Extent> shape(1 + static_cast<std::size_t>(draw.upto(4)));
    Extent elements = 1;
    for (Extent &extent : shape) {
        const Extent most[] = {5, 20, 255, 2000};
        extent = std::min(draw.upto(most[draw.upto(3)]), kMost / elements);
        elements *= std::max<Extent>(extent, 1);
    }
    return shape;
}

Extent draw_item(Draw &draw) {
    const Extent sizes[] = {1, 2, 4, 8, 16, 3, 12, 1 + draw.upto(40)};
    return sizes[draw.upto(7)];
}

// Parts anywhere along an axis, into arrays of any layout.
void split(Draw &draw) {
    draw_machine(draw);
    const Layout source(draw_shape(draw), draw_item(draw), draw, true);
    const int axis = static_cast<int>(draw.upto(static_cast<Extent>(source.shape.size()) - 1));
    const Extent length = source.shape[static_cast<std::size_t>(axis)];
    const bool squeeze = length > 0 && draw.upto(5) == 0, in_turn = draw.yes();
    Memory from(source.bytes);
    from.number();

    std::vector<Layout> layouts;
    std::vector<Extent> offsets, sizes;
    std::vector<Extent> bytes;
    const Extent equal = draw.yes() ? 1 + draw.upto(16) : 0;
    for (Extent at = 0, left = kMost, parts = 1 + draw.upto(63); parts > 0; --parts) {
        const Extent offset = in_turn ? at : draw.upto(length - (squeeze ? 1 : 0));
        if (offset > length - (squeeze ? 1 : 0))
            break;
        const Extent rest = length - offset, size = squeeze ? 1 : equal != 0 ? std::min(equal, rest) : draw.upto(rest);
        std::vector<Extent> shape = source.shape;
        shape[static_cast<std::size_t>(axis)] = size;
        Extent elements = 1;
        for (const Extent extent : shape)
            elements *= extent;
        if ((left -= elements) < 0)
            break;
        at = offset + size;
        if (squeeze)
            shape.erase(shape.begin() + axis);
        layouts.emplace_back(std::move(shape), source.itemsize, draw, false);
        offsets.push_back(offset);
        sizes.push_back(size);
    }
    std::vector<Memory> memory;
    std::vector<SplitTarget> targets;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
        const Extent shift = draw.upto(70);
        memory.emplace_back(layouts[i].bytes + shift);
        bool contiguous = true;
        for (Extent step = source.itemsize, j = static_cast<Extent>(layouts[i].shape.size()) - 1; j >= 0; --j) {
            contiguous = contiguous && layouts[i].strides[static_cast<std::size_t>(j)] == step;
            step *= std::max<Extent>(layouts[i].shape[static_cast<std::size_t>(j)], 1);
        }
        const Extent *strides = contiguous ? nullptr : layouts[i].strides.data();
        targets.push_back({memory[i].data() + shift + layouts[i].first, offsets[i], sizes[i], strides});
    }
    split_copy({from.data() + source.first, static_cast<int>(source.shape.size()), source.shape.data(),
                source.strides.data(), source.itemsize, axis},
               targets.data(), targets.size(), squeeze, draw.yes());

    for (std::size_t i = 0; i < layouts.size(); ++i) {
        if (g_spoils && memory[i].bytes() > 0)
            ++memory[i].data()[0];
        std::vector<char> expected(static_cast<std::size_t>(memory[i].bytes()), kPoison);
        const Extent shift = memory[i].bytes() - layouts[i].bytes;
        layouts[i].each([&](const std::vector<Extent> &index, Extent to) {
            Extent at = source.first;
            for (std::size_t j = 0, k = 0; j < source.shape.size(); ++j) {
                const bool cut = static_cast<int>(j) == axis;
                const Extent place = cut ? offsets[i] + (squeeze ? 0 : index[k]) : index[k];
                at += place * source.strides[j];
                k += cut && squeeze ? 0 : 1;
            }
            std::memcpy(expected.data() + shift + to, from.data() + at, static_cast<std::size_t>(source.itemsize));
        });
        HOLDS(std::equal(expected.begin(), expected.end(), memory[i].data()));
    }
}

// Any layout to any other.
void copy(Draw &draw) {
    draw_machine(draw);
    const std::vector<Extent> shape = draw_shape(draw);
    const Layout source(shape, draw_item(draw), draw, true), target(shape, source.itemsize, draw, false);
    Memory from(source.bytes), to(target.bytes);
    from.number();
    strided_copy({static_cast<int>(shape.size()), shape.data(), from.data() + source.first, source.strides.data(),
                  to.data() + target.first, target.strides.data(), source.itemsize},
                 draw.yes() ? 1 : kMost * 64);
    std::vector<char> expected(static_cast<std::size_t>(to.bytes()), kPoison);
    target.each([&](const std::vector<Extent> &index, Extent place) {
        Extent at = source.first;
        for (std::size_t i = 0; i < index.size(); ++i)
            at += index[i] * source.strides[i];
        std::memcpy(expected.data() + place, from.data() + at, static_cast<std::size_t>(source.itemsize));
    });
    HOLDS(std::equal(expected.begin(), expected.end(), to.data()));
}

// Checksums: in pieces, joined, and without the processor's help.
void checksum(Draw &draw) {
    Memory memory(draw.upto(5000));
    memory.number();
    const Extent cut = draw.upto(memory.bytes());
    const auto before = static_cast<std::uint32_t>(draw.upto(UINT32_MAX));
    const auto size = [](Extent bytes) { return static_cast<std::size_t>(bytes); };
    const std::uint32_t whole = files::crc32(before, memory.data(), size(memory.bytes()));
    HOLDS(whole == files::crc32_by_table(before, memory.data(), size(memory.bytes())));
    const std::uint32_t first = files::crc32(before, memory.data(), size(cut));
    const Extent rest = memory.bytes() - cut;
    HOLDS(whole == files::crc32(first, memory.data() + cut, size(rest)));
    const std::uint32_t second = files::crc32(0, memory.data() + cut, size(rest));
    HOLDS(whole == files::CrcJoin(static_cast<std::uint64_t>(rest))(first, second));
}

// Slabs that come and go: each is the caller's alone, and the counters add up.
void pool(Draw &draw) {
    std::vector<Slab> held;
    const PoolCounters before = memory_pool::counters();
    for (Extent steps = draw.upto(40); steps > 0; --steps) {
        switch (draw.upto(7)) {
            case 0: memory_pool::set_limit(static_cast<std::size_t>(draw.upto(Extent{8} << 20))); break;
            case 1: memory_pool::free_idle(); break;
            case 2:
            case 3:
                if (!held.empty()) {
                    std::swap(held.back(), held[static_cast<std::size_t>(draw.upto(static_cast<Extent>(held.size()) - 1))]);
                    memory_pool::release(held.back());
                    held.pop_back();
                }
                break;
            default: {
                const std::size_t bytes = static_cast<std::size_t>(draw.upto(draw.yes() ? Extent{5} << 20 : 100000));
                const Slab slab = memory_pool::acquire(bytes);
                HOLDS(slab.capacity >= bytes && reinterpret_cast<std::uintptr_t>(slab.data) % 64 == 0);
                for (const Slab &other : held)
                    HOLDS(slab.data + slab.capacity <= other.data || other.data + other.capacity <= slab.data);
                if (bytes > 0)
                    slab.data[0] = slab.data[bytes - 1] = kPoison;
                held.push_back(slab);
            }
        }
        std::size_t bytes = 0;
        for (const Slab &slab : held)
            bytes += slab.capacity;
        const PoolCounters now = memory_pool::counters();
        HOLDS(now.used_blocks - before.used_blocks == held.size() && now.used_bytes - before.used_bytes == bytes);
        HOLDS(now.idle_bytes <= now.limit && (now.idle_blocks == 0) == (now.idle_bytes == 0));
    }
    for (const Slab &slab : held)
        memory_pool::release(slab);
    memory_pool::set_limit(0);
    HOLDS(memory_pool::counters().idle_blocks == 0);
}

using namespace splitops::files;

class File {
  public:
    explicit File(Extent bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)), content_(bytes) {
        HOLDS(descriptor_ >= 0);
        content_.number();
        HOLDS(::pwrite(descriptor_, content_.data(), static_cast<std::size_t>(bytes), 0) == bytes);
    }
    File(File &&other) : descriptor_(std::exchange(other.descriptor_, -1)), content_(std::move(other.content_)) {}
    ~File() {
        if (descriptor_ >= 0)
            ::close(descriptor_);
    }
    int descriptor() const { return descriptor_; }
    const Memory &content() const { return content_; }
    std::vector<char> now() const {
        std::vector<char> bytes(static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_END)));
        HOLDS(::pread(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
        return bytes;
    }

  private:
    int descriptor_;
    Memory content_;
};

// Tables that are consistent: lanes of the targets lie apart from each other, those of the sources anywhere.
void draw_tables(Draw &draw, Work &work) {
    std::vector<Extent> ends(work.target_files.size());
    for (Extent p = 0, passes = 1 + draw.upto(2); p < passes; ++p) {
        const Pass pass{1 + draw.upto(draw.yes() ? 300 : 6), 1 + draw.upto(40)};
        work.passes.push_back(pass);
        const Extent longest = draw.yes() ? 3000 : 60, first = static_cast<Extent>(work.sources.size());
        for (Extent lanes = 1 + draw.upto(2); lanes > 0; --lanes) {
            const Extent used = 1 + draw.upto(longest), stride = used + (draw.yes() ? 0 : draw.upto(longest * 2));
            work.sources.push_back({p, draw.upto(static_cast<Extent>(work.source_files.size()) - 1), draw.upto(300), used, stride});
        }
        for (Extent lanes = 1 + draw.upto(3); lanes > 0; --lanes) {
            Extent used = 0;
            for (Extent moves = 1 + draw.upto(3); moves > 0; --moves) {
                const Extent from = first + draw.upto(static_cast<Extent>(work.sources.size()) - first - 1);
                const Extent room = work.sources[static_cast<std::size_t>(from)].used, column = draw.upto(room - 1);
                const Extent run = 1 + draw.upto(room - column - 1);
                work.moves.push_back({from, column, static_cast<Extent>(work.targets.size()), used, run});
                used += run;
            }
            const Extent file = draw.upto(static_cast<Extent>(ends.size()) - 1), stride = used + (draw.yes() ? 0 : draw.upto(60));
            Extent &end = ends[static_cast<std::size_t>(file)];
            const Extent base = end + draw.upto(50);
            work.targets.push_back({p, file, base, used, stride});
            end = base + (pass.rows - 1) * stride + used;
        }
    }
}

void spoil(Draw &draw, Work &work) {
    for (Extent changes = draw.upto(4); changes > 0; --changes) {
        const auto change = [&](auto &rows, auto... fields) {
            if (rows.empty())
                return;
            auto &row = rows[static_cast<std::size_t>(draw.upto(static_cast<Extent>(rows.size()) - 1))];
            Extent *places[] = {&(row.*fields)...};
            Extent *place = places[draw.upto(sizeof...(fields) - 1)];
            *place = draw.any();
        };
        switch (draw.upto(3)) {
            case 0: change(work.passes, &Pass::rows, &Pass::block_rows); break;
            case 1: change(work.sources, &Lane::pass, &Lane::file, &Lane::base, &Lane::used, &Lane::stride); break;
            case 2: change(work.targets, &Lane::pass, &Lane::file, &Lane::base, &Lane::used, &Lane::stride); break;
            default:
                change(work.moves, &Move::source_lane, &Move::source_column, &Move::target_lane, &Move::target_column,
                       &Move::run);
        }
    }
}

// The bytes of the largest block and of the files, and the blocks; in numbers that cannot overflow here.
bool is_small(const Work &work) {
    __int128 bytes = 0, end = 0, blocks = 0;
    for (const auto *lanes : {&work.sources, &work.targets})
        for (const Lane &lane : *lanes) {
            const Pass &pass = work.passes[static_cast<std::size_t>(lane.pass)];
            bytes += static_cast<__int128>(std::min(pass.rows, pass.block_rows)) * lane.stride;
        }
    for (const Lane &lane : work.targets) {
        const __int128 rows = work.passes[static_cast<std::size_t>(lane.pass)].rows;
        end = std::max(end, lane.base + (rows - 1) * lane.stride + lane.used);
    }
    for (const Pass &pass : work.passes)
        blocks += (pass.rows - 1) / pass.block_rows + 1;
    return bytes < (1 << 26) && end < (1 << 26) && blocks * static_cast<__int128>(work.moves.size()) < (1 << 16);
}

// What a loop over the rows makes of the same work: the files, and the checksums; nothing where a source lacks bytes that
// are moved. What is read and not moved may be missing, or be seen to be.
struct Expected {
    std::vector<std::vector<char>> files;
    std::vector<std::uint32_t> checksums;
    bool short_source = false, short_move = false;

    Expected(const Work &work, const std::vector<File> &sources, const std::vector<File> &targets)
        : checksums(work.moves.size()) {
        for (const File &file : targets)
            files.emplace_back(file.content().data(), file.content().data() + file.content().bytes());
        const auto is_short = [&](const Lane &lane, Extent bytes) {
            const Extent row = lane.base + (work.passes[static_cast<std::size_t>(lane.pass)].rows - 1) * lane.stride;
            return row + bytes > sources[static_cast<std::size_t>(lane.file)].content().bytes();
        };
        for (const Lane &lane : work.sources)
            short_source = short_source || is_short(lane, lane.used);
        for (const Move &move : work.moves)
            short_move = short_move || is_short(work.sources[static_cast<std::size_t>(move.source_lane)],
                                                move.source_column + move.run);
        for (std::size_t i = 0; !short_move && i < work.moves.size(); ++i) {
            const Move &move = work.moves[i];
            const Lane &from = work.sources[static_cast<std::size_t>(move.source_lane)];
            const Lane &to = work.targets[static_cast<std::size_t>(move.target_lane)];
            const char *data = sources[static_cast<std::size_t>(from.file)].content().data();
            for (Extent row = 0; row < work.passes[static_cast<std::size_t>(from.pass)].rows; ++row) {
                const char *bytes = data + from.base + row * from.stride + move.source_column;
                checksums[i] = crc32_by_table(checksums[i], bytes, static_cast<std::size_t>(move.run));
                if (!work.writing)
                    continue;
                std::vector<char> &file = files[static_cast<std::size_t>(to.file)];
                const std::size_t at = static_cast<std::size_t>(to.base + row * to.stride + move.target_column);
                file.resize(std::max(file.size(), at + static_cast<std::size_t>(move.run)));
                std::copy_n(bytes, move.run, file.begin() + static_cast<std::ptrdiff_t>(at));
            }
        }
    }
};

void extents(Draw &draw) {
    draw_machine(draw);
    Work work;
    std::vector<File> sources, targets;
    const Extent bytes = draw.yes() ? 200000 : draw.upto(4000);
    for (Extent n = 1 + draw.upto(1); n > 0; --n)
        work.source_files.push_back(sources.emplace_back(bytes).descriptor());
    for (Extent n = 1 + draw.upto(1); n > 0; --n)
        work.target_files.push_back(targets.emplace_back(draw.upto(100)).descriptor());
    work.writing = draw.upto(7) > 0;
    draw_tables(draw, work);
    const bool spoilt = draw.upto(2) == 0;
    if (spoilt)
        spoil(draw, work);
    const int threads = 1 + static_cast<int>(draw.upto(2));
    if (const char *problem = problem_of(work)) {
        HOLDS(spoilt && problem[0] != '\0');
        return;
    }
    if (!is_small(work))
        return;
    const Outcome outcome = copy_extents(work, threads, [](Extent) { return true; });
    const Expected expected(work, sources, targets);
    HOLDS(outcome.failure ? expected.short_source : !expected.short_move);
    if (outcome.failure) {
        HOLDS(!outcome.failure->writing && outcome.failure->error == 0);
        return;
    }
    HOLDS(outcome.checksums == expected.checksums);
    for (std::size_t i = 0; !spoilt && i < targets.size(); ++i)  // lanes that were changed may lie on each other
        HOLDS(targets[i].now() == expected.files[i]);
}

}  // namespace
}  // namespace splitops::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace splitops::fuzz;
    Draw draw(data, size);
    void (*const parts[])(Draw &) = {split, split, copy, extents, extents, extents, checksum, pool};
    parts[draw.upto(7)](draw);
    return 0;
}

#ifdef REPLAY
int main(int count, char **paths) {
    for (int i = 1; i < count; ++i) {
        std::FILE *file = std::fopen(paths[i], "rb");
        if (file == nullptr)
            return 2;
        std::vector<std::uint8_t> bytes(1 << 16);
        bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
        std::fclose(file);
        std::fprintf(stderr, "%s\n", paths[i]);
        splitops::fuzz::g_spoils = std::getenv("SPOIL") != nullptr;
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
}
#endif
