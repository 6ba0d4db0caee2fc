"""Dask: lazy parts by Dask's own slicing, which keeps whole chunks as they are. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from dask.array import Array

from splitops.backends import Backend
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Dask(Backend):
    name = "dask"

    def numbers(self, array: Array) -> npt.NDArray[Any]:
        raise ArrayError("axis or lengths are a Dask array: compute() them first, no split does so by itself")

    def copies(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        return tuple(part.map_blocks(_own, dtype=part.dtype, meta=part._meta) for part in slices(plan, array))

    def fill(self, plan: SplitPlan, array: Array, out: Sequence[Any]) -> None:
        raise ArrayError("out= would compute a lazy Dask array: split it, and dask.array.store() the parts")


def _own(block: Any) -> Any:
    """Return a chunk in memory of its own, contiguous where its library says so."""
    return block.copy(order="C") if isinstance(block, np.ndarray) else block.copy()


BACKEND: Final[Backend] = _Dask()
