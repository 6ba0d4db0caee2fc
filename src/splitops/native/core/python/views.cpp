#include "python/views.h"

#include "python/array_maker.h"

namespace splitops {
namespace {

// NumPy's flag of arrays that warn when they are written (np.broadcast_arrays); not in its public headers.
constexpr int kWarnOnWrite = static_cast<int>(1u << 31);

// Creates the parts of one array, whose owner is the end of its chain of views.
class ViewMaker {
  public:
    ViewMaker(PyArrayObject *array, const Cuts &cuts)
        : cuts_(cuts),
          owner_(owner_of(array)),
          data_(PyArray_BYTES(array)),
          axis_stride_(PyArray_STRIDE(array, cuts.axis)),
          canonical_(cuts.axis == 0 && is_canonical(array)),
          make_(PyArray_DESCR(array), cuts.part_ndim(), cuts.squeeze ? -1 : cuts.axis, !canonical_,
                PyArray_FLAGS(array) & (NPY_ARRAY_WRITEABLE | kWarnOnWrite | (canonical_ ? NPY_ARRAY_ALIGNED : 0)),
                PyArray_ISALIGNED(array)) {
        int n = 0;
        for (int i = 0; i < cuts.ndim; ++i) {
            if (i == cuts.axis && cuts.squeeze)
                continue;
            make_.shape[n] = cuts.shape[i];
            make_.strides[n++] = PyArray_STRIDE(array, i);
        }
    }

    PyArrayObject *operator()(std::size_t index) {
        char *const data = data_ + cuts_.offsets[index] * axis_stride_;
        return reinterpret_cast<PyArrayObject *>(make_(data, cuts_.sizes[index], owner_));
    }

  private:
    // Then NumPy does not have to check the strides of each part, which is a quarter of the time of a view.
    static bool is_canonical(PyArrayObject *array) {
        // A structure may end unaligned. An alignment is a power of two; a division would take as long as a whole
        // check.
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

    static PyObject *owner_of(PyArrayObject *array) {
        while (!PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA)) {
            PyObject *base = PyArray_BASE(array);
            if (base == nullptr || !PyArray_CheckExact(base))
                break;
            array = reinterpret_cast<PyArrayObject *>(base);
        }
        return reinterpret_cast<PyObject *>(array);
    }

    const Cuts &cuts_;
    PyObject *owner_;
    char *data_;
    npy_intp axis_stride_;
    bool canonical_;  // parts are C-contiguous, with the default strides of a new array
    ArrayMaker make_;
};

// NumPy's C API extends items of zero bytes ('S0', 'V0') to one byte. Python's slicing keeps them.
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
