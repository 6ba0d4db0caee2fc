"""Any array of the Python array API standard, through its own namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

# The standard's own dtypes, found by equality: libraries are free in what they print.
_STANDARD: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


class _ArrayApi(Backend):
    name = "array API"

    def element_type(self, array: Any) -> ElementType | None:
        namespace = array.__array_namespace__()
        for name in _STANDARD:
            if hasattr(namespace, name) and array.dtype == getattr(namespace, name):
                return ELEMENT_TYPES[name]
        return ELEMENT_TYPES.get(self.dtype_name(array))

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype).rpartition(".")[2]

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        try:
            return np.array(_nested(array), dtype=self.dtype_name(array))
        except Exception as error:  # a lazy library raises its own errors
            raise ArrayError(f"the values of axis or lengths cannot be read: {error}") from error

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        namespace = array.__array_namespace__()
        return tuple(namespace.asarray(part, copy=True) for part in slices(plan, array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError(
            f"out= needs buffers whose overlap can be seen, which {type(array).__module__} does not tell: "
            "use copy=True"
        )


def _nested(array: Any) -> Any:
    """Return the values of an array of rank 0 or 1, or zeros of any other rank, which binding rejects."""
    if len(array.shape) > 1:
        return np.zeros((1,) * len(array.shape)).tolist()
    if len(array.shape) == 1:
        return [_nested(array[index]) for index in range(array.shape[0])]
    kind = array.__array_namespace__()
    if kind.isdtype(array.dtype, "bool"):
        return bool(array)
    return int(array) if kind.isdtype(array.dtype, "integral") else float(array)


BACKEND: Final[Backend] = _ArrayApi()
