"""The GPU's copy kernels without a GPU: their launches in NumPy, CUDA C on the CPU, Triton's interpreter.

What a GPU alone can tell, speed and CUDA-graph capture, is in ``dev/benchmarks/gpu.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate
from math import prod
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_libraries import CuPy
from cuda_on_cpu import cupy_on_cpu, launch

from splitops import backends, onnx
from splitops.backends.gpu.cupy_kernels import ENTRIES, MORE_ENTRIES, THREADS, call_of
from splitops.backends.gpu.layout import MAX_ENTRIES, Kernel, Launch, launches, pitch_of, rows_of
from splitops.testing import BackendSuite, Library

Array = np.ndarray[Any, Any]

# Shape, axis, sizes and element size: the cases of issue and benchmark, small.
CASES = [
    ((64, 96), 1, (32, 32, 32), "u2"),
    ((5, 1008), 1, (1, 7, 1000), "u2"),
    ((33, 17, 3), 2, (1, 1, 1), "u1"),
    ((99, 50, 3), 2, (1, 1, 1), "u1"),
    ((9, 64), 1, (1,) * 64, "u4"),
    ((3, 1024), 1, (1,) * 1024, "u1"),
    ((4, 2080), 1, (16,) * 130, "u8"),
    ((3, 130), 1, (1,) * 130, "c16"),
    ((4, 400), 1, (200, 0, 100, 100), "f8"),
    ((4, 400), 1, (100, 0, 100, 100, 100), "f8"),
    ((700,), 0, (300, 400), "u2"),
    ((6, 40, 3), 1, (3, 37), "u4"),
    ((2, 20000), 1, (9999, 10001), "u4"),
    ((1, 7), 1, (3, 4), "u1"),
    # Runs of few bytes: whole tiles and the rests of them, runs that divide no unit.
    ((300, 32), 1, (1,) * 32, "u4"),
    ((130, 300), 1, (1,) * 300, "u1"),
    ((40, 21), 1, (3,) * 7, "u1"),
    ((70, 155), 1, (31,) * 5, "u1"),
    ((1100, 5), 1, (1,) * 5, "u2"),
    ((50, 60), 1, (3,) * 20, "u8"),
    ((50, 60), 1, (1,) * 60, "c16"),
    # Short runs of many parts, parts smaller than a tile, one row.
    ((256, 16 * 40), 1, (16,) * 40, "u4"),
    ((130, 33 * 40), 1, (33,) * 40, "u1"),
    ((1, 3000), 1, (1,) * 3000, "u1"),
    ((1, 6000), 1, (3,) * 2000, "c16"),
    ((3, 30000), 1, (300,) * 100, "u4"),
    ((2, 4500 * 7), 1, (4500,) * 7, "u4"),
    # More uneven parts than one table, and many equal ones with a rest.
    ((3, 7 * 300), 1, (5, 9) * 150, "u2"),
    ((20, 801), 1, (2,) * 400 + (1,), "u4"),
]
# Bytes between the parts, by their index: evenly spaced ones need no table.
SPACED, STRETCHES, SCATTERED = "spaced", "stretches", "scattered"
GAPS: dict[str, Callable[[int], int]] = {
    SPACED: lambda index: 16,
    STRETCHES: lambda index: 16 + 48 * (index % 50 == 49),
    SCATTERED: lambda index: 16 * (1 + index * index % 7),
}


def run_on_host(launch: Launch) -> None:
    """Do a launch in NumPy, on addresses of this process: the reference for the tests of the kernels."""
    begin = 0
    for run, target in zip(launch.runs, launch.addresses, strict=True):
        source = _bytes_at(launch.source + begin, (launch.rows, run), (launch.stride, 1))
        _bytes_at(target, (launch.rows, run), (launch.pitch or run, 1))[...] = source
        begin += run


class _Bytes:
    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": "|u1",
        }


def _bytes_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(_Bytes(address, shape, strides))


def data_of(shape: tuple[int, ...], dtype: str) -> Array:
    raw = np.random.default_rng(7).integers(0, 256, prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def check(
    data: Array,
    axis: int,
    sizes: Sequence[int],
    run: Callable[[Launch], object],
    gap: Callable[[int], int] = GAPS[SPACED],
    begin: int = 0,
    **options: int,
) -> list[Launch]:
    """Copy the parts into one block of memory, and look at every byte of it."""
    layout = rows_of(data.shape, data.strides, data.itemsize, axis)
    assert layout is not None
    rows, stride, inner = layout
    ends = list(accumulate(sizes))
    rights = [np.take(data, range(end - size, end), axis) for end, size in zip(ends, sizes, strict=True)]
    spans = [right.nbytes + gap(index) for index, right in enumerate(rights)]
    memory = np.full(sum(spans) + 64, 0xA5, np.uint8)
    expected = memory.copy()
    begins = [begin + 32 - memory.ctypes.data % 16 + place for place in accumulate(spans, initial=0)][:-1]
    for place, right in zip(begins, rights, strict=True):
        expected[place : place + right.nbytes] = np.frombuffer(right.tobytes(), np.uint8)
    runs = [size * inner for size in sizes]
    addresses = [memory.ctypes.data + place for place in begins]
    calls = list(launches(data.ctypes.data, rows, stride, runs, addresses, **options))
    for call in calls:
        run(call)
    np.testing.assert_array_equal(memory, expected)
    return calls


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(("shape", "axis", "sizes", "dtype"), CASES, ids=str)
def test_launches_copy_every_part(
    shape: tuple[int, ...], axis: int, sizes: tuple[int, ...], dtype: str, gap: str
) -> None:
    calls = check(data_of(shape, dtype), axis, sizes, run_on_host, GAPS[gap])
    assert all(len(call.targets) == len(call.firsts) <= MAX_ENTRIES for call in calls)
    if gap is not SCATTERED and len(set(sizes) - {0}) == 1:
        assert len(calls) == 1
    assert len(calls) <= -(-len(sizes) // MAX_ENTRIES) + 1


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("entries", [ENTRIES - 1, MORE_ENTRIES - 1], ids=["any GPU", "later GPUs"])
@pytest.mark.parametrize(("shape", "axis", "sizes", "dtype"), CASES, ids=str)
def test_the_cuda_kernels_copy_every_part(
    folder: Path,
    shape: tuple[int, ...],
    axis: int,
    sizes: tuple[int, ...],
    dtype: str,
    entries: int,
    gap: str,
) -> None:
    data = data_of(shape, dtype)
    calls = check(data, axis, sizes, lambda call: cuda(folder, call), GAPS[gap], entries=entries)
    assert len(calls) == 1 or len(sizes) > entries


def cuda(folder: Path, call: Launch) -> None:
    launch(folder, call_of(call), THREADS)


@pytest.mark.parametrize("begin", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("skip", [0, 1, 2, 4, 8])
def test_memory_may_lie_anywhere(folder: Path, begin: int, skip: int) -> None:
    raw = np.random.default_rng(7).integers(0, 256, 64 * 264, np.uint8)
    for run in (1, 4, 6, 32, 100, 130):
        data = raw.reshape(64, 264)[:, skip : skip + 256 // run * run]
        sizes = (run,) * (256 // run)
        for copy in (run_on_host, lambda call: cuda(folder, call)):
            (call,) = check(data, 1, sizes, copy, begin=begin)
            assert (begin or 16) % call.unit == 0


def test_unaligned_memory_takes_narrower_units(folder: Path) -> None:
    raw = np.arange(4 * 240 + 1, dtype=np.uint8)
    data = raw[1:].reshape(4, 240)
    (call,) = check(data, 1, (100, 140), lambda call: cuda(folder, call))
    assert call.unit == 1
    (call,) = check(data_of((4, 240), "u2"), 1, (80, 160), run_on_host)
    assert call.unit == 16


@pytest.mark.parametrize(
    ("rows", "count", "run"),
    [
        (8192, 1024, 64),
        (8192, 1024, 1),
        (8192 * 64, 32, 4),
        (4096 * 4096, 3, 1),
        (8192, 3, 8192),
        (1, 100_000, 256),
        (8, 100_000, 1),
        (1, 4, 1 << 30),
    ],
)
def test_equal_parts_at_even_spaces_are_one_launch_without_a_table(rows: int, count: int, run: int) -> None:
    spacing = rows * run + 512
    for targets in (range(1 << 44, (1 << 44) + count * spacing, spacing), range(1 << 50, 1, -spacing)):
        targets = targets[:count]
        (call,) = launches(1 << 40, rows, count * run, [run] * count, targets)
        assert (call.kernel, call.count, call.firsts) == (Kernel.EQUAL, count, (0,))
        assert list(call.addresses) == list(targets)
        assert call_of(call).blocks < 1 << 31


@pytest.mark.parametrize("kernel", ["host", "cuda"])
@pytest.mark.parametrize("margin", [1, 3, 16])
@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (40, (4,) * 64),
        (40, (1,) * 9),
        (1, (3, 3)),
        (300, (40,) * 20),
        (9, (5000, 5000)),
        (9, (7, 5000, 16, 1)),
        (30, (16, 32) * 150),
    ],
)
def test_slices_of_a_wider_buffer_are_filled(
    folder: Path, rows: int, sizes: tuple[int, ...], margin: int, kernel: str
) -> None:
    data = data_of((rows, sum(sizes)), "u1")
    wide = np.full((rows, sum(sizes) + 16 * len(sizes) + margin), 0xA5, np.uint8)
    ends = list(accumulate(sizes))
    begins = [end - sizes[index] + 16 * index + margin for index, end in enumerate(ends)]
    parts = [wide[:, begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
    pitch = pitch_of([part.shape for part in parts], [part.strides for part in parts], 1, 1)
    assert pitch == (wide.shape[1] if rows > 1 else 0)
    expected = wide.copy()
    for begin, end, size in zip(begins, ends, sizes, strict=True):
        expected[:, begin : begin + size] = data[:, end - size : end]
    addresses = [wide.ctypes.data + begin for begin in begins]
    stride = data.strides[0]
    calls = list(
        launches(data.ctypes.data, rows, stride, sizes, addresses, entries=MORE_ENTRIES - 1, pitch=pitch)
    )
    assert len(calls) == 1
    for call in calls:
        run_on_host(call) if kernel == "host" else cuda(folder, call)
    np.testing.assert_array_equal(wide, expected)


def test_one_launch_serves_a_hundred_parts() -> None:
    data = data_of((4, 96 * 64), "u4")
    assert len(check(data, 1, (64,) * 96, run_on_host, GAPS[SCATTERED])) == 1


def test_parts_may_lie_in_any_order(folder: Path) -> None:
    data = data_of((40, 64), "u4")
    memory = np.zeros((64, 40), np.uint32)
    shuffled = np.random.default_rng(7).permutation(64)
    for order in (range(64), range(63, -1, -1), [*range(32, 64), *range(32)], shuffled):
        memory[:] = 0
        addresses = [memory[place].ctypes.data for place in order]
        for call in launches(data.ctypes.data, 40, data.strides[0], [4] * 64, addresses):
            cuda(folder, call)
        np.testing.assert_array_equal(memory[list(order)], data.T)


def test_rows_at_a_stride_and_what_has_none(folder: Path) -> None:
    data = data_of((8, 6, 40), "u4")
    check(data[::2], 1, (1, 5), lambda call: cuda(folder, call))
    check(data[::-1], 1, (1, 5), lambda call: cuda(folder, call))
    wide = data_of((300, 40), "u4")
    for rows in (wide[::3], wide[::-1], wide[::-2]):
        check(rows, 1, (1,) * 40, lambda call: cuda(folder, call))
        check(rows, 1, (10,) * 4, lambda call: cuda(folder, call))
    assert rows_of((8, 6), (4, 32), 4, 1) is None
    assert rows_of((4, 3, 40), (1920, 160, 4), 4, 2) is None
    assert rows_of((1, 3, 40), (1920, 160, 4), 4, 2) == (3, 160, 4)


def test_beyond_32_bits_nothing_overflows(folder: Path) -> None:
    run = 3 << 33
    calls = list(launches(1 << 40, 5, 2 * run, (run, run), (1 << 41, 1 << 42)))
    assert [(call.run, call.count, call.spacing) for call in calls] == [(run, 2, 1 << 41)]
    assert call_of(calls[0]).blocks == 2 * 5 * run >> 14
    calls = list(launches(1 << 40, 5, 2 * run, (run - 16, run + 16), (1 << 41, 1 << 42)))
    assert call_of(calls[0]).arguments[-1]["entry"]["begin"][0, 2] == 2 * run
    # Rows far apart, in a file of which only they take up room.
    stride = 1 << 33
    with (folder / "sparse").open("w+b") as file:
        file.truncate(2 * stride + 4096)
        memory = mmap(file.fileno(), 0)
    data = np.ndarray((3, 64), np.uint8, memory, strides=(stride, 1))
    data[:] = np.arange(192, dtype=np.uint8).reshape(3, 64)
    for size in (64, 16, 1):
        check(data, 1, (size,) * (64 // size), lambda call: cuda(folder, call))


class TestCuPyOnTheCpu(BackendSuite):
    """The CuPy backend unchanged, on a CuPy whose memory and kernels are the CPU's."""

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

    @pytest.mark.parametrize("count", [3, 1024])
    def test_equal_parts_are_one_launch(self, library: Library, count: int) -> None:
        cupy: Any = sys.modules["cupy"]
        data = library.make(data_of((40, 5 * count), "f4"))
        parts = onnx.split(data, [5] * count, axis=1, copy=True)
        assert cupy.launches == 1
        onnx.split(data, [5] * count, axis=1, out=parts)
        onnx.split(data, [5] * count, axis=1, out=list(cupy.asarray(np.empty((count, 40, 5), "f4"))))
        assert cupy.launches == 3

    def test_slices_of_one_array_are_filled_in_one_launch(self, library: Library) -> None:
        cupy: Any = sys.modules["cupy"]
        data = data_of((40, 300), "f4")
        wide = cupy.asarray(np.zeros((40, 330), "f4"))
        for out in (
            [wide[:, :100], wide[:, 110:210], wide[:, 220:320]],
            list(wide[:, :300].reshape(40, 3, 100).transpose(1, 0, 2)),
        ):
            onnx.split(library.make(data), [100] * 3, axis=1, out=out)
            assert np.concatenate(out, 1).tobytes() == data.tobytes()
        assert cupy.launches == 2
        onnx.split(
            library.make(data),
            [100, 200],
            axis=1,
            out=[wide[:, :100], cupy.asarray(np.zeros((40, 200), "f4"))],
        )
        assert cupy.launches == 2  # the parts are at different pitches

    @pytest.mark.parametrize(("driver", "launched"), [(12000, 3), (12010, 1)])
    def test_later_drivers_take_larger_tables(
        self, folder: Path, library: Library, monkeypatch: pytest.MonkeyPatch, driver: int, launched: int
    ) -> None:
        cupy: Any = sys.modules["cupy"]
        cupy.driver = driver
        onnx.split(library.make(data_of((40, 900), "f4")), [1, 2] * 300, axis=1, copy=True)
        assert cupy.launches == launched


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
