// Python bindings of the core for files.
#pragma once

#include <nanobind/nanobind.h>

namespace splitops::files {

void add_functions(nanobind::module_ &module);

}  // namespace splitops::files
