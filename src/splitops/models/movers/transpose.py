"""Transpose: the axes of a tensor in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.movers.followed import integers as known_integers
from splitops.models.movers.followed import moved, numbers, shape_of
from splitops.models.movers.form import axes_of, prove
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, Role
from splitops.spec.sizes.dims import UNKNOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def _order(stated: Sequence[int], rank: int) -> list[int]:
    """Return the order of the axes; one that sets nothing turns them round."""
    order = list(stated) or list(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise ModelError(f"order = {order[:8]} is not an order of {rank} axes")
    return order


def _inferred(data: AbstractTensor, stated: Sequence[int]) -> AbstractTensor:
    shape = shape_of(data)
    order = _order(stated, len(shape))
    return moved(data.type, tuple(shape[axis] for axis in order), lambda: numbers(data).transpose(order))


def _infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    data, order = inputs
    if not order.is_complete:
        return AbstractTensor(data.type, (UNKNOWN,) * len(shape_of(data)))
    return _inferred(data, known_integers(order))


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    order = axes_of(builder, layer, sources[1], "order")
    prove(all(axis >= 0 for axis in order), f"{layer} has order = {order}")
    return builder.op("Transpose", [sources[0]], {"perm": order} if order else {})


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    perm = node.attributes.get("perm")
    order = layers.integers(() if perm is None else perm.value)
    return layers.layer(node, "Transpose", [node.inputs[0], order])


TRANSPOSE: Final = Mover(
    onnx="Transpose",
    openvino="Transpose",
    role=Role.TRANSPOSE,
    infer_layer=_infer_layer,
    infer_node=lambda node: _inferred(node.tensor(), node.attributes.get("perm", ())),
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
