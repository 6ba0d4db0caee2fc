// Function: a Python function whose calls on NumPy arrays are cached as plans.
#pragma once

#include <Python.h>

namespace splitops {

// Creates the type and adds it to the module; false with an error set.
bool add_function(PyObject *module);

// Sets the Python function that a lookup of `__call__` of a Function finds, as in plan.h.
bool show_function_call(PyObject *function);

}  // namespace splitops
