// CallCache: from the very arguments of an earlier call to its compiled plan. Recall: a function with such a memo.
#pragma once

#include <Python.h>

#include <cstddef>

namespace splitops {

// Makes the types and adds them to the module; false with an error set.
bool add_call_cache(PyObject *module);
bool add_recall(PyObject *module);

bool is_recall(PyObject *object);
PyObject *call_recall(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames);

}  // namespace splitops
