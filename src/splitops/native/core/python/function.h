// Function: a Python function whose calls on NumPy arrays are remembered as plans.
#pragma once

#include <Python.h>

namespace splitops {

// Makes the type and adds it to the module; false with an error set.
bool add_function(PyObject *module);

// Lets whoever looks up `__call__` of a Function find a function in Python, as in plan.h.
bool show_function_call(PyObject *function);

}  // namespace splitops
