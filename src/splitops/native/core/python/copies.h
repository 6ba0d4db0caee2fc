// Independent copies of the parts of an array, into fresh or given memory.
#pragma once

#include "python/cuts.h"

namespace splitops {

// Makes the type of the objects that own output memory; false with an error set.
bool init_block_type();

// Fresh, C-contiguous, writeable parts in their container; `cuts` must match the array. Null with an error set.
// All parts lie in one slab of pooled memory, or each in an own one with `separate`.
PyObject *make_copies(PyArrayObject *array, const Cuts &cuts, bool separate = false);

// Fills `out`, a sequence of arrays of the exact shapes and dtype. False with an error set.
bool copy_into(PyArrayObject *array, const Cuts &cuts, PyObject *out);

// The arrays of `out`, filled, if they fit and surely share no memory: with the array, one another, or within
// themselves. Else None, and nothing is written. Null with an error set.
PyObject *fill(PyArrayObject *array, const Cuts &cuts, PyObject *out);

}  // namespace splitops
