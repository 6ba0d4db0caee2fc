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

// The parts of an array whose shape is the splitter's; null with an error set.
PyObject *split_views(const Splitter *splitter, PyArrayObject *array);

}  // namespace splitops
