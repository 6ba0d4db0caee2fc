#include "copy/split_copy.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "copy/run_kernels.h"
#include "copy/thread_pool.h"

namespace splitops {
namespace {

using thread_pool::kTaskBytes;

constexpr Extent kCacheBytes = Extent{32} << 20;  // of the last level, if the system does not report it
constexpr Extent kFewRuns = 64;                   // copying fewer takes less time than making a plan
constexpr Extent kFewRows = 8;                    // with fewer rows, parts have no long ranges to write

// Larger copies would evict everything else from the caches. A store past the caches also saves reading the line that
// it overwrites.
Extent default_stream_bytes() {
    Extent cache = 0;
    // Not sysconf(), which reports the caches of the whole host on some virtual machines.
    if (std::FILE *file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
        long kibibytes = 0;
        if (std::fscanf(file, "%ldK", &kibibytes) == 1)
            cache = static_cast<Extent>(kibibytes) << 10;
        std::fclose(file);
    }
    return (cache > 0 ? cache : kCacheBytes) / 2;
}

std::atomic<Extent> g_parallel{2 * kTaskBytes};
std::atomic<Extent> g_stream{default_stream_bytes()};

bool is_contiguous(const SplitSource &s, int first) {
    Extent expected = s.itemsize;
    for (int i = s.ndim - 1; i >= first; --i) {
        if (s.shape[i] != 1 && s.strides[i] != expected)
            return false;
        expected *= s.shape[i];
    }
    return true;
}

// The axes before the split axis, outermost first, merged as far as their strides permit. Row r is at the mixed-radix
// digits of r. The kernels iterate over the last level.
struct Rows {
    int levels = 0;
    Extent extents[kMaxDims];
    Extent strides[kMaxDims];
    Extent count = 1;

    explicit Rows(const SplitSource &s) {
        for (int i = 0; i < s.axis; ++i) {
            count *= s.shape[i];
            if (s.shape[i] == 1)
                continue;
            if (levels > 0 && strides[levels - 1] == s.shape[i] * s.strides[i]) {
                extents[levels - 1] *= s.shape[i];
                strides[levels - 1] = s.strides[i];
            } else {
                extents[levels] = s.shape[i];
                strides[levels++] = s.strides[i];
            }
        }
        if (levels == 0) {
            extents[0] = 1;
            strides[0] = 0;
            levels = 1;
        }
    }

    Extent length() const { return extents[levels - 1]; }
    Extent pitch() const { return strides[levels - 1]; }

    // Offset of the row that begins group `group` of the last level.
    Extent group_start(Extent group) const {
        Extent position = 0;
        for (int i = levels - 2; i >= 0; --i) {
            position += group % extents[i] * strides[i];
            group /= extents[i];
        }
        return position;
    }
};

// The stride between the rows of a target whose parts are runs of bytes; false if they are not.
bool target_pitch(const SplitSource &s, const SplitTarget &t, bool squeeze, Extent run, Extent rows, Extent &pitch) {
    pitch = run;
    if (t.strides == nullptr || run == 0)
        return true;
    const int last = s.ndim - 1 - (squeeze ? 1 : 0);
    Extent expected = s.itemsize;
    int i = last;
    for (int axis = s.ndim - 1; axis >= s.axis; --axis) {
        if (axis == s.axis && squeeze)
            continue;
        const Extent extent = axis == s.axis ? t.size : s.shape[axis];
        if (extent != 1 && t.strides[i] != expected)
            return false;
        expected *= extent;
        --i;
    }
    bool found = false;
    for (int axis = s.axis - 1; axis >= 0; --axis) {
        if (s.shape[axis] == 1)
            continue;
        if (!found) {
            pitch = t.strides[axis];
            expected = pitch * s.shape[axis];
            found = true;
        } else if (t.strides[axis] != expected) {
            return false;
        } else {
            expected *= s.shape[axis];
        }
    }
    return found || rows <= 1;
}

// Copies one part by the general path.
void copy_part(const SplitSource &s, const SplitTarget &t, bool squeeze) {
    Extent shape[kMaxDims];
    Extent strides[kMaxDims];
    std::copy(s.shape, s.shape + s.ndim, shape);
    shape[s.axis] = t.size;
    Extent contiguous = s.itemsize;
    for (int i = s.ndim - 1; i >= 0; --i) {
        if (t.strides == nullptr)
            strides[i] = contiguous;
        else if (squeeze)
            strides[i] = i == s.axis ? 0 : t.strides[i < s.axis ? i : i - 1];
        else
            strides[i] = t.strides[i];
        contiguous *= shape[i];
    }
    const char *data = s.data + t.offset * s.strides[s.axis];
    strided_copy({s.ndim, shape, data, s.strides, t.data, strides, s.itemsize}, thresholds().parallel);
}

class RowCopy {
  public:
    RowCopy(const SplitSource &s, const Rows &rows, std::vector<RowPart> parts)
        : data_(s.data), rows_(rows), parts_(std::move(parts)) {
        for (const RowPart &part : parts_)
            row_bytes_ += part.run;
    }

