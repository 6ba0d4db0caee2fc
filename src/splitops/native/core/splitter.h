// Splitter: a compiled plan as a Python object, with the cheapest call there is.
#pragma once

#include "cuts.h"

namespace splitops {

struct Splitter {
    PyObject_HEAD
    vectorcallfunc call;
    Cuts cuts;
};

// Makes the type and adds it to the module; false with an error set.
bool add_splitter(PyObject *module);

bool is_splitter(PyObject *object);

// Whether the object is an exact array of the shape that the splitter is for.
bool fits(PyObject *splitter, PyObject *object);

// The parts of an array that fits; null with an error set.
PyObject *split_views(PyObject *splitter, PyObject *array);

}  // namespace splitops
