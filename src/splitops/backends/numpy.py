"""NumPy: views by slicing, copies by the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from splitops import native
from splitops.backends import Backend, Capabilities
from splitops.dtypes import ElementType, element_type_of
from splitops.errors import ArrayError
from splitops.planning import SplitPlan

__all__ = ["BACKEND"]

Array = npt.NDArray[Any]


class _NumPy:
    name = "numpy"
    capabilities = Capabilities(views=True, copies=True, out=True, read_only=True)

    def shape(self, array: Array) -> tuple[int, ...]:
        return array.shape

    def element_type(self, array: Array) -> ElementType | None:
        return element_type_of(array.dtype)

    def dtype_name(self, array: Array) -> str:
        return str(array.dtype)

    def views(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        if type(array) is np.ndarray:
            return native.views(array, plan.axis, plan.offsets, plan.sizes, plan.squeeze)
        return _slices(plan, array)

    def copies(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        if isinstance(array, np.memmap):
            array = array.view(np.ndarray)  # a copy of a file's part lives in memory, not in the file
        if type(array) is np.ndarray:
            return native.copies(array, plan.axis, plan.offsets, plan.sizes, plan.squeeze)
        return tuple(part.copy(order="C") for part in _slices(plan, array))

    def fill(self, plan: SplitPlan, array: Array, out: Sequence[Array]) -> None:
        _check_out(plan, array, out)
        if type(array) is np.ndarray and all(type(buffer) is np.ndarray for buffer in out):
            native.copies_into(array, plan.axis, plan.offsets, plan.sizes, plan.squeeze, out)
            return
        for buffer, part in zip(out, _slices(plan, array), strict=True):
            buffer[...] = part


def _slices(plan: SplitPlan, array: Array) -> tuple[Array, ...]:
    """Slice as the array's own class does: masks, units and names go with the parts."""
    if plan.squeeze and isinstance(array, np.matrix):
        array = array.view(np.ndarray)  # a matrix keeps both axes, whatever is asked of it
    before: tuple[Any, ...] = (slice(None),) * plan.axis
    if plan.squeeze:
        return tuple(array[(*before, offset, ...)] for offset in plan.offsets)
    return tuple(
        array[(*before, slice(offset, offset + size))]
        for offset, size in zip(plan.offsets, plan.sizes, strict=True)
    )


def _check_out(plan: SplitPlan, array: Array, out: Sequence[Array]) -> None:
    shapes = plan.shapes
    if len(out) != len(shapes):
        raise ArrayError(f"out has {len(out)} arrays, but there are {len(shapes)} parts")
    for index, (buffer, shape) in enumerate(zip(out, shapes, strict=True)):
        if not isinstance(buffer, np.ndarray):
            raise ArrayError(f"out[{index}] is a {type(buffer).__name__}, but it must be a numpy.ndarray")
        if buffer.shape != shape or buffer.dtype != array.dtype:
            raise ArrayError(
                f"out[{index}] has shape {buffer.shape} and dtype {buffer.dtype}, "
                f"but the part has shape {shape} and dtype {array.dtype}"
            )
        if not buffer.flags.writeable:
            raise ArrayError(f"out[{index}] is read-only")
        if isinstance(array, np.ma.MaskedArray) and not isinstance(buffer, np.ma.MaskedArray):
            raise ArrayError(f"out[{index}] is no masked array, but data is: its mask would be lost")
        if isinstance(buffer, np.ma.MaskedArray) and buffer.hardmask and np.ma.is_masked(buffer):
            raise ArrayError(f"out[{index}] has a hard mask: its masked elements cannot be written")
        if _overlaps_itself(buffer):
            raise ArrayError(f"out[{index}] has elements that share memory with one another")
        if np.shares_memory(buffer, array):
            raise ArrayError(f"out[{index}] overlaps data")
    _check_disjoint(out)


def _overlaps_itself(array: Array) -> bool:
    """Return whether an element may lie on another one, as in a broadcast or sliding window.

    Each stride must step over all that the smaller strides reach: true of every array that NumPy makes
    without stride tricks.
    """
    reach = array.itemsize
    extents = sorted(
        (abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if size > 1
    )
    if not array.size:
        return False
    for step, size in extents:
        if step < reach:
            return True
        reach += step * (size - 1)
    return False


def _check_disjoint(out: Sequence[Array]) -> None:
    """Refuse buffers that overlap: in order of address, only bounds that cross need the exact test."""
    bounds = sorted((*byte_bounds(buffer), index) for index, buffer in enumerate(out) if buffer.size)
    crossing: list[tuple[int, int]] = []
    for low, high, index in bounds:
        crossing = [(end, other) for end, other in crossing if end > low]
        for _, other in crossing:
            if np.shares_memory(out[other], out[index]):
                first, second = sorted((other, index))
                raise ArrayError(f"out[{first}] overlaps out[{second}]")
        crossing.append((high, index))


BACKEND: Final[Backend] = _NumPy()
