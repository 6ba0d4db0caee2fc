"""Conversion of operators that mean the same in ONNX and OpenVINO, according to their :class:`Spelling`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitops.errors import ModelError
from splitops.models.ops import find_layer_spelling, find_node_spelling
from splitops.models.ops.operator import Operator, Spelling, Unknown, as_integer
from splitops.models.ops.writing import (
    ONNX_OPSET,
    LayerWriter,
    NodeWriter,
    Reader,
    read_axis,
    read_integers,
    require_broadcast,
    require_types,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.openvino import Layer, Output


def find_converter(layer: Layer) -> Operator | None:
    """Return the operator with which :func:`convert_layer` can convert a layer, or None if there is none."""
    match = find_layer_spelling(layer.type, layer.version)
    if match is None or not match[0].converts:
        return None
    operator, spelling = match
    listed = spelling.versions is None or int(layer.version.removeprefix("opset")) in spelling.versions
    return operator if listed else None


def get_opset(operator: Operator) -> int:
    """Return the opset of the nodes to which layers of an operator are converted."""
    return max(operator.onnx[-1].since, ONNX_OPSET)


def convert_layer(writer: NodeWriter, *sources: ir.Value) -> ir.Value:
    """Write a layer as nodes, and return its output. :func:`find_converter` must return an operator for it.

    Raises:
        ModelError: an attribute or a type differs in ONNX, or ONNX requires an input to be constant.
    """
    layer = writer.layer
    match = find_layer_spelling(layer.type, layer.version)
    assert match is not None
    operator, spelling = match
    target = next(node for node in operator.onnx if node.since <= get_opset(operator))
    try:
        operands = spelling.read(layer.data or {}, sources)
    except Unknown as error:
        rest = "" if ";" in error.message else ", which ONNX cannot express"
        raise ModelError(f"{layer} has {error.message}{rest}") from error
    if operator.types is not None:
        require_types(writer, sources, operator.types)
    if operands.pop("broadcast", None) is not None:
        require_broadcast(writer)
    if sources and writer.find_type(sources[0]) in operator.identity_types:
        return writer.add("Identity", sources[:1])
    if operator.adapt_layer is not None:
        adapted = operator.adapt_layer(writer, operands)
        if not isinstance(adapted, dict):
            return adapted
        operands = adapted
    for name, attribute in target.attributes.items():
        value = operands.get(name)
        if value is not None and hasattr(value, "producer"):
            one = attribute.read is as_integer
            operands[name] = read_axis(writer, value) if one else read_integers(writer, value, name)
    inputs, attributes = target.write(operands, lambda value, _: writer.add_ints(value))
    return writer.add(target.name, inputs, attributes)


def can_convert_node(reader: Reader, node: ir.Node, opset: int) -> bool:
    """Return whether a node means the same as a layer, so that :func:`convert_node` can write it."""
    match = find_node_spelling(node.op_type, opset)
    if match is None:
        return False
    operator, spelling = match
    if operator.types is not None:
        types = operator.types - operator.identity_types
        if any(value is None or reader.find_type(value) not in types for value in node.inputs):
            return False
    operands = _read_layer_operands(operator, spelling, reader, node)
    return operands is not None and (
        operator.can_convert_node is None or operator.can_convert_node(reader, operands)
    )


def _read_layer_operands(
    operator: Operator, spelling: Spelling, reader: Reader, node: ir.Node
) -> dict[str, Any] | None:
    """Return the operands of a node for the newest version of the layer, or None if no layer is equal."""
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


def convert_node(writer: LayerWriter, node: ir.Node, opset: int) -> tuple[Output, ...]:
    """Write a node as a layer, and return its outputs. :func:`can_convert_node` must be true for it."""
    match = find_node_spelling(node.op_type, opset)
    assert match is not None
    operands, spelling = _read_layer_operands(*match, writer, node), match[0].openvino[0]
    assert operands is not None
    inputs, data = spelling.write(operands, lambda value, _: writer.add_integers(value))
    number = max(spelling.versions) if spelling.versions is not None else spelling.since
    kind = match[0].result or operands.get("type")
    return writer.add_layer(node, spelling.name, inputs, data, version=number, kind=kind)
