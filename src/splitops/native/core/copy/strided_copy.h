// Copies between any two layouts: for everything that does not consist of rows of bytes.
#pragma once

#include <cstddef>

namespace splitops {

using Extent = std::ptrdiff_t;

constexpr int kMaxDims = 64;  // as in NumPy

struct StridedCopy {
    int ndim;
    const Extent *shape;
    const char *source;
    const Extent *source_strides;  // bytes; may be negative or zero
    char *target;
    const Extent *target_strides;  // bytes; may be negative
    Extent itemsize;               // bytes
};

// Source and target must not overlap. Uses several threads from `parallel_bytes` on.
void strided_copy(const StridedCopy &copy, Extent parallel_bytes);

}  // namespace splitops
