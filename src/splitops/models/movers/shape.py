"""ShapeOf, in ONNX Shape: the sizes of a tensor, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from splitops.errors import ModelError
from splitops.models.abstract_values import AbstractTensor, value_of_shape
from splitops.models.movers.form import INT32, INT64
from splitops.models.movers.mover import LayerWriter, Mover, NodeWriter, OnnxNode
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import UNKNOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def _kind(layer: Layer) -> ElementType:
    """Return the element type of the sizes, which the first version did not let choose."""
    text = "i64" if layer.version in {"opset1", "opset2"} else layer.attribute("output_type") or "i64"
    if text not in {"i32", "i64"}:
        raise ModelError(f"output_type = {text!r} is neither i32 nor i64")
    return INT32 if text == "i32" else INT64


def _inferred(
    data: AbstractTensor, kind: ElementType, start: int = 0, end: int | None = None
) -> AbstractTensor:
    sizes = value_of_shape(data.shape)
    if sizes is None:
        return AbstractTensor(kind, (UNKNOWN,))
    sizes = sizes[start:end]
    if all(isinstance(entry, int) for entry in sizes.tolist()):
        sizes = sizes.astype(kind.numpy)
    return AbstractTensor(kind, tuple(sizes.shape), sizes)


def _infer_node(node: OnnxNode) -> AbstractTensor:
    return _inferred(node.tensor(), INT64, node.attributes.get("start", 0), node.attributes.get("end"))


def _to_onnx(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    kind, made = _kind(layer), builder.op("Shape", [sources[0]])
    return made if kind is INT64 else builder.cast(made, kind)


def _to_openvino(layers: LayerWriter, node: ir.Node) -> Output:
    return layers.layer(node, "ShapeOf", node.inputs, {"output_type": "i64"}, version="opset3", kind=INT64)


SHAPE: Final = Mover(
    onnx="Shape",
    openvino="ShapeOf",
    takes_node=lambda node, graph, opset: not {"start", "end"} & node.attributes.keys(),
    infer_layer=lambda layer, inputs: _inferred(inputs[0], _kind(layer)),
    infer_node=_infer_node,
    to_onnx=_to_onnx,
    to_openvino=_to_openvino,
)
