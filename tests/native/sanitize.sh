#!/usr/bin/env bash
# Runs the tests of the native core, and those of files and calls that it does, under the address and undefined-behaviour sanitizers.
#
#   tests/native/sanitize.sh [pytest arguments]
#
# Builds the core into a directory of its own and leaves the installed one alone. Needs gcc or clang with its
# sanitizer runtimes, CMake, and as `python` (or in $PYTHON) a Python with what the tests need and nanobind.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
build=${SANITIZE_DIR:-$(mktemp -d)}

cmake -S "$root" -B "$build/cmake" -DPython_EXECUTABLE="$(command -v "$python")" -DSPLITOPS_SANITIZE=ON >/dev/null
cmake --build "$build/cmake" --parallel 2 >/dev/null
# A copy of the package with the instrumented core, found before any installed one.
mkdir -p "$build/src"
cp -r "$root/src/splitops" "$build/src/"
rm -f "$build"/src/splitops/native/_core*.so
cp "$build"/cmake/_core*.so "$build/src/splitops/native/"

compiler=${CXX:-c++}
runtimes=()
for name in libasan.so libubsan.so libclang_rt.asan-x86_64.so; do
    path=$("$compiler" -print-file-name="$name")
    [[ $path == /* ]] && runtimes+=("$path")
done
# Without `site`, which would let an editable install be found before the copy.
libraries=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
# Python is not instrumented: its own allocator would hide overruns, and what it never frees is no leak of ours.
cd "$root"
# The test of the guard pages ends processes on purpose; the test without memory asks for 2 ** 50 bytes.
LD_PRELOAD="${runtimes[*]}" PYTHONMALLOC=malloc PYTHONPATH="$build/src:$libraries" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0 \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    "$python" -S -m pytest tests/native tests/files/test_{extents,native_files}.py \
    tests/core/test_{functions,out,plan_calls,remembered_calls}.py -p no:cacheprovider -q "$@"
