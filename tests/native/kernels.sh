#!/usr/bin/env bash
# Builds the kernels alone and holds them against a plain loop; see kernels.cpp.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
core=src/splitops/native/core
"${CXX:-c++}" -std=c++20 -O2 -Wall -Wextra ${CXXFLAGS:-} -static -pthread -I "$core" tests/native/kernels.cpp \
    "$core"/{copy,isa}/*.cpp -o "$build/kernels"
${RUN:-} "$build/kernels"
