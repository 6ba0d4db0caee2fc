#include "python/cuts.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace splitops {
namespace {

// Limits the number of dimensions of the messages below and of the arrays in Cuts.
static_assert(NPY_MAXDIMS <= 64, "Cuts keeps its shape inline");

bool read_integers(PyObject *tuple, const char *what, std::vector<npy_intp> &out) {
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    out.resize(static_cast<std::size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_Check(item)) {
            PyErr_Format(PyExc_TypeError, "%s[%zd] must be an int, not %.80s", what, i, Py_TYPE(item)->tp_name);
            return false;
        }
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0) {
            PyErr_Format(PyExc_ValueError, "%s[%zd] does not fit into 64 bits", what, i);
            return false;
        }
        out[static_cast<std::size_t>(i)] = static_cast<npy_intp>(value);
    }
    return true;
}

bool check_cuts(const Cuts &cuts, npy_intp extent) {
    for (std::size_t i = 0; i < cuts.count(); ++i) {
        const npy_intp offset = cuts.offsets[i];
        const npy_intp size = cuts.sizes[i];
        // `extent - offset` cannot overflow once offset lies in [0, extent].
        if (offset < 0 || offset > extent || size < 0 || size > extent - offset) {
            PyErr_Format(PyExc_ValueError, "part %zu at offset %zd with size %zd lies outside axis %d of size %zd", i,
                         static_cast<Py_ssize_t>(offset), static_cast<Py_ssize_t>(size), cuts.axis,
                         static_cast<Py_ssize_t>(extent));
            return false;
        }
        if (cuts.squeeze && size != 1) {
            PyErr_Format(PyExc_ValueError, "part %zu has size %zd: only an axis of size 1 can be removed", i,
                         static_cast<Py_ssize_t>(size));
            return false;
        }
    }
    return true;
}

}  // namespace

PyObject *integer_tuple(PyObject *sequence, const char *what) {
    if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple or list of int, not %.80s", what,
                     Py_TYPE(sequence)->tp_name);
        return nullptr;
    }
    return PySequence_Tuple(sequence);
}

bool read_cuts(PyObject *shape, Py_ssize_t axis, PyObject *offsets, PyObject *sizes, bool squeeze, Cuts &cuts) {
    std::vector<npy_intp> extents;
    if (!read_integers(shape, "shape", extents) || !read_integers(offsets, "offsets", cuts.offsets) ||
        !read_integers(sizes, "sizes", cuts.sizes))
        return false;
    for (const npy_intp extent : extents)
        if (extent < 0) {
            PyErr_Format(PyExc_ValueError, "shape has the negative extent %zd", static_cast<Py_ssize_t>(extent));
            return false;
        }
    if (axis < 0 || axis >= static_cast<Py_ssize_t>(extents.size())) {
        PyErr_Format(PyExc_ValueError, "axis %zd is outside [0, %zu)", axis, extents.size());
        return false;
    }
    cuts.axis = static_cast<int>(axis);
    cuts.squeeze = squeeze;
    cuts.ndim = -1;
    if (extents.size() <= NPY_MAXDIMS) {
        cuts.ndim = static_cast<int>(extents.size());
        std::copy(extents.begin(), extents.end(), cuts.shape);
    }
    if (cuts.offsets.size() != cuts.sizes.size()) {
        PyErr_Format(PyExc_ValueError, "%zu offsets, but %zu sizes", cuts.offsets.size(), cuts.sizes.size());
        return false;
    }
    return check_cuts(cuts, extents[static_cast<std::size_t>(axis)]);
}

PyArrayObject *exact_array(PyObject *object) {
    if (!PyArray_CheckExact(object)) {
        PyErr_Format(PyExc_TypeError, "expected an np.ndarray (no subclass), got %.80s", Py_TYPE(object)->tp_name);
        return nullptr;
    }
    return reinterpret_cast<PyArrayObject *>(object);
}

void set_shape_error(PyObject *shape, PyArrayObject *array) {
    const nb::object got = nb::steal(PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array)));
    if (got.is_valid())
        PyErr_Format(PyExc_ValueError, "this plan is for shape %R, got an array of shape %R", shape, got.ptr());
}

}  // namespace splitops
