"""Backend for xarray: parts of a Variable or DataArray, with dimension names, coordinates and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt

from splitops.backends import Backend, get_backend
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Xarray(Backend):
    name = "xarray"

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        inside = array.data
        return get_backend(inside).to_numpy(inside)

    def make_copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        inside = array.data
        parts = get_backend(inside).make_copies(plan, inside)
        return tuple(
            view.copy(deep=True, data=part)
            for view, part in zip(slice_parts(plan, array), parts, strict=True)
        )

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError("out= is not supported for xarray objects: split their .data instead")


BACKEND: Final[Backend] = _Xarray()
