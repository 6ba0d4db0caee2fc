"""Dask: lazy parts by Dask's own slicing, which keeps whole chunks as they are. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from dask.array import Array

from splitops.backends import Backend, capabilities_of
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of


class _Dask:
    name = "dask"
    capabilities = capabilities_of("dask")
    symbols: tuple[type, ...] = ()

    def shape(self, array: Array) -> tuple[int | None, ...]:
        # The size of an axis whose chunks are unknown is nan.
        return tuple(None if math.isnan(size) else int(size) for size in array.shape)

    def element_type(self, array: Array) -> ElementType | None:
        return element_type_of(np.dtype(array.dtype))

    def dtype_name(self, array: Array) -> str:
        return str(array.dtype)

    def numbers(self, array: Array) -> npt.NDArray[Any]:
        raise ArrayError("axis or lengths are a Dask array: compute() them first, no split does so by itself")

    def views(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        return tuple(part.map_blocks(_own, dtype=part.dtype, meta=part._meta) for part in slices(plan, array))

    def fill(self, plan: SplitPlan, array: Array, out: Sequence[Any]) -> None:
        raise ArrayError("out= would compute a lazy Dask array: split it, and dask.array.store() the parts")


def _own(block: Any) -> Any:
    """Return a chunk in memory of its own, contiguous where its library says so."""
    return block.copy(order="C") if isinstance(block, np.ndarray) else block.copy()


BACKEND: Final[Backend] = _Dask()
