"""Backend for NumPy: views and copies by the native core, or by NumPy for instances of subclasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.memory import check_buffers, check_disjoint
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError
from splitops.native import Plan, SplitPlan
from splitops.spec.elements.types import ElementType

Array = npt.NDArray[Any]


class _NumPy(Backend):
    name = "numpy"

    def get_shape(self, array: Array) -> tuple[int, ...]:
        return array.shape

    def get_element_type(self, array: Array) -> ElementType | None:
        if array.dtype.kind == "O" and not all(
            issubclass(cls, str | bytes) for cls in _find_object_types(array)
        ):
            return None
        return super().get_element_type(array)

    def get_dtype_name(self, array: Array) -> str:
        if array.dtype.kind == "O":
            return f"object of {' and '.join(sorted(cls.__name__ for cls in _find_object_types(array)))}"
        return super().get_dtype_name(array)

    def to_numpy(self, array: Array) -> Array:
        return array

    def make_views(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        if type(array) is np.ndarray:
            return tuple(_get_native_plan(plan).views(array))
        return _slice_parts(plan, array)

    def make_copies(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        if isinstance(array, np.memmap):
            array = array.view(np.ndarray)  # copies are in memory, not in the file
        if type(array) is np.ndarray:
            return tuple(_get_native_plan(plan).copies(array))
        return tuple(part.copy(order="C") for part in _slice_parts(plan, array))

    def fill(self, plan: SplitPlan, array: Array, out: Sequence[Array]) -> None:
        exact = type(array) is np.ndarray
        if exact and _get_native_plan(plan).fill(array, out) is not None:
            return
        _check_out(plan, array, out)  # raises an error with the reason
        if exact and all(type(buffer) is np.ndarray for buffer in out):
            _get_native_plan(plan).copies_into(array, out)
            return
        for buffer, part in zip(out, _slice_parts(plan, array), strict=True):
            buffer[...] = part


def _get_native_plan(plan: SplitPlan) -> Plan:
    if isinstance(plan, Plan):
        return plan
    return Plan(plan.shape, plan.axis, plan.offsets, plan.sizes, plan.squeeze)


def _find_object_types(array: Array) -> set[type]:
    """Return the types of the objects in an array, except masked ones."""
    shown = array.compressed() if isinstance(array, np.ma.MaskedArray) else array.view(np.ndarray)
    return set(map(type, shown.flat))


def _slice_parts(plan: SplitPlan, array: Array) -> tuple[Array, ...]:
    if plan.squeeze and isinstance(array, np.matrix):
        array = array.view(np.ndarray)  # a matrix always keeps both axes
    return slice_parts(plan, array)


def _check_out(plan: SplitPlan, array: Array, out: Sequence[Array]) -> None:
    for name, buffer in check_buffers(plan, out, np.ndarray, array):
        if not buffer.flags.writeable:
            raise ArrayError(f"{name} is read-only")
        if isinstance(array, np.ma.MaskedArray) and not isinstance(buffer, np.ma.MaskedArray):
            raise ArrayError(f"{name} is not a masked array, but data is: its mask would be lost")
        if isinstance(buffer, np.ma.MaskedArray) and buffer.hardmask and np.ma.is_masked(buffer):
            raise ArrayError(f"{name} has a hard mask: its masked elements cannot be written")
    check_disjoint(array, out)


BACKEND: Final[Backend] = _NumPy()
