// Fast parser for the usual form of a safetensors header.
#pragma once

#include <nanobind/nanobind.h>

namespace splitops::files {

// Adds `read_header` to the module; see splitops.native.files.
void add_safetensors(nanobind::module_ &m);

}  // namespace splitops::files
