"""Checks of ``out=`` by address: which buffers fit their parts, and which of them share memory.

Memory is described by NumPy arrays of the same address, shape and strides. They are never read, so that the
memory may be a GPU's.
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


def fitting(plan: SplitPlan, out: Sequence[Any], kind: Any, data: Any) -> list[tuple[str, Any]]:
    """Return the name and the array of each buffer, all of which are proved to be like their parts.

    An ArrayError names the first that is not.
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
            raise ArrayError(f"{name} is on {buffer.device}, but data are on {device}")
        found.append((name, buffer))
    return found


def check_disjoint(data: Array, out: Sequence[Array]) -> None:
    """Reject buffers that overlap the data, themselves or one another."""
    for index, buffer in enumerate(out):
        if _overlaps_itself(buffer):
            raise ArrayError(f"out[{index}] has elements that share memory with one another")
        if np.shares_memory(buffer, data):
            raise ArrayError(f"out[{index}] overlaps data")
    # In order of address, only bounds that cross need the exact test.
    bounds = sorted((*byte_bounds(buffer), index) for index, buffer in enumerate(out) if buffer.size)
    crossing: list[tuple[int, int]] = []
    for low, high, index in bounds:
        crossing = [(end, other) for end, other in crossing if end > low]
        for _, other in crossing:
            if np.shares_memory(out[other], out[index]):
                first, second = sorted((other, index))
                raise ArrayError(f"out[{first}] overlaps out[{second}]")
        crossing.append((high, index))


def _overlaps_itself(array: Array) -> bool:
    """Return whether an element may lie on another one, as in a broadcast or sliding window.

    Each stride must step over all that the smaller strides reach: true of every array that NumPy makes
    without stride tricks.
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
    """Memory somewhere, in the form that NumPy wraps without touching it."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
        }


def memory_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Array:
    """Return an array that stands for memory and must not be read.

    The strides are in bytes; the address of an empty tensor may be 0.
    """
    if 0 in shape:
        return np.empty(shape, f"V{itemsize}")
    return np.asarray(_Memory(address, shape, strides, itemsize))
