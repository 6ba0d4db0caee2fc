#!/usr/bin/env bash
# Builds the harness of the native core, where its sources have changed, and prints where it is.
#
#   dev/fuzz/core/build.sh FOLDER          for libFuzzer, with the sanitizers, by clang
#   dev/fuzz/core/build.sh FOLDER replay   for the files that it is given, without sanitizers, by any compiler
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
folder=$1/core-build${2:+-$2}
core=$root/src/splitops/native/core
sources=("$root/dev/fuzz/core/harness.cpp" "$core"/{copy,isa,memory}/*.cpp "$core"/files/{crc32,extent_copy}.cpp)
flags=(-std=c++20 -Wall -Wextra -pthread)
if [ "${2:-}" = replay ]; then
    compiler=${CXX:-c++}
    flags+=(-DREPLAY)
else
    compiler=${CLANGXX:-clang++}
    flags+=(-g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
    last=(-fsanitize=fuzzer)
fi
mkdir -p "$folder"
for source in "${sources[@]}"; do
    object=$folder/$(basename "$source").o
    if [ ! -e "$object" ] || [ -n "$(find "$source" "$core" "$root/dev/fuzz/core" -name '*.h' -newer "$object")" ] ||
        [ "$source" -nt "$object" ]; then
        "$compiler" "${flags[@]}" -I "$core" -I "$root/dev/fuzz/core" -c "$source" -o "$object"
    fi
done
"$compiler" "${flags[@]}" ${last[@]+"${last[@]}"} "$folder"/*.o -o "$folder/harness"
echo "$folder/harness"
