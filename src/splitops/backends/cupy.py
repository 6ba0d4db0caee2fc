"""Backend for CuPy: views by slicing, copies by CuPy's kernels on the device of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cupy
import numpy.typing as npt

from splitops.backends import Backend
from splitops.backends.memory import check_buffers, check_disjoint, make_placeholder
from splitops.backends.slicing import slice_parts
from splitops.native import SplitPlan


class _CuPy(Backend):
    name = "cupy"

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = cupy.asnumpy(array)  # waits for the device, once
        return numbers

    def make_copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        with array.device:
            return super().make_copies(plan, array)

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        buffers = [_describe_memory(buffer) for _, buffer in check_buffers(plan, out, cupy.ndarray, array)]
        check_disjoint(_describe_memory(array), buffers)
        with array.device:
            for buffer, part in zip(out, slice_parts(plan, array), strict=True):
                buffer[...] = part


def _describe_memory(array: Any) -> npt.NDArray[Any]:
    return make_placeholder(array.data.ptr, tuple(array.shape), tuple(array.strides), array.itemsize)


BACKEND: Final[Backend] = _CuPy()
