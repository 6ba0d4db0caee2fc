"""Backend for PyTorch: views by aten, copies by the native core (most CPU tensors) or torch's kernels.

Autograd, ``torch.compile``, ``torch.export``, ``torch.vmap`` and tensor subclasses support views and copies.
With ``out=``, automatic differentiation is an error. The data never leaves its device.
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
from splitops.backends.memory import check_buffers
from splitops.backends.torch import copying
from splitops.backends.torch.bridge import to_numpy
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType


class _Torch(Backend):
    name = "torch"
    symbols = (torch.SymInt,)

    def get_shape(self, array: torch.Tensor) -> tuple[Any, ...]:
        if array.is_nested:
            raise ArrayError("data is a nested tensor: split the tensors that data.unbind() returns")
        shape: tuple[Any, ...] = array.shape
        return shape

    def get_element_type(self, array: torch.Tensor) -> ElementType | None:
        return _ELEMENT_TYPES.get(array.dtype)

    def get_dtype_name(self, array: torch.Tensor) -> str:
        return str(array.dtype).removeprefix("torch.")

    def to_numpy(self, array: torch.Tensor) -> npt.NDArray[Any]:
        if array.is_nested or array.layout is not torch.strided:
            kind = "nested" if array.is_nested else array.layout
            raise ArrayError(f"axis or lengths are a {kind} tensor, but only strided tensors can be read")
        try:
            codes = to_numpy(array.detach().cpu())
            element_type = self.get_element_type(array)
            numbers = codes if element_type is None else codes.view(element_type.numpy)
            return np.array(numbers)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise ArrayError(
                "axis or lengths are a traced tensor, but torch must know the shapes of the parts: "
                "pass Python integers, or a tensor that is not traced"
            ) from error

    def make_views(self, plan: SplitPlan, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if type(array) is not torch.Tensor or array.layout is not torch.strided:
            _check_splittable(plan, array)
        sizes, axis = plan.sizes, plan.axis
        if not sizes:
            return ()
        array = _drop_tail(plan, array)
        if plan.squeeze and not torch.compiler.is_exporting():
            return tuple(array.unbind(axis))
        parts: tuple[torch.Tensor, ...] = torch.split_with_sizes(array, sizes, axis)
        # torch.onnx.export converts this to Split, but unbind to Slice.
        return tuple(part.squeeze(axis) for part in parts) if plan.squeeze else parts

    def make_copies(self, plan: SplitPlan, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _check_splittable(plan, array)
        if not plan.sizes:
            return ()
        return copying.split_copy(_drop_tail(plan, array), plan.sizes, plan.axis, plan.squeeze)

    def fill(self, plan: SplitPlan, array: torch.Tensor, out: Sequence[torch.Tensor]) -> None:
        _check_splittable(plan, array)
        for name, buffer in check_buffers(plan, out, torch.Tensor, array):
            if buffer.layout is not torch.strided:
                raise ArrayError(f"{name} has layout {buffer.layout}, but it must be strided")
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (array, *out)):
            raise ArrayError(
                "out= does not support automatic differentiation, so gradients would be lost: "
                "use copy=True, or torch.no_grad() if you need no gradients"
            )
        if forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None for tensor in (array, *out)
        ):
            raise ArrayError(
                "out= does not support forward-mode differentiation, so tangents would be lost: use copy=True"
            )
        if plan.squeeze:
            out = [buffer.unsqueeze(plan.axis) for buffer in out]
        if plan.sizes:
            copying.split_into(array, plan.offsets, plan.sizes, plan.axis, out)


# Packed types are left out: a torch.Tensor cannot have several elements in a byte.
_ELEMENT_TYPES: Final = {
    dtype: ELEMENT_TYPES[name]
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and name in ELEMENT_TYPES and not ELEMENT_TYPES[name].packed
}


def _drop_tail(plan: SplitPlan, array: torch.Tensor) -> torch.Tensor:
    """Return the array without the elements after its last part."""
    end = plan.offsets[-1] + plan.sizes[-1]
    return array if end == plan.shape[plan.axis] else array.narrow(plan.axis, 0, end)


def _check_splittable(plan: SplitPlan, array: torch.Tensor) -> None:
    """Reject tensors that torch cannot split, or can split only with a hidden copy or transfer."""
    if array.layout is not torch.strided:
        raise ArrayError(f"data has layout {array.layout}, but only torch.strided can be split")
    distributed = sys.modules.get("torch.distributed.tensor")
    if (
        distributed is not None
        and isinstance(array, distributed.DTensor)
        and any(placement.is_shard(plan.axis) for placement in array.placements)
    ):
        raise ArrayError(
            f"data is sharded along axis {plan.axis}, so splitting it there would move data between "
            "processes: call redistribute() on it first"
        )


BACKEND: Final[Backend] = _Torch()
