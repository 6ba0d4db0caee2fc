"""Concat: tensors one behind the other on an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, partial_value
from splitops.models.abstract_values import Value as Numbers
from splitops.models.formats.openvino.shapes import parse_integer
from splitops.models.movers.followed import entries, moved, shape_of
from splitops.models.movers.form import prove
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, Role
from splitops.models.movers.shapes import concatenated

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def _layer_axis(layer: Layer) -> int:
    return parse_integer(layer.text("axis"), "axis", layer.where)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _inferred(tensors: Sequence[AbstractTensor], axis: int) -> AbstractTensor:
    def joined() -> Numbers:
        arrays = [_numbers(tensor) for tensor in tensors]
        return np.concatenate([array.astype(object) for array in arrays], axis=axis)

    return moved(tensors[0].type, concatenated([shape_of(tensor) for tensor in tensors], axis), joined)


def _numbers(tensor: AbstractTensor) -> Numbers:
    """Return the numbers of a tensor; of a short one that is not followed, unknown ones."""
    return partial_value(entries(tensor)) if tensor.elements is None else tensor.elements


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    kinds = {str(kind) for value in sources if (kind := builder.type_of(value)) is not None}
    prove(len(kinds) < 2, f"{layer} joins {' and '.join(sorted(kinds))}")
    return builder.op("Concat", sources, {"axis": _layer_axis(layer)})


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    axis = node.attributes.get("axis")
    return layers.layer(node, "Concat", node.inputs, {"axis": _DEFAULT if axis is None else axis.value})


_DEFAULT: Final = 1
"""The axis of a Concat-1 that sets none; later versions state it."""

CONCAT: Final = Mover(
    onnx="Concat",
    openvino="Concat",
    role=Role.CONCAT,
    infer_layer=lambda layer, inputs: _inferred(inputs, _layer_axis(layer)),
    infer_node=lambda node: _inferred(node.tensors(), node.attributes.get("axis", _DEFAULT)),
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
