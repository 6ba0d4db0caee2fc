// Plan: a checked split of arrays of one shape as a Python object, with calls as cheap as possible.
#pragma once

#include "python/cuts.h"

namespace splitops {

struct Plan {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *shape, *offsets, *sizes;  // tuples, as passed
    Cuts cuts;
};

// Creates the type, a subclass of the Python class `base`, and adds it to the module; false with an error set.
bool add_plan(PyObject *module, PyObject *base);

// Sets the Python `__call__` of the type: for calls that are not handled here, and for lookups.
bool set_general_call(PyObject *function);

bool is_plan(PyObject *object);

// The parts of an array of the plan's shape as views, as copies (`copy`), or in the buffers of `out` unless it is None;
// null with an error set.
PyObject *run_plan(PyObject *plan, PyObject *array, PyObject *copy, PyObject *out);

// Whether `copy=` has a value that can be handled without calling Python.
inline bool is_copy_argument(const PyObject *copy) { return copy == Py_None || copy == Py_True || copy == Py_False; }

// Puts a function into the dictionary of a type without changing the slot for calls. A lookup of `__call__`, as by a
// tracer or `inspect`, finds this Python function.
bool show_call(PyTypeObject *type, PyObject *function);

}  // namespace splitops
