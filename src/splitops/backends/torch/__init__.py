"""PyTorch: views through aten's own split, copies by the native core (CPU) or by torch's own kernels.

Everything here is an operator that autograd, ``torch.compile``, ``torch.export``, ``torch.vmap`` and tensor
subclasses know; no tensor leaves its device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd import forward_ad

from splitops.backends import Backend
from splitops.backends.memory import fitting
from splitops.backends.torch import copying
from splitops.backends.torch.bridge import to_numpy
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType


class _Torch(Backend):
    name = "torch"
    symbols = (torch.SymInt,)

    def shape(self, array: torch.Tensor) -> tuple[Any, ...]:
        if array.is_nested:
            raise ArrayError("data is a nested tensor: split the tensors in it, which data.unbind() gives")
        shape: tuple[Any, ...] = array.shape
        return shape

    def element_type(self, array: torch.Tensor) -> ElementType | None:
        return _ELEMENT_TYPES.get(array.dtype)

    def dtype_name(self, array: torch.Tensor) -> str:
        return str(array.dtype).removeprefix("torch.")

    def numbers(self, array: torch.Tensor) -> npt.NDArray[Any]:
        if array.is_nested or array.layout is not torch.strided:
            kind = "nested" if array.is_nested else array.layout
            raise ArrayError(f"axis or lengths are a {kind} tensor, but a strided one is what can be read")
        try:
            codes = to_numpy(array.detach().cpu())
            element_type = self.element_type(array)
            numbers = codes if element_type is None else codes.view(element_type.numpy)
            return np.array(numbers)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise ArrayError(
                "axis or lengths are a traced tensor, but they must be known before the data are: "
                "integers, or a tensor outside what is traced"
            ) from error

    def views(self, plan: SplitPlan, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if type(array) is not torch.Tensor or array.layout is not torch.strided:
            _check_splittable(plan, array)
        sizes, axis = plan.sizes, plan.axis
        if not sizes:
            return ()
        array = _up_to_last(plan, array)
        if plan.squeeze and not torch.compiler.is_exporting():
            return tuple(array.unbind(axis))
        parts: tuple[torch.Tensor, ...] = torch.split_with_sizes(array, sizes, axis)
        # torch.onnx.export makes Split of this, and Slice of unbind.
        return tuple(part.squeeze(axis) for part in parts) if plan.squeeze else parts

    def copies(self, plan: SplitPlan, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _check_splittable(plan, array)
        if not plan.sizes:
            return ()
        return copying.split_copy(_up_to_last(plan, array), plan.sizes, plan.axis, plan.squeeze)

    def fill(self, plan: SplitPlan, array: torch.Tensor, out: Sequence[torch.Tensor]) -> None:
        _check_splittable(plan, array)
        for name, buffer in fitting(plan, out, torch.Tensor, array):
            if buffer.layout is not torch.strided:
                raise ArrayError(f"{name} has layout {buffer.layout}, but it must be strided")
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (array, *out)):
            raise ArrayError(
                "out= takes no part in automatic differentiation: its gradients would be lost; "
                "use copy=True, or torch.no_grad() where none are wanted"
            )
        if forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None for tensor in (array, *out)
        ):
            raise ArrayError("out= takes no part in forward-mode differentiation: its tangents would be lost")
        if plan.squeeze:
            out = [buffer.unsqueeze(plan.axis) for buffer in out]
        if plan.sizes:
            copying.split_into(array, plan.offsets, plan.sizes, plan.axis, out)


# A packed type has more than one element in a byte, which no torch.Tensor can tell.
_ELEMENT_TYPES: Final = {
    dtype: ELEMENT_TYPES[name]
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and name in ELEMENT_TYPES and not ELEMENT_TYPES[name].packed
}


def _up_to_last(plan: SplitPlan, array: torch.Tensor) -> torch.Tensor:
    """Return an array without what lies behind its last part."""
    end = plan.offsets[-1] + plan.sizes[-1]
    return array if end == plan.shape[plan.axis] else array.narrow(plan.axis, 0, end)


def _check_splittable(plan: SplitPlan, array: torch.Tensor) -> None:
    """Reject what torch would split with a hidden copy or transfer, or not at all."""
    if array.layout is not torch.strided:
        raise ArrayError(f"data has layout {array.layout}, but torch.strided is what can be split")
    distributed = sys.modules.get("torch.distributed.tensor")
    if (
        distributed is not None
        and isinstance(array, distributed.DTensor)
        and any(placement.is_shard(plan.axis) for placement in array.placements)
    ):
        raise ArrayError(
            f"data is sharded along axis {plan.axis}, so that splitting it there would move data between "
            "processes: redistribute() it first"
        )


BACKEND: Final[Backend] = _Torch()
