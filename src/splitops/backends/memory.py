"""Checks of the buffers in ``out=``: that they match their parts and do not overlap.

Memory of other libraries, on any device, is represented by NumPy arrays with the same address, shape and
strides. They are never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from splitops.errors import ArrayError
from splitops.native import SplitPlan

Array = npt.NDArray[Any]


def check_buffers(plan: SplitPlan, out: Sequence[Any], kind: Any, data: Any) -> list[tuple[str, Any]]:
    """Check that the buffers match their parts, and return them with their names for messages.

    They must be of type ``kind``, and have the dtype and device of ``data``.

    Raises:
        ArrayError: there are too few or too many buffers, or one does not match.
    """
    if len(out) != len(plan.sizes):
        raise ArrayError(f"out has {len(out)} arrays, but there are {len(plan.sizes)} parts")
    found: list[tuple[str, Any]] = []
    dtype, device = data.dtype, getattr(data, "device", None)
    for index, (buffer, shape) in enumerate(zip(out, plan.shapes, strict=True)):
        name = f"out[{index}]"
        if not isinstance(buffer, kind):
            expected = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
            raise ArrayError(f"{name} is a {type(buffer).__name__}, but it must be a {expected}")
        if buffer.shape != shape or buffer.dtype != dtype:
            raise ArrayError(
                f"{name} has shape {tuple(buffer.shape)} and dtype {buffer.dtype}, "
                f"but the part has shape {tuple(shape)} and dtype {dtype}"
            )
        if getattr(buffer, "device", None) != device:
            raise ArrayError(f"{name} is on {buffer.device}, but data is on {device}")
        found.append((name, buffer))
    return found


def check_disjoint(data: Array, out: Sequence[Array]) -> None:
    """Raise ArrayError if a buffer overlaps the data or another buffer, or may overlap itself."""
    for index, buffer in enumerate(out):
        if _may_overlap_itself(buffer):
            raise ArrayError(f"elements of out[{index}] may share memory with each other")
        if np.shares_memory(buffer, data):
            raise ArrayError(f"out[{index}] overlaps data")
    # After sorting by address, only buffers whose bounds overlap need the exact test, which is slow.
    bounds = sorted((*byte_bounds(buffer), index) for index, buffer in enumerate(out) if buffer.size)
    crossing: list[tuple[int, int]] = []
    for low, high, index in bounds:
        crossing = [(end, other) for end, other in crossing if end > low]
        for _, other in crossing:
            if np.shares_memory(out[other], out[index]):
                first, second = sorted((other, index))
                raise ArrayError(f"out[{first}] overlaps out[{second}]")
        crossing.append((high, index))


def _may_overlap_itself(array: Array) -> bool:
    """Return whether elements may share memory, as in a broadcast array or a sliding window.

    They do not if each stride is at least the extent of all axes with smaller strides. That is true for every
    array that NumPy makes without stride tricks.
    """
    if not array.size:
        return False
    reach = array.itemsize
    extents = sorted(
        (abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if size > 1
    )
    for step, size in extents:
        if step < reach:
            return True
        reach += step * (size - 1)
    return False


class _Memory:
    """Memory at an address, which NumPy can wrap without reading it."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
        }


def make_placeholder(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Array:
    """Make an array with the given memory layout, whose elements must not be read.

    Strides are in bytes. If an extent is 0, the address, which may be 0, and the strides are ignored.
    """
    if 0 in shape:
        return np.empty(shape, f"V{itemsize}")
    return np.asarray(_Memory(address, shape, strides, itemsize))
