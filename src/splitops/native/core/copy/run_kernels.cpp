#include "copy/run_kernels.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace splitops {
namespace {

constexpr Extent kTileBytes = 16 << 10;      // for a tile of whole rows: half of a first-level cache
constexpr Extent kMaxTileBytes = 256 << 10;  // if necessary: half of a second-level cache, for two tiles
constexpr Extent kMinWideRows = kLine;       // if rows have gaps or are too long for a tile to fit a cache: whole lines
constexpr Extent kTableBytes = 4 << 10;      // copying fewer bytes takes less time than filling a table of shuffles
constexpr std::size_t kCarries = 4 << 10;    // maximum parts with carries between tiles: 352 KiB per thread
constexpr Extent kStagedRun = kSmallPage / 2;  // longer runs are streamed directly: a strip is inside one page
constexpr int kStripsInPage = kSmallPage / kLaneStripBytes;

static_assert(2 * kLine + std::max(kStageBytes, kStagedRun) <= kSmallPage);

// The largest power of two that is at most `value`, or 1. Such numbers of rows often fill whole lines.
Extent power_of_two(Extent value) {
    return static_cast<Extent>(std::bit_floor(static_cast<std::size_t>(std::max<Extent>(1, value))));
}

// Prefetches the line in which a range ends, because it is shared with the next range. Unless it is cached in time,
// storing its first part delays all later stores.
inline void fetch_for_writing(const char *end) {
    if (misalignment(end) != 0)
        __builtin_prefetch(end, 1);
}

// Instructions per byte of a run that is copied alone. A move is a load and a store. A run that does not fill one is
// copied with bytes of the next run.
double cost_alone(Extent run) { return 2 * static_cast<double>((run + 15) / 16) / static_cast<double>(run); }

// Continues a strip after the previous tile, from `carry`, if there is one.
void open_strip(Strip &strip, char *target, char *memory, const Carry *carry) {
    if (carry != nullptr && carry->line != nullptr)
        strip.open(*carry, memory);
    else
        strip.open(target, memory);
}

void close_strip(Strip &strip, Carry *carry) {
    if (carry != nullptr)
        strip.keep(*carry);
    else
        strip.finish();
}

// Writes whole cache lines past the caches, and the rest as usual.
void stream_bytes(char *target, const char *source, Extent bytes) {
    const Extent head = std::min(bytes, (kLine - misalignment(target)) % kLine);
    copy_plain(target, source, head);
    const Extent body = (bytes - head) / kLine * kLine;
    instruction_set().stream_lines(target + head, source + head, body);
    copy_plain(target + head + body, source + head + body, bytes - head - body);
}

}  // namespace

void copy_plain(char *target, const char *source, Extent bytes) {
    if (bytes > kCallBytes)
        std::memcpy(target, source, static_cast<std::size_t>(bytes));
    else if (bytes >= kLine)
        copy_lines(target, source, bytes);
    else if (bytes >= 16)
        bytes >= 32 ? copy_twice<32>(target, source, bytes) : copy_twice<16>(target, source, bytes);
    else if (bytes >= 4)
        bytes >= 8 ? copy_twice<8>(target, source, bytes) : copy_twice<4>(target, source, bytes);
    else if (bytes > 0)
        bytes >= 2 ? copy_twice<2>(target, source, bytes) : copy_fixed<1>(target, source);
}

void copy_bytes(char *target, const char *source, Extent bytes, bool stream) {
    if (!stream || bytes < 4 * kLine)
        return copy_plain(target, source, bytes);
    fetch_for_writing(target + bytes);
    stream_bytes(target, source, bytes);
}

void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

// Frequent stores must not cross a page boundary, which takes many times as long.
struct RunPlan::Scratch {
    static constexpr int kPages = (LaneTable::kMaxParts + kStripsInPage - 1) / kStripsInPage;

    alignas(kSmallPage) char strips[kPages][kSmallPage];

    // The strip of part `index` of a group.
    char *strip(int index) { return strips[index / kStripsInPage] + index % kStripsInPage * kLaneStripBytes; }
};

RunPlan::RunPlan(const std::vector<RowPart> &parts, Extent source_pitch, Extent rows, bool stream)
    : parts_(parts), source_pitch_(source_pitch), rows_(rows), stream_(stream) {
    Extent bytes = 0;
    first_byte_ = last_byte_ = parts.front().source;
    for (const RowPart &part : parts) {
        first_byte_ = std::min(first_byte_, part.source);
        last_byte_ = std::max(last_byte_, part.source + part.run);
        bytes += part.run;
    }
    const Extent stretch_rows = kStretchBytes * static_cast<Extent>(parts.size()) / bytes;
    const Extent row_bytes = std::max<Extent>(1, std::abs(source_pitch));
    tile_rows_ = power_of_two(std::max(kTileBytes / row_bytes, stretch_rows));
    // Gaps in rows of a line or two are in lines that are fetched anyway.
    const bool whole = source_pitch > 0 && last_byte_ - first_byte_ <= source_pitch &&
                       (bytes == source_pitch || source_pitch <= 2 * kLine);
    dense_ = whole && tile_rows_ * source_pitch <= kMaxTileBytes;
    if (!dense_)
        tile_rows_ = power_of_two(std::max(kMinWideRows, stretch_rows));
    make_groups();
    make_blocks();
}

