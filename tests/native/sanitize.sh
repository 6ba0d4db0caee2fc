#!/usr/bin/env bash
# Runs the tests of the native core, and those of files and calls that it does, under sanitizers.
#
#   tests/native/sanitize.sh [pytest arguments]          address and undefined behaviour
#   tests/native/sanitize.sh thread [pytest arguments]   races between threads
#
# Builds the core into a directory of its own and leaves the installed one alone. Needs gcc or clang with its
# sanitizer runtimes, CMake, and as `python` (or in $PYTHON) a Python with what the tests need and nanobind.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
sanitizers=address,undefined
runtimes=(libasan.so libubsan.so libclang_rt.asan-x86_64.so)
if [ "${1:-}" = thread ]; then
    sanitizers=thread
    runtimes=(libtsan.so libclang_rt.tsan-x86_64.so)
    shift
fi
build=${SANITIZE_DIR:-$(mktemp -d)}

cmake -S "$root" -B "$build/cmake" -DPython_EXECUTABLE="$(command -v "$python")" -DCMAKE_BUILD_TYPE=Debug \
    -DSPLITOPS_SANITIZE="$sanitizers" >/dev/null
cmake --build "$build/cmake" --parallel 2 >/dev/null
# A copy of the package with the instrumented core, found before any installed one, by child processes too: what
# would find an editable install first is replaced by nothing.
rm -rf "$build/src"
mkdir -p "$build/src"
cp -r "$root/src/splitops" "$build/src/"
rm -f "$build"/src/splitops/native/_core*.so
cp "$build"/cmake/_core*.so "$build/src/splitops/native/"
touch "$build/src/_editable_skbc_splitops.py"

compiler=${CXX:-c++}
preloaded=()
for name in "${runtimes[@]}"; do
    path=$("$compiler" -print-file-name="$name")
    [[ $path == /* ]] && preloaded+=("$path")
done
# Python is not instrumented: its own allocator would hide overruns, what it never frees is no leak of ours, and what
# it reads and writes itself is left out of the search for races. Its locks are seen, since they are the system's.
export PYTHONMALLOC=malloc PYTHONPATH="$build/src" LD_PRELOAD="${preloaded[*]}"
# The test of the guard pages ends processes on purpose; the test without memory asks for 2 ** 50 bytes.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:die_after_fork=0:allocator_may_return_null=1:handle_segv=0
# A sanitizer needs memory of its own, which this test denies the process.
limits=tests/native/test_native_threads.py::test_no_memory_is_an_error_wherever_it_ends
cd "$root"
"$python" -c "import sys; from splitops.native import _core; sys.exit(not _core.__file__.startswith('$build'))"
"$python" -m pytest tests/native tests/files/test_{extents,native_files}.py \
    tests/core/test_{functions,out,plan_calls,remembered_calls}.py -p no:cacheprovider -q \
    --deselect "$limits" "$@"
