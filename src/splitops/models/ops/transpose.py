"""Transpose, which reorders the axes of a tensor."""

from __future__ import annotations

from typing import Any, Final

from splitops.models.abstract_values import AbstractTensor
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_integers,
    infer_result,
)
from splitops.models.ops.writing import NodeWriter, Reader, read_integers, require
from splitops.spec.sizes.dims import UNKNOWN


def _infer(operands: Operands) -> AbstractTensor:
    shape = operands.get_shape()
    order = operands.get("order", [])
    if isinstance(order, AbstractTensor) and not order.is_complete:
        return AbstractTensor(operands.get_type(), (UNKNOWN,) * len(shape))
    axes = (operands.get_integers("order") if order else None) or list(reversed(range(len(shape))))
    if sorted(axes) != list(range(len(shape))):
        raise Unknown(f"order = {axes[:8]} is not an order of {len(shape)} axes")
    return infer_result(
        operands.get_tensor(),
        tuple(shape[axis] for axis in axes),
        lambda: operands.get_elements().transpose(axes),
    )


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    order = read_integers(writer, operands["order"], "order")
    require(writer, all(axis >= 0 for axis in order), f"has a negative axis in its order {order}")
    return {**operands, "order": order or None}  # in OpenVINO, an empty order reverses the axes


def _adapt_node(reader: Reader, operands: dict[str, Any]) -> dict[str, Any]:
    return {"order": [], **operands}


TRANSPOSE: Final = Operator(
    onnx=(Spelling("Transpose", "data", {"order": Attribute(as_integers, None, "perm")}),),
    openvino=(Spelling("Transpose", "data order"),),
    role=Role.TRANSPOSE,
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
    adapt_node=_adapt_node,
)
