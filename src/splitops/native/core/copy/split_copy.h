// Copies the parts of a split into their buffers. It only knows bytes, extents and strides.
#pragma once

#include <cstddef>

#include "copy/strided_copy.h"

namespace splitops {

struct SplitSource {
    const char *data;
    int ndim;
    const Extent *shape;
    const Extent *strides;  // bytes
    Extent itemsize;        // bytes
    int axis;
};

struct SplitTarget {
    char *data;
    Extent offset;          // along the axis of the source
    Extent size;            // along the axis
    const Extent *strides;  // bytes, one per axis of the part; null: C-contiguous
};

// Copies each part into its target. The targets overlap neither the source nor each other, and offsets and sizes are
// inside the axis. `squeeze`: the targets lack the axis, and each size is 1. `fresh`: the pages of the targets have not
// been touched yet. Throws std::bad_alloc.
void split_copy(const SplitSource &source, const SplitTarget *targets, std::size_t count, bool squeeze, bool fresh);

// Minimum bytes of a copy that releases the interpreter.
constexpr Extent kReleaseBytes = Extent{64} << 10;

// Minimum bytes of a copy that is shared between threads, and of one that bypasses the caches. Tests lower them to
// reach every path with small arrays.
struct Thresholds {
    Extent parallel;
    Extent stream;
};

Thresholds thresholds();
void set_thresholds(Thresholds values);

}  // namespace splitops
