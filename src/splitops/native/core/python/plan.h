// Plan: a checked split of arrays of one shape as a Python object, with the cheapest call there is.
#pragma once

#include "python/cuts.h"

namespace splitops {

struct Plan {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *shape, *offsets, *sizes;  // tuples, as they were given
    Cuts cuts;
};

// Makes the type, a subclass of the Python class `base`, and adds it to the module; false with an error set.
bool add_plan(PyObject *module, PyObject *base);

// Gives instances of the type `__call__` in Python, for whatever they do not do here, and for who looks it up.
bool set_general_call(PyObject *function);

bool is_plan(PyObject *object);

// The parts of an array that the plan fits, as views, copies (`copy`), or in the buffers of `out` unless this is None;
// null with an error set.
PyObject *run_plan(PyObject *plan, PyObject *array, PyObject *copy, PyObject *out);

// Whether `copy=` is what can be done without asking Python what it means.
inline bool is_copy_argument(const PyObject *copy) { return copy == Py_None || copy == Py_True || copy == Py_False; }

// Puts a function into the dictionary of a type whose slot for the call stays as it is. Whoever looks `__call__` up,
// such as a tracer or `inspect`, finds a function in Python.
bool show_call(PyTypeObject *type, PyObject *function);

}  // namespace splitops
