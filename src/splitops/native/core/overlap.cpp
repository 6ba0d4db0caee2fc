#include "overlap.h"

#include <algorithm>
#include <cstdint>

namespace splitops {
namespace {

struct Bounds {
    std::intptr_t low;
    std::intptr_t high;  // past the last byte
};

Bounds bounds_of(PyArrayObject *array) {
    Bounds bounds{reinterpret_cast<std::intptr_t>(PyArray_BYTES(array)), 0};
    bounds.high = bounds.low + PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        const npy_intp reach = PyArray_STRIDE(array, i) * (PyArray_DIM(array, i) - 1);
        (reach < 0 ? bounds.low : bounds.high) += reach;
    }
    return bounds;
}

// Whether each stride steps over all that the smaller strides reach, as in every array made without tricks.
bool is_spread_out(PyArrayObject *array) {
    struct Extent {
        npy_intp stride, size;
    } extents[NPY_MAXDIMS];
    int n = 0;
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        if (PyArray_DIM(array, i) > 1)
            extents[n++] = {std::abs(PyArray_STRIDE(array, i)), PyArray_DIM(array, i)};
    std::sort(extents, extents + n, [](const Extent &a, const Extent &b) { return a.stride < b.stride; });
    npy_intp reach = PyArray_ITEMSIZE(array);
    for (int i = 0; i < n; ++i) {
        if (extents[i].stride < reach)
            return false;
        reach += extents[i].stride * (extents[i].size - 1);
    }
    return true;
}

}  // namespace

bool are_disjoint(PyArrayObject *data, const std::vector<PyArrayObject *> &out) {
    std::vector<Bounds> bounds;
    bounds.reserve(out.size() + 1);
    if (PyArray_SIZE(data) != 0)
        bounds.push_back(bounds_of(data));
    for (PyArrayObject *array : out) {
        if (PyArray_SIZE(array) == 0)
            continue;
        if (!is_spread_out(array))
            return false;
        bounds.push_back(bounds_of(array));
    }
    std::sort(bounds.begin(), bounds.end(), [](const Bounds &a, const Bounds &b) { return a.low < b.low; });
    for (std::size_t i = 1; i < bounds.size(); ++i)
        if (bounds[i].low < bounds[i - 1].high)
            return false;
    return true;
}

}  // namespace splitops