void RunPlan::make_groups() {
    for (std::size_t i = 0; i < parts_.size(); i = groups_.back().end)
        groups_.push_back(group_at(i));
}

// The group of parts from `begin` on that is copied in the cheapest way.
RunPlan::Group RunPlan::group_at(std::size_t begin) {
    if (source_pitch_ <= 0 || parts_[begin].pitch != parts_[begin].run)
        return {begin, begin + 1, nullptr, nullptr};
    const LaneTable *lanes = lanes_for(begin);
    if (lanes != nullptr)
        return {begin, begin + static_cast<std::size_t>(lanes->parts), lanes, nullptr};
    return {begin, begin + 1, nullptr, gather_for(parts_[begin])};
}

// How the parts from `begin` on are separated; null if they are copied faster one by one.
const LaneTable *RunPlan::lanes_for(std::size_t begin) {
    const InstructionSet &set = instruction_set();
    if (set.take_apart == nullptr)
        return nullptr;
    Extent runs[LaneTable::kMaxParts];
    int count = 0;
    Extent next = parts_[begin].source;
    for (std::size_t i = begin; i < parts_.size() && count < LaneTable::kMaxParts; ++i) {
        const RowPart &part = parts_[i];
        if (part.source != next || part.pitch != part.run)
            break;
        runs[count++] = part.run;
        next += part.run;
    }
    if (!lane_tables_.empty()) {  // usually the same again
        const LaneTable &last = *lane_tables_.back();
        if (last.parts <= count && std::equal(last.run, last.run + last.parts, runs))
            return &last;
    }
    const LaneChoice choice = choose_lanes(runs, count, source_pitch_);
    double apart = 0;
    Extent span = 0;
    for (int i = 0; i < choice.parts; ++i) {
        apart += std::min(set.gather_cost(runs[i], source_pitch_), cost_alone(runs[i])) * static_cast<double>(runs[i]);
        span += runs[i];
    }
    if (choice.parts == 0 || choice.cost * static_cast<double>(span) >= apart || rows_ * span < kTableBytes)
        return nullptr;
    lane_tables_.push_back(std::make_unique<LaneTable>());
    fill_table(choice, runs, source_pitch_, *lane_tables_.back());
    return lane_tables_.back().get();
}

// How the runs of a part are gathered; null if they are copied faster one by one.
const GatherTable *RunPlan::gather_for(const RowPart &part) {
    const InstructionSet &set = instruction_set();
    if (set.gather == nullptr || rows_ * part.run < kTableBytes ||
        set.gather_cost(part.run, source_pitch_) >= cost_alone(part.run))
        return nullptr;
    if (gather_tables_.empty() || gather_tables_.back()->run != part.run) {
        gather_tables_.push_back(std::make_unique<GatherTable>());
        set.prepare_gather(part.run, source_pitch_, *gather_tables_.back());
    }
    return gather_tables_.back().get();
}

void RunPlan::make_blocks() {
    if (dense_) {
        blocks_.push_back({0, groups_.size(), first_byte_, last_byte_ - first_byte_});
        return;
    }
    const Extent most = kMaxTileBytes / tile_rows_;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const RowPart &first = parts_[groups_[g].begin], &last = parts_[groups_[g].end - 1];
        const Extent end = last.source + last.run;
        if (!blocks_.empty()) {
            Block &block = blocks_.back();
            if (first.source == block.source + block.span && end - block.source <= most) {
                block.end = g + 1;
                block.span = end - block.source;
                continue;
            }
        }
        blocks_.push_back({g, g + 1, first.source, end - first.source});
    }
}

std::size_t RunPlan::boundary(std::size_t part) const {
    const auto group = std::lower_bound(groups_.begin(), groups_.end(), part,
                                        [](const Group &g, std::size_t p) { return g.begin < p; });
    return group == groups_.end() ? parts_.size() : group->begin;
}

