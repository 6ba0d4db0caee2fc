// Called: a base of Python classes whose instances are called without entering Python.
#pragma once

#include <Python.h>

namespace splitops {

// Makes the type and adds it to the module; false with an error set.
bool add_called(PyObject *module);

}  // namespace splitops
