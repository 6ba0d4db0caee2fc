// The header of a safetensors file in the form that its writers give it.
#pragma once

#include <nanobind/nanobind.h>

namespace splitops::files {

// Adds `read_header`; see splitops.native.files.
void add_safetensors(nanobind::module_ &m);

}  // namespace splitops::files
