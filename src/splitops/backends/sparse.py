"""sparse (PyData): parts by slicing, in the format of the data. No part is ever made dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt

from splitops.backends import Backend
from splitops.errors import ArrayError
from splitops.native import SplitPlan


class _Sparse(Backend):
    name = "sparse"

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = array.todense()  # axis or lengths: a few numbers
        return numbers

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        raise ArrayError("out= does not take sparse arrays: the number of their values is not known before")


BACKEND: Final[Backend] = _Sparse()
