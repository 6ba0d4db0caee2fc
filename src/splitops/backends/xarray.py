"""xarray: parts of a Variable or DataArray by position, with dimension names, coordinates and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, backend_of, capabilities_of
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of


class _Xarray:
    name = "xarray"
    capabilities = capabilities_of("xarray")
    symbols: tuple[type, ...] = ()

    def shape(self, array: Any) -> tuple[int, ...]:
        return tuple(array.shape)

    def element_type(self, array: Any) -> ElementType | None:
        # Not of the array inside: asking a file's variable for it would read the file.
        return element_type_of(array.dtype) if isinstance(array.dtype, np.dtype) else None

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        inside = array.data
        return backend_of(inside).numbers(inside)

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        inside = array.data
        parts = backend_of(inside).copies(plan, inside)
        return tuple(
            view.copy(deep=True, data=part) for view, part in zip(slices(plan, array), parts, strict=True)
        )

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError("out= does not take xarray's objects: split their .data into buffers of its library")


BACKEND: Final[Backend] = _Xarray()
