"""Convert, in ONNX Cast: the elements of a tensor in another type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor
from splitops.models.abstract_values import Value as Numbers
from splitops.models.movers.followed import moved, numbers
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode, Reader
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_onnx, from_openvino

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output

_SIZES: Final = frozenset({"int32", "int64"})
_INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_HALVES: Final = frozenset({"float16", "bfloat16"})
_TYPES: Final = _INTEGERS | _HALVES | {"bool", "float32", "float64"}
_WITHIN_FLOAT32: Final = _HALVES | {"bool", "float32", "int8", "uint8", "int16", "uint16"}


def _layer_target(layer: Layer) -> ElementType | None:
    return from_openvino(layer.attribute("destination_type") or "")


def _inferred(data: AbstractTensor, target: ElementType) -> AbstractTensor:
    def converted() -> Numbers:
        found = numbers(data)
        if not data.is_complete:
            # What is partly known is an integer; types narrower than those of sizes might not hold it.
            if target.name not in _SIZES:
                raise ValueError("a number is unknown")
            return found
        with np.errstate(all="ignore"):
            return found.astype(target.numpy)

    return moved(target, data.shape, converted)


def _infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> AbstractTensor:
    target = _layer_target(layer)
    if target is None or target.name not in _SIZES:  # other types convert as they are evaluated
        return AbstractTensor(target, inputs[0].shape)
    return _inferred(inputs[0], target)


def _infer_node(node: OnnxNode) -> AbstractTensor:
    target = from_onnx(node.attributes["to"])
    if target is None:
        raise ValueError("no element type")
    return _inferred(node.tensor(), target)


def _same(source: ElementType, target: ElementType) -> bool:
    """Return whether both dialects give the same value wherever they define one.

    OpenVINO rounds to half precision by way of float32, which rounds wider types twice.
    """
    if source is target:
        return True
    if target.name in _HALVES:
        return source.name in _WITHIN_FLOAT32
    return source.name in _TYPES and target.name in _TYPES


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    source, target = builder.type_of(sources[0]), _layer_target(layer)
    if source is None or target is None or target.onnx_number is None or not _same(source, target):
        raise ModelError(f"Convert from {source} to {target} is not the same in ONNX")
    return builder.cast(sources[0], target)


def _node_types(node: ir.Node, graph: Reader) -> tuple[ElementType | None, ElementType | None]:
    to, source = node.attributes["to"].value, node.inputs[0]
    if isinstance(to, str):  # before opset 6
        target = next((kind for kind in ELEMENT_TYPES.values() if kind.onnx == to), None)
    else:
        target = from_onnx(to)
    return (None if source is None else graph.type_of(source)), target


def _takes_node(node: ir.Node, graph: Reader, opset: int) -> bool:
    source, target = _node_types(node, graph)
    return source is not None and target is not None and _same(source, target)


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    _, target = _node_types(node, layers)
    assert target is not None
    return layers.layer(node, "Convert", node.inputs, {"destination_type": target.openvino}, kind=target)


CONVERT: Final = Mover(
    onnx="Cast",
    openvino="Convert",
    takes_node=_takes_node,
    infer_layer=_infer_layer,
    infer_node=_infer_node,
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
