"""xarray: parts of a Variable or DataArray by position, with dimension names, coordinates and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt

from splitops.backends import Backend, backend_of
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Xarray(Backend):
    name = "xarray"

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        inside = array.data
        return backend_of(inside).numbers(inside)

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        inside = array.data
        parts = backend_of(inside).copies(plan, inside)
        return tuple(
            view.copy(deep=True, data=part) for view, part in zip(slices(plan, array), parts, strict=True)
        )

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError("out= does not take xarray's objects: split their .data into buffers of its library")


BACKEND: Final[Backend] = _Xarray()
