#include "views.h"

namespace splitops {
namespace {

// NumPy's mark of arrays that warn when they are written (np.broadcast_arrays); not in its public headers.
constexpr int kWarnOnWrite = static_cast<int>(1u << 31);

// What all parts of one array have in common; made once, so that a part costs one allocation.
struct ViewMaker {
    PyArray_Descr *descr;
    PyObject *base;
    const Cuts &cuts;
    char *data;
    npy_intp axis_stride;
    int ndim;
    int flags;
    bool canonical;  // parts are C-contiguous with the strides that NumPy would give a new array
    npy_intp shape[NPY_MAXDIMS];
    npy_intp strides[NPY_MAXDIMS];

    ViewMaker(PyArrayObject *array, const Cuts &cuts_)
        : descr(PyArray_DESCR(array)),
          base(owner_of(array)),
          cuts(cuts_),
          data(PyArray_BYTES(array)),
          axis_stride(PyArray_STRIDE(array, cuts_.axis)),
          ndim(cuts_.part_ndim()),
          flags(PyArray_FLAGS(array) & (NPY_ARRAY_WRITEABLE | kWarnOnWrite)) {
        int n = 0;
        for (int i = 0; i < cuts.ndim; ++i) {
            if (i == cuts.axis && cuts.squeeze)
                continue;
            shape[n] = cuts.shape[i];
            strides[n++] = PyArray_STRIDE(array, i);
        }
        canonical = cuts.axis == 0 && is_canonical(array);
        if (canonical)  // else NumPy finds out for each part
            flags |= PyArray_FLAGS(array) & NPY_ARRAY_ALIGNED;
    }

    // Then NumPy need not look at the strides of each part, which is a quarter of the time of a view.
    static bool is_canonical(PyArrayObject *array) {
        // A structure may end unaligned; an alignment is a power of two, and a division takes as long as a whole look.
        const npy_intp alignment = PyDataType_ALIGNMENT(PyArray_DESCR(array));
        npy_intp expected = PyArray_ITEMSIZE(array);
        if (alignment > 1 && (expected & (alignment - 1)) != 0)
            return false;
        for (int i = PyArray_NDIM(array) - 1; i >= 0; --i) {
            if (PyArray_STRIDE(array, i) != expected)
                return false;
            expected *= PyArray_DIM(array, i);
        }
        return expected != 0;
    }

    // The end of the chain of views. NumPy walks this chain for every view; once for all parts is enough.
    static PyObject *owner_of(PyArrayObject *array) {
        while (!PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA)) {
            PyObject *base = PyArray_BASE(array);
            if (base == nullptr || !PyArray_CheckExact(base))
                break;
            array = reinterpret_cast<PyArrayObject *>(base);
        }
        return reinterpret_cast<PyObject *>(array);
    }

    PyArrayObject *operator()(std::size_t index) {
        if (!cuts.squeeze)
            shape[cuts.axis] = cuts.sizes[index];
        Py_INCREF(descr);
        PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, canonical ? nullptr : strides,
                                              data + cuts.offsets[index] * axis_stride, flags, nullptr);
        if (view == nullptr)
            return nullptr;
        PyArrayObject *part = reinterpret_cast<PyArrayObject *>(view);
        set_base(part, base);
        return part;
    }
};

// NumPy's C API widens items of zero bytes ('S0', 'V0') to one byte; Python's slicing keeps them.
PyArrayObject *slice(PyArrayObject *array, const Cuts &cuts, std::size_t index) {
    PyObject *key = PyTuple_New(cuts.axis + 2);
    if (key == nullptr)
        return nullptr;
    for (int i = 0; i <= cuts.axis; ++i) {
        const bool cut = i == cuts.axis;
        PyObject *item;
        if (cut && cuts.squeeze) {
            item = PyLong_FromSsize_t(cuts.offsets[index]);
        } else {
            PyObject *start = PyLong_FromSsize_t(cut ? cuts.offsets[index] : 0);
            PyObject *stop = PyLong_FromSsize_t(cut ? cuts.offsets[index] + cuts.sizes[index] : cuts.shape[i]);
            item = start != nullptr && stop != nullptr ? PySlice_New(start, stop, nullptr) : nullptr;
            Py_XDECREF(start);
            Py_XDECREF(stop);
        }
        if (item == nullptr) {
            Py_DECREF(key);
            return nullptr;
        }
        PyTuple_SET_ITEM(key, i, item);
    }
    Py_INCREF(Py_Ellipsis);  // keeps a squeezed 1-D array an array
    PyTuple_SET_ITEM(key, cuts.axis + 1, Py_Ellipsis);
    PyObject *view = PyObject_GetItem(reinterpret_cast<PyObject *>(array), key);
    Py_DECREF(key);
    return reinterpret_cast<PyArrayObject *>(view);
}

}  // namespace

PyArrayObject *make_view(PyArrayObject *array, const Cuts &cuts, std::size_t index) {
    if (PyArray_ITEMSIZE(array) == 0)
        return slice(array, cuts, index);
    return ViewMaker(array, cuts)(index);
}

PyObject *make_views(PyArrayObject *array, const Cuts &cuts) {
    const std::size_t n = cuts.count();
    PyObject *parts = cuts.new_container();
    if (parts == nullptr)
        return nullptr;
    PyObject **items = PySequence_Fast_ITEMS(parts);
    ViewMaker make(array, cuts);
    const bool by_slicing = PyArray_ITEMSIZE(array) == 0;
    for (std::size_t i = 0; i < n; ++i) {
        PyArrayObject *part = by_slicing ? slice(array, cuts, i) : make(i);
        if (part == nullptr) {
            Py_DECREF(parts);
            return nullptr;
        }
        items[i] = reinterpret_cast<PyObject *>(part);
    }
    return parts;
}

}  // namespace splitops
