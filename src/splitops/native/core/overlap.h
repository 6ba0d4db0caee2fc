// Whether arrays can share memory, decided by the bounds of their addresses.
#pragma once

#include "numpy_api.h"

#include <vector>

namespace splitops {

// True proves that no array of `out` shares memory with `data`, with another one, or one of its elements with
// another; false proves nothing: interleaved arrays have bounds that cross.
bool are_disjoint(PyArrayObject *data, const std::vector<PyArrayObject *> &out);

}  // namespace splitops
