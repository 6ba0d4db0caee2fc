"""The GPU's copy kernels without a GPU: their launches in NumPy, CUDA C on the CPU, Triton's interpreter.

What a GPU alone can tell, speed and CUDA-graph capture, is in ``benchmarks/gpu.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_libraries import CuPy
from cuda_on_cpu import cupy_on_cpu, launch

from splitops import backends, onnx
from splitops.backends.gpu.cupy_kernels import THREADS, call_of
from splitops.backends.gpu.layout import MAX_PARTS, Launch, launches, rows_of, run_on_host
from splitops.testing import BackendSuite, Library

Array = np.ndarray[Any, Any]

# Shape, axis, sizes and element size: the cases of issue and benchmark, small.
CASES = [
    ((64, 96), 1, (32, 32, 32), "u2"),
    ((5, 1008), 1, (1, 7, 1000), "u2"),
    ((33, 17, 3), 2, (1, 1, 1), "u1"),
    ((9, 64), 1, (1,) * 64, "u4"),
    ((3, 1024), 1, (1,) * 1024, "u1"),
    ((4, 2080), 1, (16,) * 130, "u8"),
    ((3, 130), 1, (1,) * 130, "c16"),
    ((4, 400), 1, (200, 0, 100, 100), "f8"),
    ((700,), 0, (300, 400), "u2"),
    ((6, 40, 3), 1, (3, 37), "u4"),
    ((2, 20000), 1, (9999, 10001), "u4"),
    ((1, 7), 1, (3, 4), "u1"),
]


def data_of(shape: tuple[int, ...], dtype: str) -> Array:
    raw = np.random.default_rng(7).integers(0, 256, prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def plan_launches(data: Array, axis: int, sizes: Sequence[int]) -> tuple[list[Launch], list[Array]]:
    layout = rows_of(data.shape, data.strides, data.itemsize, axis)
    assert layout is not None
    rows, stride, inner = layout
    shapes = [(*data.shape[:axis], size, *data.shape[axis + 1 :]) for size in sizes]
    # Guard bytes around each part: a kernel that writes outside changes them.
    slabs = [np.full(prod(shape) * data.itemsize + 32, 0xA5, np.uint8) for shape in shapes]
    parts = [slab[16:-16].view(data.dtype).reshape(shape) for slab, shape in zip(slabs, shapes, strict=True)]
    runs = [size * inner for size in sizes]
    addresses = [part.ctypes.data for part in parts]
    return list(launches(data.ctypes.data, rows, stride, runs, addresses)), [*parts, *slabs]


def check(data: Array, axis: int, sizes: Sequence[int], run: Callable[[Launch], None]) -> list[Launch]:
    calls, arrays = plan_launches(data, axis, sizes)
    parts, slabs = arrays[: len(sizes)], arrays[len(sizes) :]
    for call in calls:
        run(call)
    for part, slab, end, size in zip(parts, slabs, accumulate(sizes), sizes, strict=True):
        assert part.tobytes() == np.take(data, range(end - size, end), axis).tobytes()
        assert (slab[:16] == 0xA5).all()
        assert (slab[-16:] == 0xA5).all()
    return calls


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.mark.parametrize(("shape", "axis", "sizes", "dtype"), CASES, ids=str)
def test_launches_copy_every_part(
    shape: tuple[int, ...], axis: int, sizes: tuple[int, ...], dtype: str
) -> None:
    calls = check(data_of(shape, dtype), axis, sizes, run_on_host)
    assert len(calls) <= -(-len(sizes) // 32)
    assert all(len(call.targets) <= MAX_PARTS for call in calls)


@pytest.mark.parametrize(("shape", "axis", "sizes", "dtype"), CASES, ids=str)
def test_the_cuda_kernels_copy_every_part(
    folder: Path, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...], dtype: str
) -> None:
    check(data_of(shape, dtype), axis, sizes, lambda call: launch(folder, call_of(call), THREADS))


def test_unaligned_memory_takes_narrower_units(folder: Path) -> None:
    raw = np.arange(4 * 240 + 1, dtype=np.uint8)
    data = raw[1:].reshape(4, 240)
    (call,) = check(data, 1, (100, 140), lambda call: launch(folder, call_of(call), THREADS))
    assert call.unit == 1
    (call,) = check(data_of((4, 240), "u2"), 1, (80, 160), run_on_host)
    assert call.unit == 16


def test_one_launch_serves_a_hundred_parts() -> None:
    calls, _ = plan_launches(data_of((4, 96 * 64), "u4"), 1, (64,) * 96)
    assert len(calls) == 1


def test_rows_at_a_stride_and_what_has_none(folder: Path) -> None:
    data = data_of((8, 6, 40), "u4")
    check(data[::2], 1, (1, 5), lambda call: launch(folder, call_of(call), THREADS))
    check(data[::-1], 1, (1, 5), lambda call: launch(folder, call_of(call), THREADS))
    assert rows_of((8, 6), (4, 32), 4, 1) is None
    assert rows_of((4, 3, 40), (1920, 160, 4), 4, 2) is None
    assert rows_of((1, 3, 40), (1920, 160, 4), 4, 2) == (3, 160, 4)


def test_beyond_32_bits_nothing_overflows() -> None:
    run = 3 << 33
    calls = list(launches(1 << 40, 5, 2 * run, (run, run), (1 << 41, 1 << 42)))
    assert [call.ends for call in calls] == [(run, 2 * run)]
    assert call_of(calls[0]).arguments[-1]["part"]["end"][0, 1] == 2 * run
    assert call_of(calls[0]).blocks == 2 * 5 * run >> 14


class TestCuPyOnTheCpu(BackendSuite):
    """The CuPy backend as it stands, on a CuPy whose memory and kernels are the CPU's."""

    @pytest.fixture
    def library(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
        monkeypatch.setitem(sys.modules, "cupy", cupy_on_cpu(folder))
        monkeypatch.delitem(sys.modules, "splitops.backends.cupy", raising=False)
        # ndarray of NumPy is asked first, and this CuPy's is one.
        rows = sorted(backends.BACKENDS, key=lambda entry: entry.name != "cupy")
        monkeypatch.setattr(backends, "BACKENDS", tuple(rows))
        monkeypatch.setattr(backends, "_OF_TYPE", {})
        yield CuPy()
        sys.modules.pop("splitops.backends.cupy", None)

    def test_copies_are_one_launch(self, library: Library) -> None:
        cupy: Any = sys.modules["cupy"]
        onnx.split(library.make(data_of((40, 300), "f4")), [100, 1, 199], axis=1, copy=True)
        assert cupy.launches == 1


@pytest.mark.parametrize("mode", ["interpreted", "compiled"])
def test_triton(mode: str) -> None:
    """In a process of its own: Triton decides on its mode when it is imported."""
    if find_spec("triton") is None or find_spec("torch") is None:
        pytest.skip("triton or torch is not installed")
    script = Path(__file__).with_name("triton_without_gpu.py")
    environment = os.environ | {
        "TRITON_INTERPRET": str(int(mode == "interpreted")),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    run = subprocess.run(
        [sys.executable, str(script), mode], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("done\n")
