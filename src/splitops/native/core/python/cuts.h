// The checked form of one split: where an axis is divided. Every bound is checked here, once.
#pragma once

#include "python/numpy_api.h"

#include <algorithm>
#include <vector>

namespace splitops {

// Like std::equal, which calls memcmp: too expensive for two or three words.
inline bool same_extents(const npy_intp *a, const npy_intp *b, int ndim) {
    int i = 0;
    while (i < ndim && a[i] == b[i])
        ++i;
    return i == ndim;
}

struct Cuts {
    int ndim = 0;                      // -1: more than any array can have
    int axis = 0;
    bool squeeze = false;              // drop the axis from the parts; every size is 1
    bool listed = false;               // return the parts in a list instead of a tuple
    npy_intp shape[NPY_MAXDIMS];       // of the array to split
    std::vector<npy_intp> offsets;     // of each part along the axis
    std::vector<npy_intp> sizes;       // of each part along the axis

    std::size_t count() const { return sizes.size(); }
    int part_ndim() const { return ndim - (squeeze ? 1 : 0); }

    bool matches(PyArrayObject *array) const {
        return PyArray_NDIM(array) == ndim && same_extents(shape, PyArray_DIMS(array), ndim);
    }

    // A tuple or list for the parts, whose items the caller sets next; null with an error set.
    PyObject *new_container() const {
        const Py_ssize_t n = static_cast<Py_ssize_t>(count());
        return listed ? PyList_New(n) : PyTuple_New(n);
    }

    // Writes the shape of part `index` to `out`. Only the extent of the axis differs between parts.
    void part_shape(std::size_t index, npy_intp *out) const {
        int n = 0;
        for (int i = 0; i < ndim; ++i) {
            if (i != axis)
                out[n++] = shape[i];
            else if (!squeeze)
                out[n++] = sizes[index];
        }
    }
};

// Copies a tuple or list of ints to a new tuple, which no other thread can change; null with a TypeError set.
PyObject *integer_tuple(PyObject *sequence, const char *what);

// Fills `cuts` from tuples; false with a Python error set (TypeError or ValueError).
bool read_cuts(PyObject *shape, Py_ssize_t axis, PyObject *offsets, PyObject *sizes, bool squeeze, Cuts &cuts);

// `object` as an exact np.ndarray, or null with a TypeError set.
PyArrayObject *exact_array(PyObject *object);

// Sets the ValueError for an array that does not have the shape of the plan.
void set_shape_error(PyObject *shape, PyArrayObject *array);

}  // namespace splitops
