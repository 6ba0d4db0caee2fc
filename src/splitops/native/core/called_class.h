// Classes of Python whose instances are called without entering Python, where a Splitter or a Recall can do the call.
#pragma once

#include "numpy_api.h"

namespace splitops {

// Lets calls of instances of `type` with one fitting array alone be done by the Splitter in their slot `slot`; every
// other call goes to the class's own `__call__`, which must give the same. False with an error set.
bool call_by_splitter(PyObject *type, PyObject *slot);

// The same for all calls of instances with a Recall in their slot.
bool call_by_recall(PyObject *type, PyObject *slot);

}  // namespace splitops