    // `fresh`: the system allocates pages to the targets when they are first written.
    void run(bool fresh) {
        const Extent bytes = row_bytes_ * rows_.count;
        if (bytes == 0)
            return;
        stream_ = bytes >= thresholds().stream;
        const bool paged = fresh && bytes >= std::max(thresholds().parallel, 2 * kHugePage);
        const Extent runs = rows_.count * static_cast<Extent>(parts_.size());
        const bool long_runs = runs <= kFewRuns || rows_.length() < kFewRows || bytes / runs >= kStretchBytes;
        if (paged)
            each_page(long_runs);
        if (!long_runs)
            copy_short_runs(bytes);
        else if (!paged)
            copy_long_runs(bytes);
    }

  private:
    // Each page is first written by a single thread, because two would both clear it. Long runs are copied into it at
    // once, while the cleared page is in the cache.
    void each_page(bool copy) {
        std::vector<const RowPart *> parts;
        parts.reserve(parts_.size());
        for (const RowPart &part : parts_)
            parts.push_back(&part);
        const auto by_target = [](const RowPart *a, const RowPart *b) { return a->target < b->target; };
        if (!std::is_sorted(parts.begin(), parts.end(), by_target))
            std::sort(parts.begin(), parts.end(), by_target);
        struct Page {
            char *begin, *end;
            std::size_t part;  // the first part with bytes here
        };
        std::vector<Page> pages;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            char *at = parts[i]->target;
            char *const end = at + rows_.count * parts[i]->run;
            if (!pages.empty() && at < pages.back().end)
                at = pages.back().end;
            for (; at < end; at = pages.back().end) {
                const Extent within = static_cast<Extent>(reinterpret_cast<std::uintptr_t>(at) % kHugePage);
                pages.push_back({at, at + kHugePage - within, i});
            }
        }
        thread_pool::for_each(pages.size(), [&](std::size_t task) {
            const Page &page = pages[task];
            if (!copy) {
                *page.begin = 0;
                return;
            }
            for (std::size_t i = page.part; i < parts.size() && parts[i]->target < page.end; ++i) {
                const RowPart &part = *parts[i];
                const Extent begin = std::max<Extent>(0, page.begin - part.target);
                copy_stretch(part, begin, std::min<Extent>(rows_.count * part.run, page.end - part.target));
            }
        });
    }

    // Copies bytes [begin, end) of a part whose runs follow each other.
    void copy_stretch(const RowPart &part, Extent begin, Extent end) const {
        const Extent length = rows_.length();
        for (Extent at = begin; at < end;) {
            const Extent row = at / part.run, within = at % part.run;
            const Extent bytes = std::min(part.run - within, end - at);
            const char *source = data_ + rows_.group_start(row / length) + row % length * rows_.pitch();
            copy_bytes(part.target + at, source + part.source + within, bytes, false);
            at += bytes;
        }
    }

    void copy_long_runs(Extent bytes) {
        Extent start = 0;
        starts_.reserve(parts_.size());
        for (const RowPart &part : parts_) {
            starts_.push_back(start);
            start += part.run;
        }
        if (bytes < thresholds().parallel) {
            copy_bytes_between(0, bytes);
            return;
        }
        thread_pool::for_each(static_cast<std::size_t>((bytes + kTaskBytes - 1) / kTaskBytes), [&](std::size_t task) {
            const Extent begin = static_cast<Extent>(task) * kTaskBytes;
            copy_bytes_between(begin, std::min(bytes, begin + kTaskBytes));
            finish_streaming();
        });
    }

