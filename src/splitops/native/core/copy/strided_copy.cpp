#include "copy/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "copy/thread_pool.h"
#include "machine.h"

namespace splitops {
namespace {

struct Axis {
    Extent extent, source, target;  // strides in bytes
};

// A copy in its simplest equivalent form: no axes of size 1, target strides positive and descending, axes merged where
// possible, and a contiguous innermost axis included in the item.
struct Normal {
    Axis axes[kMaxDims];
    int ndim = 0;
    const char *source;
    char *target;
    Extent itemsize;
    bool empty = false;

    explicit Normal(const StridedCopy &copy) : source(copy.source), target(copy.target), itemsize(copy.itemsize) {
        for (int i = 0; i < copy.ndim; ++i) {
            Axis axis{copy.shape[i], copy.source_strides[i], copy.target_strides[i]};
            if (axis.extent == 0)
                empty = true;
            if (axis.extent <= 1)
                continue;
            if (axis.target < 0) {  // iterate from the other end
                source += (axis.extent - 1) * axis.source;
                target += (axis.extent - 1) * axis.target;
                axis.source = -axis.source;
                axis.target = -axis.target;
            }
            axes[ndim++] = axis;
        }
        std::stable_sort(axes, axes + ndim, [](const Axis &a, const Axis &b) { return a.target > b.target; });
        int kept = 0;
        for (int i = 0; i < ndim; ++i) {
            Axis &last = axes[kept > 0 ? kept - 1 : 0];
            const Axis &axis = axes[i];
            if (kept > 0 && last.source == axis.extent * axis.source && last.target == axis.extent * axis.target)
                last = {last.extent * axis.extent, axis.source, axis.target};
            else
                axes[kept++] = axis;
        }
        ndim = kept;
        if (ndim > 0 && axes[ndim - 1].source == itemsize && axes[ndim - 1].target == itemsize)
            itemsize *= axes[--ndim].extent;
    }
};

// Size is the item size if it is known at compile time, otherwise 0.
template <Extent Size>
void copy_item(char *target, const char *source, Extent size) {
    std::memcpy(target, source, static_cast<std::size_t>(Size != 0 ? Size : size));
}

template <Extent Size>
void copy_line(const Axis &axis, const char *source, char *target, Extent size) {
    for (Extent i = 0; i < axis.extent; ++i)
        copy_item<Size>(target + i * axis.target, source + i * axis.source, size);
}

// A transposition: the source is dense along `minor`, the target along `major`. Small tiles keep the lines of both
// sides in the first-level cache; 8 lines leave room if they share one cache set.
template <Extent Size>
void copy_transposed(const Axis &minor, const Axis &major, const char *source, char *target, Extent size) {
    const Extent minor_tile = std::max<Extent>(1, 2 * kLine / (Size != 0 ? Size : size));
    constexpr Extent major_tile = 8;
    for (Extent k = 0; k < major.extent; k += major_tile) {
        const Extent k_end = std::min(major.extent, k + major_tile);
        for (Extent j = 0; j < minor.extent; j += minor_tile) {
            const Extent j_end = std::min(minor.extent, j + minor_tile);
            for (Extent jj = j; jj < j_end; ++jj)
                for (Extent kk = k; kk < k_end; ++kk)
                    copy_item<Size>(target + jj * minor.target + kk * major.target,
                                    source + jj * minor.source + kk * major.source, size);
        }
    }
}

Extent magnitude(Extent stride) { return stride < 0 ? -stride : stride; }

template <Extent Size>
void copy_block(const Axis *axes, int ndim, const char *source, char *target, Extent size) {
    if (ndim == 0) {
        copy_item<Size>(target, source, size);
        return;
    }
    if (ndim == 1) {
        copy_line<Size>(axes[0], source, target, size);
        return;
    }
    int dense = ndim - 1;  // the axis along which the source is densest
    for (int i = 0; i < ndim; ++i)
        if (magnitude(axes[i].source) < magnitude(axes[dense].source) && axes[i].source != 0)
            dense = i;
    Axis outer[kMaxDims];
    int count = 0;
    for (int i = 0; i < ndim - 1; ++i)
        if (i != dense)
            outer[count++] = axes[i];
    Extent index[kMaxDims] = {};
    for (;;) {
        if (dense == ndim - 1)
            copy_line<Size>(axes[ndim - 1], source, target, size);
        else
            copy_transposed<Size>(axes[dense], axes[ndim - 1], source, target, size);
        int i = count - 1;
        for (; i >= 0; --i) {
            source += outer[i].source;
            target += outer[i].target;
            if (++index[i] < outer[i].extent)
                break;
            source -= outer[i].extent * outer[i].source;
            target -= outer[i].extent * outer[i].target;
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

void copy_normal(const Normal &n, const Axis *axes, const char *source, char *target) {
    switch (n.itemsize) {
        case 1: return copy_block<1>(axes, n.ndim, source, target, 1);
        case 2: return copy_block<2>(axes, n.ndim, source, target, 2);
        case 4: return copy_block<4>(axes, n.ndim, source, target, 4);
        case 8: return copy_block<8>(axes, n.ndim, source, target, 8);
        case 16: return copy_block<16>(axes, n.ndim, source, target, 16);
        default: return copy_block<0>(axes, n.ndim, source, target, n.itemsize);
    }
}

}  // namespace

void strided_copy(const StridedCopy &copy, Extent parallel_bytes) {
    const Normal normal(copy);
    if (normal.empty || normal.itemsize == 0)
        return;
    Extent bytes = normal.itemsize;
    int longest = 0;
    for (int i = 0; i < normal.ndim; ++i) {
        bytes *= normal.axes[i].extent;
        if (normal.axes[i].extent > normal.axes[longest].extent)
            longest = i;
    }
    if (bytes < parallel_bytes || normal.ndim == 0 || thread_pool::threads() == 1) {
        copy_normal(normal, normal.axes, normal.source, normal.target);
        return;
    }
    // Divide the outermost axis, or the longest one if that is too short to share.
    const int cut = normal.axes[0].extent >= 16 ? 0 : longest;
    const Extent extent = normal.axes[cut].extent;
    const Extent wanted = std::min(extent, std::max<Extent>(1, bytes / thread_pool::kTaskBytes));
    const Extent step = (extent + wanted - 1) / wanted;
    thread_pool::for_each(static_cast<std::size_t>((extent + step - 1) / step), [&](std::size_t task) {
        const Extent begin = static_cast<Extent>(task) * step;
        Axis axes[kMaxDims];
        std::copy(normal.axes, normal.axes + normal.ndim, axes);
        axes[cut].extent = std::min(step, extent - begin);
        copy_normal(normal, axes, normal.source + begin * axes[cut].source, normal.target + begin * axes[cut].target);
    });
}

}  // namespace splitops
