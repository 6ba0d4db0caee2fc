"""Backend for sparse (PyData): parts by slicing, in the format of the data. No part becomes dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt

from splitops.backends import Backend
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Sparse(Backend):
    name = "sparse"

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = array.todense()  # only a few numbers: axis or lengths
        return numbers

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError(
            "out= is not supported for sparse arrays, because the number of values in a part is not known in "
            "advance: use copy=True"
        )


BACKEND: Final[Backend] = _Sparse()
