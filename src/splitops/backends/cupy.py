"""CuPy: views by slicing, copies by CuPy's own kernels on the device of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cupy
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.memory import check_disjoint, fitting, memory_at
from splitops.backends.slicing import slices
from splitops.native import SplitPlan


class _CuPy(Backend):
    name = "cupy"

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = cupy.asnumpy(array)  # waits for the device, once
        return numbers

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        with array.device:
            return super().copies(plan, array)

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        buffers = [_memory(buffer) for _, buffer in fitting(plan, out, cupy.ndarray, array)]
        check_disjoint(_memory(array), buffers)
        with array.device:
            for buffer, part in zip(out, slices(plan, array), strict=True):
                buffer[...] = part


def _memory(array: Any) -> npt.NDArray[Any]:
    return memory_at(array.data.ptr, tuple(array.shape), tuple(array.strides), array.itemsize)


BACKEND: Final[Backend] = _CuPy()
