"""Backend for any array that follows the Python array API standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

# The dtypes of the standard. Dtypes are compared as objects, because libraries print them differently.
_STANDARD: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


class _ArrayApi(Backend):
    name = "array API"

    def get_element_type(self, array: Any) -> ElementType | None:
        namespace = array.__array_namespace__()
        for name in _STANDARD:
            if hasattr(namespace, name) and array.dtype == getattr(namespace, name):
                return ELEMENT_TYPES[name]
        return ELEMENT_TYPES.get(self.get_dtype_name(array))

    def get_dtype_name(self, array: Any) -> str:
        return str(array.dtype).rpartition(".")[2]

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        try:
            return np.array(_read_values(array), dtype=self.get_dtype_name(array))
        except Exception as error:  # a lazy library raises its own errors
            raise ArrayError(f"cannot read the values of axis or lengths: {error}") from error

    def make_copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        namespace = array.__array_namespace__()
        return tuple(namespace.asarray(part, copy=True) for part in slice_parts(plan, array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError(
            f"out= is not supported for {type(array).__module__}, because overlaps of its buffers cannot be "
            "checked: use copy=True"
        )


def _read_values(array: Any) -> Any:
    """Return the values of an array as a Python number or list.

    For a rank above 1, which is never valid, return a single zero in nested lists of that depth.
    """
    if len(array.shape) > 1:
        return np.zeros((1,) * len(array.shape)).tolist()
    if len(array.shape) == 1:
        return [_read_values(array[index]) for index in range(array.shape[0])]
    kind = array.__array_namespace__()
    if kind.isdtype(array.dtype, "bool"):
        return bool(array)
    return int(array) if kind.isdtype(array.dtype, "integral") else float(array)


BACKEND: Final[Backend] = _ArrayApi()