    // Row-major order, divided anywhere.
    void copy_bytes_between(Extent begin, Extent end) const {
        Extent row = begin / row_bytes_;
        Extent within = begin % row_bytes_;
        std::size_t part = static_cast<std::size_t>(
            std::upper_bound(starts_.begin(), starts_.end(), within) - starts_.begin() - 1);
        const Extent length = rows_.length();
        for (Extent left = end - begin; left > 0; ++row, part = 0, within = 0) {
            const char *source = data_ + rows_.group_start(row / length) + row % length * rows_.pitch();
            for (; part < parts_.size() && left > 0; ++part) {
                const RowPart &p = parts_[part];
                const Extent skip = within - starts_[part];
                const Extent bytes = std::min(p.run - skip, left);
                copy_bytes(p.target + row * p.pitch + skip, source + p.source + skip, bytes, stream_);
                left -= bytes;
                within += bytes;
            }
        }
    }

    void copy_short_runs(Extent bytes) {
        const RunPlan plan(parts_, rows_.pitch(), rows_.length(), stream_);
        if (bytes < thresholds().parallel || thread_pool::threads() == 1) {
            copy_tiles(plan, 0, rows_.count, 0, parts_.size());
            finish_streaming();
            return;
        }
        // A grid of tasks: first divided between rows, so that each task ends with a line in every target, then between
        // parts if there are too few rows.
        const Extent tile = std::max(plan.tile_rows(), kLine);
        const Extent wanted = (bytes + kTaskBytes - 1) / kTaskBytes;
        const Extent tiles = (rows_.count + tile - 1) / tile;
        const Extent step = (tiles + wanted - 1) / wanted * tile;
        const Extent down = (rows_.count + step - 1) / step;
        const Extent across = std::clamp<Extent>(wanted / down, 1, static_cast<Extent>(parts_.size()));
        thread_pool::for_each(static_cast<std::size_t>(down * across), [&](std::size_t task) {
            const Extent row = static_cast<Extent>(task) / across * step;
            const std::size_t column = task % static_cast<std::size_t>(across);
            const std::size_t n = parts_.size();
            copy_tiles(plan, row, std::min(rows_.count, row + step),
                       plan.boundary(column * n / static_cast<std::size_t>(across)),
                       plan.boundary((column + 1) * n / static_cast<std::size_t>(across)));
            finish_streaming();
        });
    }

    // Copies rows [begin, end) of parts [from, to), one range of equally spaced rows after the other.
    void copy_tiles(const RunPlan &plan, Extent begin, Extent end, std::size_t from, std::size_t to) const {
        const Extent length = rows_.length();
        for (Extent row = begin; row < end;) {
            const Extent within = row % length;
            const Extent count = std::min(end - row, length - within);
            const char *source = data_ + rows_.group_start(row / length) + within * rows_.pitch();
            plan.copy(source, row, count, from, to);
            row += count;
        }
    }

    const char *data_;
    const Rows &rows_;
    std::vector<RowPart> parts_;
    std::vector<Extent> starts_;  // offset of each part in the bytes of one row
    Extent row_bytes_ = 0;
    bool stream_ = false;
};

}  // namespace

Thresholds thresholds() {
    return {g_parallel.load(std::memory_order_relaxed), g_stream.load(std::memory_order_relaxed)};
}

void set_thresholds(Thresholds values) {
    g_parallel.store(values.parallel, std::memory_order_relaxed);
    g_stream.store(values.stream, std::memory_order_relaxed);
}

void split_copy(const SplitSource &s, const SplitTarget *targets, std::size_t count, bool squeeze, bool fresh) {
    Extent inner = s.itemsize;
    for (int i = s.axis + 1; i < s.ndim; ++i)
        inner *= s.shape[i];
    const Extent axis_stride = s.strides[s.axis];
    bool in_runs = inner != 0 && is_contiguous(s, s.axis + 1);
    for (std::size_t i = 0; in_runs && axis_stride != inner && i < count; ++i)
        in_runs = targets[i].size <= 1;
    if (!in_runs) {
        for (std::size_t i = 0; i < count; ++i)
            copy_part(s, targets[i], squeeze);
        return;
    }
    const Rows rows(s);
    std::vector<RowPart> parts;
    parts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const SplitTarget &t = targets[i];
        const Extent run = t.size * inner;
        Extent pitch;
        if (!target_pitch(s, t, squeeze, run, rows.count, pitch))
            copy_part(s, t, squeeze);
        else if (run != 0)
            parts.push_back({t.data, pitch, t.offset * axis_stride, run});
    }
    RowCopy(s, rows, std::move(parts)).run(fresh);
}

}  // namespace splitops
