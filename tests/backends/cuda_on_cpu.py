"""The CUDA C kernels compiled for the CPU, one thread after the other, and a CuPy that launches them.

Threads meet only where a kernel says so; between two such places, running them in turn is the same.
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

from splitops.backends.gpu.cupy_kernels import ENTRIES, MORE_ENTRIES, Call, source

Array = np.ndarray[Any, Any]

_SHIM = """
#define __device__
#define __global__
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;
struct alignas(16) uint4 { unsigned x, y, z, w; };
"""

_LOOP = """
#define EVERY_THREAD(work)                                                            \\
    blockDim.x = threads;                                                             \\
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)                           \\
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) { work }
#define HEAD unsigned blocks, unsigned threads, u64 s, i64 d, i64 r, i64 p, i64 c
#define EQUAL i64 run, i64 spacing, i64 length

extern "C" void launch_copy_uneven(HEAD, const Table* t) {
    EVERY_THREAD(copy_uneven(s, d, r, p, c, *t);)
}
extern "C" void launch_copy_equal(HEAD, EQUAL, const Table* t) {
    EVERY_THREAD(copy_equal(s, d, r, p, c, run, spacing, length, *t);)
}
"""


@cache
def compiled(folder: Path, entries: int) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    text, library = folder / f"kernels{entries}.cpp", folder / f"kernels{entries}.so"
    text.write_text(_SHIM + source(entries) + _LOOP)
    flags = ["-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-w"]
    subprocess.run([compiler, *flags, str(text), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def launch(folder: Path, call: Call, threads: int) -> None:
    """Run every thread of a launch, with the arguments as CuPy would pass them."""
    *scalars, table = call.arguments
    assert isinstance(table, np.ndarray)
    limit = 4096 if call.entries == ENTRIES else 32_764
    assert table.nbytes + 8 * len(scalars) <= limit, "more than such GPUs take as arguments"
    kinds = {"u": ctypes.c_uint64, "i": ctypes.c_int64}
    arguments = [kinds[scalar.dtype.kind](int(scalar)) for scalar in scalars]
    function = getattr(compiled(folder, call.entries), f"launch_{call.kernel}")
    function(
        ctypes.c_uint(call.blocks), ctypes.c_uint(threads), *arguments, ctypes.c_void_p(table.ctypes.data)
    )


def cupy_on_cpu(folder: Path, driver: int = 12010) -> ModuleType:
    """Return what the backend uses of CuPy, on NumPy's memory; its ``launches`` counts the kernels."""
    module: Any = ModuleType("cupy")

    class Device:
        id = 0
        compute_capability = "90"

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    device = Device()

    class Memory:
        """Memory from an address on."""

        def __init__(self, block: Array, begin: int) -> None:
            self.block = block
            self.begin = begin
            self.ptr = block.ctypes.data + begin

        def __add__(self, offset: int) -> Memory:
            return Memory(self.block, self.begin + offset)

    def allocate(size: int) -> Memory:
        raw = np.empty(size + 512, np.uint8)
        return Memory(raw, -raw.ctypes.data % 512)

    class ndarray(np.ndarray[Any, Any]):
        def __new__(cls, shape: tuple[int, ...], dtype: Any, memptr: Memory) -> ndarray:
            return super().__new__(cls, shape, dtype, memptr.block, memptr.begin)  # type: ignore[no-any-return]

        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.ctypes.data)

        @property
        def device(self) -> Any:
            return device

    class RawKernel:
        def __init__(self, code: str, name: str) -> None:
            self.entries = next(size for size in (ENTRIES, MORE_ENTRIES) if source(size) == code)
            self.name = name

        def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            launch(folder, Call(self.name, self.entries, grid[0], arguments), block[0])
            module.launches += 1

    module.launches = 0
    module.ndarray = ndarray
    module.RawKernel = RawKernel
    module.asarray = lambda array: np.asarray(array).view(ndarray)
    module.asnumpy = lambda array: np.array(array)
    module.shares_memory = np.shares_memory
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1,
        CUDARuntimeError=RuntimeError,
        is_hip=False,
        driverGetVersion=lambda: module.driver,
    )
    module.driver = driver
    module.cuda = SimpleNamespace(
        Device=lambda number: device,
        alloc=allocate,
        nvrtc=SimpleNamespace(getVersion=lambda: (12, 1)),
        runtime=runtime,
    )
    return module
