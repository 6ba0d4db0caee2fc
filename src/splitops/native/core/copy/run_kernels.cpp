#include "copy/run_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace splitops {
namespace {

// How many rows a tile has.
constexpr Extent kTileBytes = 16 << 10;           // of narrow rows, which stay in the first-level cache
constexpr Extent kDenseTileBytes = 64 << 10;      // of whole rows, which stay in the second-level cache,
constexpr Extent kMaxDenseTileBytes = 256 << 10;  // if need be: half of it, since the next tile is on its way
constexpr Extent kStretchBytes = 1 << 10;         // of a part that a tile has at least, if it can
constexpr Extent kMinTileRows = 2;
constexpr Extent kMinWideRows = 64;               // of rows with gaps, or so long that a tile fits no cache
constexpr Extent kMaxTileRows = 512;              // of rows that are not narrow

constexpr Extent kBlockBytes = 32 << 10;          // of a tile of rows that are neither
constexpr Extent kStageBytes = 1 << 10;           // brought together before they are streamed
constexpr Extent kStagedRun = 2 << 10;            // longer runs are not
constexpr Extent kNarrowRow = 128;                // rows up to here are read in place
constexpr Extent kShortRun = 16;                  // runs up to here are gathered
constexpr Extent kMediumRun = kLine - 1;          // streamed runs up to here share lines, and are read in blocks
constexpr Extent kLinesRun = 4 * kLine;           // aligned runs from here are streamed without a buffer
constexpr Extent kPackedRows = 64;                // fewer rows do not pay for packing
constexpr Extent kTableBytes = 4 << 10;           // fewer bytes of a part do not pay for a table of shuffles
constexpr std::size_t kCarries = 4 << 10;         // parts whose ends of tiles wait for the next tile, at most
constexpr Extent kSlack = 16 * kLine;             // a gather may read that much past a buffer
constexpr Extent kSmallPage = 4 << 10;
constexpr int kStripsInPage = kSmallPage / kLaneStripBytes;

static_assert(2 * kLine + std::max(kStageBytes, kStagedRun) <= kSmallPage, "one strip is in one page");

// The largest one that is at most `value`, which is at least 1. So many rows often fill whole lines.
Extent power_of_two(Extent value) {
    Extent power = 1;
    while (power * 2 <= value)
        power *= 2;
    return power;
}

Extent ceiling_power_of_two(Extent value) { return value == 1 ? 1 : 2 * power_of_two(value - 1); }

// The line in which a stretch ends is shared with the next one. Unless it is there in time, storing its first
// part holds up all stores behind it.
inline void fetch_for_writing(const char *end) {
    if (misalignment(end) != 0)
        __builtin_prefetch(end, 1);
}

// Instructions a byte of a run that is copied by itself.
double cost_alone(Extent run) {
    const Extent moves = run >= 16 ? (run + 15) / 16 : power_of_two(run) == run ? 1 : 2;
    return 2 * static_cast<double>(moves) / static_cast<double>(run);
}

// A strip goes on where the tile before left it in `carry`, if it did.
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

// Whole cache lines are written past the caches, the rest as usual.
void stream_bytes(char *target, const char *source, Extent bytes) {
    const Extent head = std::min(bytes, (kLine - misalignment(target)) % kLine);
    copy_plain(target, source, head);
    const Extent body = (bytes - head) / kLine * kLine;
    instruction_set().stream_lines(target + head, source + head, body);
    copy_plain(target + head + body, source + head + body, bytes - head - body);
}

}  // namespace

