#include "python/overlap.h"

#include <algorithm>
#include <cstdint>

namespace splitops {
namespace {

// Whether each stride is larger than the extent of all smaller strides, as in every array without stride tricks.
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

Bounds bounds_of(PyArrayObject *array) {
    Bounds bounds{reinterpret_cast<std::intptr_t>(PyArray_BYTES(array)), 0};
    bounds.high = bounds.low + PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        const npy_intp reach = PyArray_STRIDE(array, i) * (PyArray_DIM(array, i) - 1);
        (reach < 0 ? bounds.low : bounds.high) += reach;
    }
    return bounds;
}

bool Stretches::add(PyArrayObject *array) {
    if (!PyArray_IS_C_CONTIGUOUS(array) && !is_spread_out(array))
        return false;
    add(bounds_of(array));
    return true;
}

bool Stretches::are_disjoint() {
    std::sort(stretches_.begin(), stretches_.end(), [](const Bounds &a, const Bounds &b) { return a.low < b.low; });
    for (std::size_t i = 1; i < stretches_.size(); ++i)
        if (stretches_[i].low < stretches_[i - 1].high)
            return false;
    return true;
}

bool are_disjoint(PyArrayObject *data, PyArrayObject *const *out, std::size_t count) {
    Stretches stretches(0);
    if (PyArray_SIZE(data) != 0)
        stretches.add(bounds_of(data));
    for (std::size_t i = 0; i < count; ++i)
        if (PyArray_SIZE(out[i]) != 0 && !stretches.add(out[i]))
            return false;
    return stretches.are_disjoint();
}

}  // namespace splitops
