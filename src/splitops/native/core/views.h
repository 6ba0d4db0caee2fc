// Views of the parts of an array, made through NumPy's C API.
#pragma once

#include "cuts.h"

namespace splitops {

// The parts as views in their container; `cuts` must match the array. Null with an error set.
PyObject *make_views(PyArrayObject *array, const Cuts &cuts);

// Part `index` as a view. Null with an error set.
PyArrayObject *make_view(PyArrayObject *array, const Cuts &cuts, std::size_t index);

// Makes `base` keep the memory of an array that has no base yet. PyArray_SetBaseObject walks the chain of bases
// for every array; here the base is the end of it.
inline void set_base(PyArrayObject *array, PyObject *base) {
    reinterpret_cast<PyArrayObject_fields *>(array)->base = Py_NewRef(base);
}

}  // namespace splitops
