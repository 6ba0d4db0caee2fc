"""Concat: tensors one behind the other on an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from splitops.errors import ModelError
from splitops.models.formats.openvino.shapes import parse_integer
from splitops.models.known import Tensor, partial_value
from splitops.models.known import Value as Numbers
from splitops.models.movers.evaluated import Value, prove_size
from splitops.models.movers.followed import entries, moved, shape_of
from splitops.models.movers.mover import LayerWriter, Mover, Role
from splitops.models.movers.shapes import axis_within, concatenated

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def _evaluate(layer: Layer, inputs: Sequence[Value]) -> Value:
    axis = _layer_axis(layer)
    if not inputs:
        raise ModelError(f"{layer} has no inputs")
    first = inputs[0]
    rank = first.array.ndim
    at = axis_within(axis, rank)
    for value in inputs:
        same_type = value.element_type is first.element_type
        others = [_without(v.array.shape, at) for v in (first, value) if v.array.ndim == rank]
        if not same_type or len(others) < 2 or others[0] != others[1]:
            raise ModelError(f"{first} and {value} do not fit together on axis {axis}")
    size = sum(value.array.shape[at] for value in inputs)
    prove_size((size, *_without(first.array.shape, at)), first.element_type)
    return first.like(np.concatenate([value.array for value in inputs], axis=at))


def _layer_axis(layer: Layer) -> int:
    return parse_integer(layer.text("axis"), "axis", layer.where)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _inferred(tensors: Sequence[Tensor], axis: int) -> Tensor:
    def joined() -> Numbers:
        arrays = [_numbers(tensor) for tensor in tensors]
        return np.concatenate([array.astype(object) for array in arrays], axis=axis)

    return moved(tensors[0].type, concatenated([shape_of(tensor) for tensor in tensors], axis), joined)


def _numbers(tensor: Tensor) -> Numbers:
    """Return the numbers of a tensor; of a short one that is not followed, unknown ones."""
    return partial_value(entries(tensor)) if tensor.value is None else tensor.value


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    axis = node.attributes.get("axis")
    return layers.layer(node, "Concat", node.inputs, {"axis": _DEFAULT if axis is None else axis.value})


_DEFAULT: Final = 1
"""The axis of a Concat-1 that sets none; later versions state it."""

CONCAT: Final = Mover(
    onnx="Concat",
    openvino="Concat",
    role=Role.CONCAT,
    evaluate=_evaluate,
    infer_layer=lambda layer, inputs: _inferred(inputs, _layer_axis(layer)),
    infer_node=lambda node: _inferred(node.tensors(), node.attributes.get("axis", _DEFAULT)),
    to_onnx=lambda pen, layer, sources: pen.op("Concat", sources, {"axis": _layer_axis(layer)}),
    to_openvino=_to_openvino,
)
