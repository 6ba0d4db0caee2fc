// Independent copies of the parts of an array, into fresh or given memory.
#pragma once

#include "cuts.h"

namespace splitops {

// Makes the type of the objects that own output memory; false with an error set.
bool init_block_type();

// A tuple of fresh, C-contiguous, writeable parts; `cuts` must match the array. Null with an error set.
// All parts lie in one slab of pooled memory, or each in an own one with `separate`.
PyObject *make_copies(PyArrayObject *array, const Cuts &cuts, bool separate);

// Fills `out`, a sequence of arrays of the exact shapes and dtype. False with an error set.
bool copy_into(PyArrayObject *array, const Cuts &cuts, PyObject *out);

}  // namespace splitops
