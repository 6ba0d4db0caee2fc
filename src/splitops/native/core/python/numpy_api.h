// NumPy's C API for all source files. Only module.cpp defines the table (SPLITOPS_NUMPY_TABLE).
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL splitops_numpy_api
#ifndef SPLITOPS_NUMPY_TABLE
#define NO_IMPORT_ARRAY
#endif

#include <Python.h>

#include <numpy/arrayobject.h>
