// Arrays that are made one after the other and differ in little: the parts of one split.
#pragma once

#include "python/numpy_api.h"

namespace splitops {

// Makes arrays of one dtype. All have the same extents but for one axis.
class ArrayMaker {
  public:
    npy_intp shape[NPY_MAXDIMS];    // to be filled before the first array is made
    npy_intp strides[NPY_MAXDIMS];  // likewise, unless they are those that NumPy gives a new array

    // `axis`: the one whose extents differ; -1: none. `strided`: with `strides`. `alike`: arrays of equal extents have
    // equal flags, so that one tells those of the next.
    ArrayMaker(PyArray_Descr *descr, int ndim, int axis, bool strided, int flags, bool alike)
        : descr_(descr), ndim_(ndim), axis_(axis), strided_(strided), flags_(flags), alike_(alike) {}

    // An array at `data`, in memory that `owner` keeps, with `extent` on the axis; null with an error set. The array
    // made before must still be there.
    PyObject *operator()(char *data, npy_intp extent, PyObject *owner) {
        if (last_ != nullptr && (axis_ < 0 || extent == shape[axis_]))
            return make_alike(data, owner);
        if (axis_ >= 0)
            shape[axis_] = extent;
        return make(data, owner);
    }

  private:
    PyObject *make(char *data, PyObject *owner);
    PyObject *make_alike(char *data, PyObject *owner);

    PyArray_Descr *descr_;
    int ndim_, axis_;
    bool strided_;
    int flags_;
    bool alike_;
    const PyArrayObject_fields *last_ = nullptr;  // of the current extents, where others may be made like it
};

}  // namespace splitops
