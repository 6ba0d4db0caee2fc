"""Backend for Dask: lazy parts by Dask's slicing. Nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from dask.array import Array

from splitops.backends import Backend
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Dask(Backend):
    name = "dask"

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        raise ArrayError("axis or lengths are a lazy Dask array: call compute() on it first")

    def make_copies(self, plan: SplitPlan, array: Array) -> tuple[Array, ...]:
        return tuple(
            part.map_blocks(_copy_chunk, dtype=part.dtype, meta=part._meta)
            for part in slice_parts(plan, array)
        )

    def fill(self, plan: SplitPlan, array: Array, out: Sequence[Any]) -> None:
        raise ArrayError(
            "out= is not supported for Dask arrays: split without out= and write the parts with "
            "dask.array.store()"
        )


def _copy_chunk(block: Any) -> Any:
    """Copy a chunk, contiguously if its library supports it."""
    return block.copy(order="C") if isinstance(block, np.ndarray) else block.copy()


BACKEND: Final[Backend] = _Dask()
