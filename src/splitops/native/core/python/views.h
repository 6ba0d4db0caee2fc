// Views of the parts of an array.
#pragma once

#include "python/cuts.h"

namespace splitops {

// The parts as views in their container; `cuts` must match the array. Null with an error set.
PyObject *make_views(PyArrayObject *array, const Cuts &cuts);

// Part `index` as a view. Null with an error set.
PyArrayObject *make_view(PyArrayObject *array, const Cuts &cuts, std::size_t index);

}  // namespace splitops
