// What Python sees of the files' part of the core.
#pragma once

#include <nanobind/nanobind.h>

namespace splitops::files {

void add_functions(nanobind::module_ &module);

}  // namespace splitops::files
