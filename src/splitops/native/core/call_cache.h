// CallCache: from the very arguments of an earlier call to its compiled plan.
#pragma once

#include <Python.h>

namespace splitops {

// Makes the type and adds it to the module; false with an error set.
bool add_call_cache(PyObject *module);

}  // namespace splitops
