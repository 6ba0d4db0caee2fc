"""Operators that mean the same in both dialects, written in the other one by their spellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from splitops.errors import ModelError
from splitops.models.ops import find_layer_spelling, find_node_spelling
from splitops.models.ops.operator import Operator, Spelling, Unknown, as_integer
from splitops.models.ops.writing import (
    ONNX_OPSET,
    LayerWriter,
    NodeWriter,
    Reader,
    axes_of,
    axis_input,
    require_broadcast,
    require_types,
)
from splitops.spec.elements.types import element_type_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def find_converter(layer: Layer) -> Operator | None:
    """Return the operator that covers a layer in conversions, or None if there is none."""
    found = find_layer_spelling(layer.type, layer.version)
    if found is None or not found[0].converts:
        return None
    operator, spelling = found
    demands = spelling.demands.items()
    if any((layer.get_attribute(name) or str(value)) != str(value) for name, value in demands):
        return None
    listed = spelling.versions is None or int(layer.version.removeprefix("opset")) in spelling.versions
    return operator if listed else None


def opset_of(operator: Operator) -> int:
    """Return the opset of the nodes that layers of an operator become."""
    return max(operator.onnx[-1].since, ONNX_OPSET)


def convert_layer(writer: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    """Write a layer for which there is a converter as nodes.

    Raises:
        ModelError: the layer sets something that ONNX does not have, or needs as a constant.
    """
    found = find_layer_spelling(layer.type, layer.version)
    assert found is not None
    operator, spelling = found
    target = next(one for one in operator.onnx if one.since <= opset_of(operator))
    try:
        operands = spelling.read(layer.data or {}, sources)
    except Unknown as error:
        rest = "" if ";" in error.message else ", which ONNX cannot say"
        raise ModelError(f"{layer} has {error.message}{rest}") from error
    if operator.types is not None:
        require_types(writer, layer, sources, operator.types)
    if operands.pop("broadcast", None) is not None:
        require_broadcast(layer)
    if sources and writer.type_of(sources[0]) in operator.whole:
        return writer.op("Identity", sources[:1])
    if operator.adapt_layer is not None:
        adapted = operator.adapt_layer(writer, layer, operands)
        if not isinstance(adapted, dict):
            return adapted
        operands = adapted
    for name, attribute in target.attributes.items():
        value = operands.get(name)
        if value is not None and hasattr(value, "producer"):
            one = attribute.read is as_integer
            operands[name] = axis_input(writer, layer, value) if one else axes_of(writer, layer, value, name)
    inputs, attributes = target.write(operands, lambda value, _: writer.integers(value))
    return writer.op(target.name, inputs, attributes)


def can_convert_node(reader: Reader, node: ir.Node, opset: int) -> bool:
    """Return whether a node of an opset means the same as a layer."""
    found = find_node_spelling(node.op_type, opset)
    if found is None:
        return False
    operator, spelling = found
    if operator.types is not None:
        types = operator.types - operator.whole
        if any(value is None or reader.type_of(value) not in types for value in node.inputs):
            return False
    operands = _operands_for_layer(operator, spelling, reader, node)
    return operands is not None and (
        operator.accepts_node is None or operator.accepts_node(reader, node, operands)
    )


def _operands_for_layer(
    operator: Operator, spelling: Spelling, reader: Reader, node: ir.Node
) -> dict[str, Any] | None:
    """Return the operands of a node, as the newest layer can set them; None if no layer can."""
    if not operator.converts or len(node.outputs) != 1:
        return None
    names = {attribute.name or name for name, attribute in spelling.attributes.items()}
    if not node.attributes.keys() <= names | spelling.demands.keys():
        return None
    if any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    try:
        operands = spelling.read(attributes, node.inputs)
    except Unknown:
        return None
    adapted = operands if operator.adapt_node is None else operator.adapt_node(reader, operands)
    return adapted if adapted is not None and operator.openvino[0].can_write(adapted) else None


def convert_node(writer: LayerWriter, node: ir.Node, opset: int) -> Output:
    """Write a node that :func:`can_convert_node` as a layer."""
    found = find_node_spelling(node.op_type, opset)
    assert found is not None
    operands, spelling = _operands_for_layer(*found, writer, node), found[0].openvino[0]
    assert operands is not None

    def constant(value: Any, _: str) -> Any:
        kind = element_type_of(value.dtype) if isinstance(value, np.ndarray) else None
        return writer.integers(value, kind)

    inputs, data = spelling.write(operands, constant)
    number = max(spelling.versions) if spelling.versions is not None else spelling.since
    kind = found[0].result or operands.get("type")
    return writer.layer(node, spelling.name, inputs, data or None, version=f"opset{number}", kind=kind)