void copy_plain(char *target, const char *source, Extent bytes) {
    if (bytes > 1024)
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

// What is written there often must not lie across two pages: a store into both takes many times as long as one
// into either.
struct RunPlan::Scratch {
    static constexpr int kPages = (LaneTable::kMaxParts + kStripsInPage - 1) / kStripsInPage;

    alignas(kSmallPage) char strips[kPages][kSmallPage];
    char packed[kBlockBytes + kSlack];

    // Of the strip of part `index` of a group.
    char *strip(int index) { return strips[index / kStripsInPage] + index % kStripsInPage * kLaneStripBytes; }
};

RunPlan::RunPlan(const std::vector<RowPart> &parts, Extent source_pitch, Extent rows, bool stream)
    : parts_(parts), source_pitch_(source_pitch), rows_(rows), stream_(stream), gathers_(parts.size(), nullptr) {
    Extent first = parts.front().source, last = 0, bytes = 0;
    for (const RowPart &part : parts) {
        first = std::min(first, part.source);
        last = std::max(last, part.source + part.run);
        bytes += part.run;
    }
    first_byte_ = first;
    const Extent average = bytes / static_cast<Extent>(parts.size());
    if (source_pitch > 0 && source_pitch <= kNarrowRow && last - first <= source_pitch) {
        tile_rows_ = power_of_two(std::max(kTileBytes / source_pitch, kStretchBytes / average));
        dense_ = true;
        add_block(0, parts.size(), first, last - first, false);
        return;
    }
    tile_rows_ = power_of_two(std::clamp(std::max(kDenseTileBytes / std::max<Extent>(std::abs(source_pitch), 1),
                                                  kStretchBytes / average), kMinTileRows, kMaxTileRows));
    dense_ = bytes == source_pitch && tile_rows_ * source_pitch <= kMaxDenseTileBytes;
    if (!dense_)
        tile_rows_ = power_of_two(std::clamp(2 * kStretchBytes / average, kMinWideRows, kMaxTileRows));
    const Extent limit = stream ? kMediumRun : kShortRun;
    const Extent block_bytes = kBlockBytes / tile_rows_;
    for (std::size_t i = 0; i < parts.size();) {
        std::size_t end = i + 1;
        Extent block_end = parts[i].source + parts[i].run;
        while (end < parts.size() && parts[end].source == block_end && parts[i].run <= limit &&
               parts[end].run <= limit && block_end + parts[end].run - parts[i].source <= block_bytes)
            block_end += parts[end++].run;
        // No single run is left over where as many as fill a vector are taken apart together.
        const std::size_t together = static_cast<std::size_t>(LaneTable::kVector / ceiling_power_of_two(parts[i].run));
        if (together > 1 && end < parts.size() && end - i > together)
            for (; (end - i) % together != 0; --end)
                block_end -= parts[end - 1].run;
        add_block(i, end, parts[i].source, block_end - parts[i].source, end - i > 1 && rows >= kPackedRows && !dense_);
        i = end;
    }
}

void RunPlan::add_block(std::size_t begin, std::size_t end, Extent source, Extent span, bool packed) {
    const std::size_t first_group = groups_.size();
    const std::size_t back = blocks_.empty() ? 0 : begin - groups_[blocks_.back().begin].begin;
    const Extent pitch = packed ? span : source_pitch_;
    const bool dense = rows_ >= kPackedRows && pitch > 0;
    for (std::size_t i = begin; i < end;) {
        if (dense) {
            i = add_group(i, end, pitch, source, back);
        } else {
            groups_.push_back({i, i + 1, nullptr});
            ++i;
        }
    }
    blocks_.push_back({first_group, groups_.size(), source, span, packed});
}

// Adds the group of parts from `begin` on that is copied in the cheapest way; gives its end. `back`: how many
// parts before, an equal part of the neighbour may have the same table.
std::size_t RunPlan::add_group(std::size_t begin, std::size_t end, Extent pitch, Extent origin, std::size_t back) {
    const InstructionSet &set = instruction_set();
    Extent runs[LaneTable::kMaxParts];
    int count = 0;
    Extent next = parts_[begin].source;
    for (std::size_t i = begin; i < end && count < LaneTable::kMaxParts; ++i) {
        const RowPart &part = parts_[i];
        if (part.source != next || part.pitch != part.run)
            break;
        runs[count++] = part.run;
        next += part.run;
    }
    if (set.take_apart != nullptr && count >= 2) {
        const LaneTable *last = lane_tables_.empty() ? nullptr : lane_tables_.back().get();
        if (last != nullptr && last->pitch == pitch && last->parts <= count &&
            std::equal(last->run, last->run + last->parts, runs)) {
            groups_.push_back({begin, begin + static_cast<std::size_t>(last->parts), last});
            return groups_.back().end;
        }
        const LaneChoice choice = choose_lanes(runs, count, pitch);
        double apart = 0;
        Extent span = 0;
        for (int i = 0; i < choice.parts; ++i) {
            const double gather = set.gather_cost(runs[i], pitch, parts_[begin].source + span - origin);
            apart += std::min(gather, cost_alone(runs[i])) * static_cast<double>(runs[i]);
            span += runs[i];
        }
        if (choice.parts > 0 && choice.cost * static_cast<double>(span) < apart && rows_ * span >= kTableBytes) {
            auto table = std::make_unique<LaneTable>();
            fill_table(choice, runs, pitch, *table);
            groups_.push_back({begin, begin + static_cast<std::size_t>(choice.parts), table.get()});
            lane_tables_.push_back(std::move(table));
            return groups_.back().end;
        }
    }
    add_gather(begin, pitch, origin, back);
    groups_.push_back({begin, begin + 1, nullptr});
    return begin + 1;
}

void RunPlan::add_gather(std::size_t part, Extent pitch, Extent origin, std::size_t back) {
    const RowPart &p = parts_[part];
    const Extent offset = p.source - origin;
    if (back > 0 && part >= back) {
        const GatherTable *table = gathers_[part - back];
        if (table != nullptr && table->run == p.run && table->pitch == pitch && table->offset == offset) {
            gathers_[part] = table;
            return;
        }
    }
    const InstructionSet &set = instruction_set();
    if (rows_ * p.run < kTableBytes || set.gather_cost(p.run, pitch, offset) >= cost_alone(p.run))
        return;
    auto table = std::make_unique<GatherTable>();
    set.prepare_gather(p.run, pitch, offset, *table);
    gathers_[part] = table.get();
    gather_tables_.push_back(std::move(table));
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
    // Without them the lines in which tiles end are written in two parts, which is only slower.
    const bool several = stream_ && count > tile_rows_ && end - begin <= kCarries;
    const std::unique_ptr<Carry[]> carries(several ? new (std::nothrow) Carry[end - begin] : nullptr);
    Progress progress{{}, carries.get(), false};
    for (Extent row = 0; row < count; row += tile_rows_) {
        const Extent rows = std::min(tile_rows_, count - row);
        const char *tile = source + row * source_pitch_;
        const Extent next_rows = std::min(tile_rows_, count - row - rows);
        // Rows without gaps are fetched as one stretch of memory, others block by block.
        const char *next_tile = tile + rows * source_pitch_;
        progress.ahead = {next_tile + first_byte_, 0, next_rows * source_pitch_, next_rows > 0 ? 1 : 0};
        progress.last = next_rows == 0;
        for (auto block = start; block != blocks_.end() && groups_[block->begin].begin < end; ++block) {
            Window window{tile + block->source, source_pitch_, block->source,
                          (count - row - 1) * source_pitch_ + block->span};
            if (!dense_) {
                if (groups_[block->end - 1].end < end)
                    progress.ahead = {tile + (block + 1)->source, source_pitch_, (block + 1)->span, rows};
                else
                    progress.ahead = {next_tile + start->source, source_pitch_, start->span, next_rows};
            }
            if (block->packed) {
                char *const packed = scratch.packed;
                instruction_set().copy_runs({packed, block->span, window.data, window.pitch, block->span, rows});
                window = {packed, block->span, block->source, rows * block->span + kSlack};
            }
            for (std::size_t g = block->begin; g < block->end; ++g) {
                const Group &group = groups_[g];
                if (group.begin >= begin && group.end <= end)
                    copy_group(group, window, first + row, rows, scratch, progress,
                               progress.carries != nullptr ? progress.carries + (group.begin - begin) : nullptr);
            }
        }
    }
}

void RunPlan::copy_group(const Group &group, const Window &window, Extent first, Extent count, Scratch &scratch,
                         Progress &progress, Carry *carries) const {
    if (group.lanes == nullptr)
        return copy_part(group.begin, window, first, count, scratch, progress, carries);
    const LaneTable &table = *group.lanes;
    const InstructionSet &set = instruction_set();
    const RowPart *parts = &parts_[group.begin];
    const Extent offset = parts[0].source - window.origin;
    const char *source = window.data + offset;
    char *targets[LaneTable::kMaxParts];
    if (!stream_) {
        for (int i = 0; i < table.parts; ++i)
            targets[i] = parts[i].target + first * parts[i].run;
        set.take_apart(table, source, count, window.readable - offset, targets);
        return;
    }
    Strip strips[LaneTable::kMaxParts];
    for (int i = 0; i < table.parts; ++i) {
        char *target = parts[i].target + first * parts[i].run;
        if (carries == nullptr || progress.last)
            fetch_for_writing(target + count * parts[i].run);
        open_strip(strips[i], target, scratch.strip(i), carries == nullptr ? nullptr : carries + i);
    }
    set.take_apart_streaming(table, source, count, window.readable - offset, strips, progress.ahead);
    for (int i = 0; i < table.parts; ++i)
        close_strip(strips[i], progress.last || carries == nullptr ? nullptr : carries + i);
}

void RunPlan::copy_part(std::size_t index, const Window &window, Extent first, Extent count, Scratch &scratch,
                        Progress &progress, Carry *carry) const {
    const RowPart &part = parts_[index];
    const GatherTable *gather = gathers_[index];
    const InstructionSet &set = instruction_set();
    const char *from = window.data + (part.source - window.origin);
    char *target = part.target + first * part.pitch;
    if (part.pitch != part.run) {
        set.copy_runs({target, part.pitch, from, window.pitch, part.run, count});
        return;
    }
    if (!stream_) {
        if (gather != nullptr)
            set.gather(*gather, window.data, count, window.readable, target, count * part.run);
        else
            set.copy_runs({target, part.run, from, window.pitch, part.run, count});
        return;
    }
    if (part.run > kStagedRun) {
        for (Extent r = 0; r < count; ++r)
            copy_bytes(target + r * part.run, from + r * window.pitch, part.run, true);
        return;
    }
    if (carry == nullptr || progress.last)
        fetch_for_writing(target + count * part.run);
    const bool whole_lines = misalignment(target) == 0;
    if (gather == nullptr && whole_lines && part.run % kLine == 0 && part.run >= kLinesRun) {
        for (Extent r = 0; r < count; ++r) {
            progress.ahead.fetch(part.run);
            stream_bytes(target + r * part.run, from + r * window.pitch, part.run);
        }
        return;
    }
    const bool direct =
        gather != nullptr && whole_lines && set.gather_streaming != nullptr && gather->rows * part.run == kLine;
    const Extent rows_at_once = power_of_two(std::max<Extent>(kStageBytes / part.run, 1));
    Strip strip;
    open_strip(strip, target, scratch.strip(0), carry);
    for (Extent r = 0; r < count; r += rows_at_once) {
        const Extent rows = std::min(rows_at_once, count - r);
        const Extent bytes = rows * part.run;
        const char *row = window.data + r * window.pitch;
        const Extent readable = window.readable - r * window.pitch;
        progress.ahead.fetch(bytes);
        if (direct && bytes % kLine == 0 && strip.filled == 0) {
            set.gather_streaming(*gather, row, rows, readable, strip.line, bytes);
            strip.line += bytes;
            continue;
        }
        if (gather != nullptr)
            set.gather(*gather, row, rows, readable, strip.end(), bytes + kLine);
        else
            set.copy_runs({strip.end(), part.run, from + r * window.pitch, window.pitch, part.run, rows});
        strip.filled += bytes;
        strip.flush(set.stream_lines);
    }
    close_strip(strip, progress.last ? nullptr : carry);
}

}  // namespace splitops
