// Creates arrays that differ little, one after the other: the parts of one split.
#pragma once

#include "python/numpy_api.h"

namespace splitops {

// Creates arrays of one dtype. All have the same extents except along one axis.
class ArrayMaker {
  public:
    npy_intp shape[NPY_MAXDIMS];    // must be set before the first array is created
    npy_intp strides[NPY_MAXDIMS];  // must be set, too, unless they are the default strides of a new array

    // `axis`: the axis whose extents differ, or -1. `strided`: use `strides`. `alike`: arrays of equal extents have
    // equal flags, so those of one array apply to the next.
    ArrayMaker(PyArray_Descr *descr, int ndim, int axis, bool strided, int flags, bool alike)
        : descr_(descr), ndim_(ndim), axis_(axis), strided_(strided), flags_(flags), alike_(alike) {}

    // An array at `data`, in memory that `owner` keeps, with `extent` on the axis; null with an error set. The previous
    // array must still exist.
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
    const PyArrayObject_fields *last_ = nullptr;  // with the current extents, if other arrays can be created like it
};

}  // namespace splitops