void RunPlan::copy(const char *source, Extent first, Extent count, std::size_t begin, std::size_t end) const {
    Scratch scratch;
    const auto is_before = [&](const Block &block, std::size_t part) { return groups_[block.end - 1].end <= part; };
    const auto start = std::lower_bound(blocks_.begin(), blocks_.end(), begin, is_before);
    // Without carries, the lines in which tiles end are written in two parts, which is only slower.
    const bool several = stream_ && count > tile_rows_ && end - begin <= kCarries;
    const std::unique_ptr<Carry[]> carries(several ? new (std::nothrow) Carry[end - begin] : nullptr);
    Progress progress{{}, carries.get(), false};
    for (Extent row = 0; row < count; row += tile_rows_) {
        const Extent rows = std::min(tile_rows_, count - row);
        const Tile tile{source + row * source_pitch_, first + row, rows,
                        (count - row - 1) * source_pitch_ + last_byte_};
        const Extent next_rows = std::min(tile_rows_, count - row - rows);
        const char *next_tile = tile.data + rows * source_pitch_;
        // Whole rows are prefetched as one range of memory, others block by block.
        progress.ahead = {next_tile + first_byte_, 0, next_rows * source_pitch_, next_rows > 0 ? 1 : 0};
        progress.last = next_rows == 0;
        for (auto block = start; block != blocks_.end() && groups_[block->begin].begin < end; ++block) {
            if (!dense_) {
                if (groups_[block->end - 1].end < end)
                    progress.ahead = {tile.data + (block + 1)->source, source_pitch_, (block + 1)->span, rows};
                else
                    progress.ahead = {next_tile + start->source, source_pitch_, start->span, next_rows};
            }
            for (std::size_t g = block->begin; g < block->end; ++g) {
                const Group &group = groups_[g];
                if (group.begin >= begin && group.end <= end)
                    copy_group(group, tile, scratch, progress,
                               progress.carries != nullptr ? progress.carries + (group.begin - begin) : nullptr);
            }
        }
    }
}

void RunPlan::copy_group(const Group &group, const Tile &tile, Scratch &scratch, Progress &progress,
                         Carry *carries) const {
    if (group.lanes == nullptr)
        return copy_part(group, tile, scratch, progress, carries);
    const LaneTable &table = *group.lanes;
    const InstructionSet &set = instruction_set();
    const RowPart *parts = &parts_[group.begin];
    const char *source = tile.data + parts[0].source;
    const Extent readable = tile.readable - parts[0].source;
    char *targets[LaneTable::kMaxParts];
    if (!stream_) {
        for (int i = 0; i < table.parts; ++i)
            targets[i] = parts[i].target + tile.first * parts[i].run;
        if (!dense_)  // the processor itself prefetches consecutive whole rows
            progress.ahead.fetch(tile.count * (parts[table.parts - 1].source + parts[table.parts - 1].run - parts[0].source));
        set.take_apart(table, source, tile.count, readable, targets);
        return;
    }
    Strip strips[LaneTable::kMaxParts];
    for (int i = 0; i < table.parts; ++i) {
        char *target = parts[i].target + tile.first * parts[i].run;
        if (carries == nullptr || progress.last)
            fetch_for_writing(target + tile.count * parts[i].run);
        open_strip(strips[i], target, scratch.strip(i), carries == nullptr ? nullptr : carries + i);
    }
    set.take_apart_streaming(table, source, tile.count, readable, strips, progress.ahead);
    for (int i = 0; i < table.parts; ++i)
        close_strip(strips[i], progress.last || carries == nullptr ? nullptr : carries + i);
}

void RunPlan::copy_part(const Group &group, const Tile &tile, Scratch &scratch, Progress &progress,
                        Carry *carry) const {
    const RowPart &part = parts_[group.begin];
    const InstructionSet &set = instruction_set();
    const char *from = tile.data + part.source;
    char *target = part.target + tile.first * part.pitch;
    const auto copy_rows = [&](Extent row, Extent rows, char *to, Extent writable) {
        const char *source = from + row * source_pitch_;
        if (group.gather != nullptr)
            set.gather(*group.gather, source, rows, tile.readable - part.source - row * source_pitch_, to, writable);
        else
            set.copy_runs({to, part.pitch, source, source_pitch_, part.run, rows});
    };
    if (!stream_ || part.pitch != part.run) {
        if (!dense_)
            progress.ahead.fetch(tile.count * part.run);
        return copy_rows(0, tile.count, target, tile.count * part.run);
    }
    if (part.run > kStagedRun) {
        for (Extent r = 0; r < tile.count; ++r)
            copy_bytes(target + r * part.run, from + r * source_pitch_, part.run, true);
        return;
    }
    if (carry == nullptr || progress.last)
        fetch_for_writing(target + tile.count * part.run);
    const Extent rows_at_once = power_of_two(kStageBytes / part.run);
    Strip strip;
    open_strip(strip, target, scratch.strip(0), carry);
    for (Extent r = 0; r < tile.count; r += rows_at_once) {
        const Extent rows = std::min(rows_at_once, tile.count - r);
        progress.ahead.fetch(rows * part.run);
        copy_rows(r, rows, strip.end(), rows * part.run + kLine);
        strip.filled += rows * part.run;
        strip.flush(set.stream_lines);
    }
    close_strip(strip, progress.last ? nullptr : carry);
}

}  // namespace splitops
