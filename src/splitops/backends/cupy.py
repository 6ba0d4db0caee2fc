"""CuPy: views by slicing, copies by one CUDA C kernel for all parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import cupy
import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, capabilities_of
from splitops.backends.gpu import cupy_kernels
from splitops.backends.gpu.layout import launches, rows_of
from splitops.backends.memory import check_count, check_disjoint, check_fit, memory_at
from splitops.backends.slicing import slices
from splitops.dtypes import ElementType, element_type_of
from splitops.errors import ArrayError
from splitops.planning import SplitPlan

__all__ = ["BACKEND"]


class _CuPy:
    name = "cupy"
    capabilities = capabilities_of("cupy")
    symbols: tuple[type, ...] = ()

    def shape(self, array: Any) -> tuple[int, ...]:
        return tuple(array.shape)

    def element_type(self, array: Any) -> ElementType | None:
        return element_type_of(np.dtype(array.dtype))

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = cupy.asnumpy(array)  # waits for the device, once
        return numbers

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        with array.device:
            parts = tuple(cupy.empty(shape, array.dtype) for shape in plan.shapes)
            _copy(plan, array, parts)
        return parts

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        check_count(plan, out)
        for index, (buffer, shape) in enumerate(zip(out, plan.shapes, strict=True)):
            if not isinstance(buffer, cupy.ndarray):
                raise ArrayError(f"out[{index}] is a {type(buffer).__name__}, but it must be a cupy.ndarray")
            check_fit(index, buffer.shape, buffer.dtype, shape, array.dtype)
            if buffer.device != array.device:
                raise ArrayError(f"out[{index}] is on {buffer.device}, but data are on {array.device}")
        check_disjoint(_memory(array), [_memory(buffer) for buffer in out])
        with array.device:
            _copy(plan, array, out)


def _memory(array: Any) -> npt.NDArray[Any]:
    return memory_at(array.data.ptr, tuple(array.shape), tuple(array.strides), array.itemsize)


def _copy(plan: SplitPlan, array: Any, parts: Sequence[Any]) -> None:
    """Copy in one launch where the layout allows, otherwise part by part."""
    if array.size == 0 or not plan.sizes:
        return
    layout = rows_of(array.shape, array.strides, array.itemsize, plan.axis)
    if layout is None or not all(part.flags.c_contiguous for part in parts):
        for part, view in zip(parts, slices(plan, array), strict=True):
            part[...] = view
        return
    rows, stride, inner = layout
    runs = [size * inner for size in plan.sizes]
    for launch in launches(array.data.ptr, rows, stride, runs, [part.data.ptr for part in parts]):
        call = cupy_kernels.call_of(launch)
        _kernel(call.kernel)((call.blocks,), (cupy_kernels.THREADS,), call.arguments)


@cache
def _kernel(name: str) -> Any:
    return cupy.RawKernel(cupy_kernels.source(), name)


BACKEND: Final[Backend] = _CuPy()
