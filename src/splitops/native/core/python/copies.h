// Independent copies of the parts of an array, into new or given memory.
#pragma once

#include "python/cuts.h"

namespace splitops {

// Creates the type of the objects that own output memory; false with an error set.
bool init_block_type();

// New, C-contiguous, writeable parts in their container; `cuts` must match the array. Null with an error set. All parts
// are in one block of memory or, with `separate`, in a block each.
PyObject *make_copies(PyArrayObject *array, const Cuts &cuts, bool separate = false);

// Fills `out`, a sequence of arrays of the exact shapes and dtype. False with an error set.
bool copy_into(PyArrayObject *array, const Cuts &cuts, PyObject *out);

// The arrays of `out`, filled, if they match and certainly share no memory with the array, each other or themselves.
// Otherwise None, and nothing is written. Null with an error set.
PyObject *fill(PyArrayObject *array, const Cuts &cuts, PyObject *out);

}  // namespace splitops
