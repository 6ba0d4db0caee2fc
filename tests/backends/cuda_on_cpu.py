"""The CUDA C kernels compiled for the CPU, one thread after the other, and a CuPy that launches them.

The kernels use no shared memory and no synchronisation, so that running the threads in turn is the same.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from splitops.backends.gpu.cupy_kernels import Call, source

_SHIM = """
#define __device__
#define __global__
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;
struct alignas(16) uint4 { unsigned x, y, z, w; };
"""

_LOOP = """
#define EVERY_THREAD(call)                                                  \\
    blockDim.x = threads;                                                   \\
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)                 \\
        for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) call;

extern "C" void launch_copy_runs(
    unsigned blocks, unsigned threads, u64 s, i64 d, i64 r, i64 c, const Table* t
) { EVERY_THREAD(copy_runs(s, d, r, c, *t)) }

extern "C" void launch_copy_short_runs(
    unsigned blocks, unsigned threads, u64 s, i64 d, i64 r, i64 c, i64 run, i64 unit, const Table* t
) { EVERY_THREAD(copy_short_runs(s, d, r, c, run, unit, *t)) }
"""


@cache
def compiled(folder: Path) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text(_SHIM + source() + _LOOP)
    flags = ["-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-w"]
    subprocess.run([compiler, *flags, str(text), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def launch(folder: Path, call: Call, threads: int) -> None:
    """Run every thread of a launch, with the arguments as CuPy would pass them."""
    *scalars, table = call.arguments
    assert isinstance(table, np.ndarray)
    assert table.nbytes + 8 * len(scalars) <= 4096, "more than every GPU takes as arguments"
    kinds = {"u": ctypes.c_uint64, "i": ctypes.c_int64}
    arguments = [kinds[scalar.dtype.kind](int(scalar)) for scalar in scalars]
    function = getattr(compiled(folder), f"launch_{call.kernel}")
    function(
        ctypes.c_uint(call.blocks), ctypes.c_uint(threads), *arguments, ctypes.c_void_p(table.ctypes.data)
    )


def cupy_on_cpu(folder: Path) -> ModuleType:
    """Return what the backend uses of CuPy, on NumPy's memory; its ``launches`` counts the kernels."""
    module: Any = ModuleType("cupy")

    class Device:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    device = Device()

    class ndarray(np.ndarray[Any, Any]):
        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.ctypes.data)

        @property
        def device(self) -> Any:
            return device

    class RawKernel:
        def __init__(self, code: str, name: str) -> None:
            assert code == source()
            self.name = name

        def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            launch(folder, Call(self.name, grid[0], arguments), block[0])
            module.launches += 1

    module.launches = 0
    module.ndarray = ndarray
    module.RawKernel = RawKernel
    module.asarray = lambda array: np.asarray(array).view(ndarray)
    module.asnumpy = lambda array: np.array(array)
    module.empty = lambda shape, dtype: np.empty(shape, dtype).view(ndarray)
    module.shares_memory = np.shares_memory
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    )
    return module
