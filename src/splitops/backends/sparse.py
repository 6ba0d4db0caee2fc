"""sparse (PyData): parts by slicing, in the format of the data. No part is ever made dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, capabilities_of
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of


class _Sparse:
    name = "sparse"
    capabilities = capabilities_of("sparse")
    symbols: tuple[type, ...] = ()

    def shape(self, array: Any) -> tuple[int, ...]:
        return tuple(int(size) for size in array.shape)

    def element_type(self, array: Any) -> ElementType | None:
        return element_type_of(np.dtype(array.dtype))

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = array.todense()  # axis or lengths: a few numbers
        return numbers

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        return tuple(part.copy() for part in slices(plan, array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError("out= does not take sparse arrays: the number of their values is not known before")


BACKEND: Final[Backend] = _Sparse()
