"""Squeeze and Unsqueeze: axes of size 1 left out, and put in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from splitops.common.documents import MAX_RANK
from splitops.models.abstract_values import AbstractTensor
from splitops.models.movers.followed import integers as known_integers
from splitops.models.movers.followed import moved, numbers, shape_of
from splitops.models.movers.form import axes_of, prove
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Role
from splitops.models.movers.shapes import axis_within, unsqueezed
from splitops.spec.sizes.dims import Range, Shape

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

# Squeeze


def _dropped(stated: Sequence[int], rank: int) -> set[int]:
    """Return the axes that a layer drops if they are of size 1: all, where it sets none."""
    return {axis_within(axis, rank) for axis in stated} or set(range(rank))


def _kept(shape: Shape, axes: Collection[int]) -> list[int]:
    """Return the axes that stay: in every version also those of another size than 1."""
    return [axis for axis, size in enumerate(shape) if axis not in axes or size != 1]


def _squeezed(data: AbstractTensor, axes: Collection[int]) -> AbstractTensor:
    shape = shape_of(data)
    # Whether an axis of unknown size stays depends on what the version says of sizes other than 1.
    if any(isinstance(shape[axis], Range) for axis in axes):
        return AbstractTensor(data.type)
    result = tuple(shape[axis] for axis in _kept(shape, axes))
    exact = [size for size in result if isinstance(size, int)]
    return moved(data.type, result, lambda: numbers(data).reshape(exact))


def _infer_squeeze_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    data, *given = inputs
    stated = [axis for tensor in given for axis in known_integers(tensor)]
    return _squeezed(data, _dropped(stated, len(shape_of(data))))


def _infer_squeeze_node(node: OnnxNode) -> AbstractTensor:
    rank, stated = len(node.shape()), node.given("axes", 1)
    axes = range(rank) if stated is None else [axis_within(axis, rank) for axis in stated]
    return _squeezed(node.tensor(), axes)


# Unsqueeze


def _unsqueezed(data: AbstractTensor, axes: Sequence[int]) -> AbstractTensor:
    shape = unsqueezed(shape_of(data), axes)
    exact = [size for size in shape if isinstance(size, int)]
    return moved(data.type, shape, lambda: numbers(data).reshape(exact))


def _infer_unsqueeze_node(node: OnnxNode) -> AbstractTensor:
    axes = node.given("axes", 1)
    if axes is None or len(axes) > MAX_RANK:
        raise ValueError("no axes")
    return _unsqueezed(node.tensor(), axes)


# To and from ONNX


def _squeeze_to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, *given = sources
    shape, stated = (
        builder.shape_of(data),
        [axis for value in given for axis in axes_of(builder, layer, value)],
    )
    if not stated:
        return builder.op("Squeeze", [data])
    if shape is not None:
        # ONNX rejects to drop an axis of another size than 1, which a layer keeps.
        dropped = sorted(_dropped(stated, len(shape)))
        stated = [axis for axis in dropped if shape[axis] == 1 or isinstance(shape[axis], Range)]
    return (
        builder.op("Squeeze", [data, builder.integers(stated)]) if stated else builder.op("Identity", [data])
    )


def _unsqueeze_to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, given = sources
    axes = list(dict.fromkeys(axes_of(builder, layer, given)))
    prove(bool(axes), f"{layer} has no axes")
    return builder.op("Unsqueeze", [data, builder.integers(axes)])


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    attribute = node.attributes.get("axes")
    inputs: list[Any] = [value for value in node.inputs if value is not None]
    if attribute is not None:
        inputs.append(layers.integers(attribute.value))
    return layers.layer(node, node.op_type, inputs)


SQUEEZE: Final = Mover(
    onnx="Squeeze",
    openvino="Squeeze",
    role=Role.RESHAPE,
    infer_layer=_infer_squeeze_layer,
    infer_node=_infer_squeeze_node,
    to_onnx=_squeeze_to_onnx,
    to_openvino=_to_openvino,
)

UNSQUEEZE: Final = Mover(
    onnx="Unsqueeze",
    openvino="Unsqueeze",
    role=Role.RESHAPE,
    infer_layer=lambda layer, inputs: _unsqueezed(inputs[0], list(dict.fromkeys(known_integers(inputs[1])))),
    infer_node=_infer_unsqueeze_node,
    to_onnx=_unsqueeze_to_onnx,
    to_openvino=_to_openvino,
)
