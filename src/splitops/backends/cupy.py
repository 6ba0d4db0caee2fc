"""CuPy: views by slicing, copies by one CUDA C kernel for all parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any, Final

import cupy
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.gpu import cupy_kernels
from splitops.backends.gpu.layout import launches, pitch_of, rows_of
from splitops.backends.memory import check_disjoint, fitting, memory_at
from splitops.backends.slicing import slices
from splitops.native import SplitPlan

_ALIGNMENT: Final = 128
"""Bytes of a GPU's cache line, which no two parts share."""


class _CuPy(Backend):
    name = "cupy"

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = cupy.asnumpy(array)  # waits for the device, once
        return numbers

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        with array.device:
            parts = _allocate(plan.shapes, array)
            _copy(plan, array, parts)
        return parts

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        buffers = [_memory(buffer) for _, buffer in fitting(plan, out, cupy.ndarray, array)]
        check_disjoint(_memory(array), buffers)
        with array.device:
            _copy(plan, array, out)


def _memory(array: Any) -> npt.NDArray[Any]:
    return memory_at(array.data.ptr, tuple(array.shape), tuple(array.strides), array.itemsize)


def _allocate(shapes: Sequence[tuple[int, ...]], array: Any) -> tuple[Any, ...]:
    """Return parts in one block of memory, which lives as long as any: equal ones are evenly spaced."""
    dtype, itemsize = array.dtype, array.itemsize
    spans = [-(-prod(shape) * itemsize // _ALIGNMENT) * _ALIGNMENT for shape in shapes]
    block = cupy.cuda.alloc(sum(spans))
    begins = accumulate(spans, initial=0)
    return tuple(
        cupy.ndarray(shape, dtype, memptr=block + begin)
        for shape, begin in zip(shapes, begins, strict=False)  # the last begin is the end
    )


def _copy(plan: SplitPlan, array: Any, parts: Sequence[Any]) -> None:
    """Copy in one launch where the layout allows, otherwise part by part."""
    if array.size == 0 or not plan.sizes:
        return
    layout = rows_of(array.shape, array.strides, array.itemsize, plan.axis)
    pitch: int | None = 0
    if not all(part.flags.c_contiguous for part in parts):
        strides = [part.strides for part in parts]
        pitch = None if plan.squeeze else pitch_of(plan.shapes, strides, array.itemsize, plan.axis)
    if layout is None or pitch is None:
        for part, view in zip(parts, slices(plan, array), strict=True):
            part[...] = view
        return
    rows, stride, inner = layout
    runs = [size * inner for size in plan.sizes]
    targets = [part.data.ptr for part in parts]
    entries = _entries(array.device.id) - 1
    for launch in launches(array.data.ptr, rows, stride, runs, targets, entries, pitch):
        call = cupy_kernels.call_of(launch)
        _kernel(call.kernel, call.entries)((call.blocks,), (cupy_kernels.THREADS,), call.arguments)


@cache
def _entries(device: int) -> int:
    """Return how many entries a table may have in a kernel's arguments on a device."""
    runtime = cupy.cuda.runtime
    if (
        not runtime.is_hip
        and runtime.driverGetVersion() >= 12010
        and cupy.cuda.nvrtc.getVersion() >= (12, 1)
        and int(cupy.cuda.Device(device).compute_capability) >= 70
    ):
        return cupy_kernels.MORE_ENTRIES
    return cupy_kernels.ENTRIES


@cache
def _kernel(name: str, entries: int) -> Any:
    return cupy.RawKernel(cupy_kernels.source(entries), name)


BACKEND: Final[Backend] = _CuPy()
