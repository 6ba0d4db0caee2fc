"""A node of an ONNX graph as inference reads it: for the rules here, and for onnx."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx import AttributeProto, NodeProto

from splitops.models.graph.onnx_functions import Attributes
from splitops.models.known import Known
from splitops.models.movers.mover import OnnxNode


def read_node(node: ir.Node, attributes: Attributes, opset: int, inputs: Sequence[Known]) -> OnnxNode:
    """Return a node of the ONNX domain, of an opset, as the rules read it."""
    stated = {name: attribute.value for name, attribute in attributes.items()}
    return OnnxNode(node.op_type, opset, stated, inputs)


def node_proto(node: ir.Node, attributes: Attributes, unread: Sequence[AttributeProto] = ()) -> NodeProto:
    """Return a node as onnx reads it, its values named by their positions.

    Args:
        node: the node.
        attributes: its attributes.
        unread: those that onnx-ir does not read.

    Raises:
        SerdeError: an attribute is none that onnx-ir writes.
    """
    return NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=["" if value is None else f"i{index}" for index, value in enumerate(node.inputs)],
        output=["" if value.name == "" else f"o{index}" for index, value in enumerate(node.outputs)],
        attribute=[*map(attribute_proto, attributes.values()), *unread],
    )


def attribute_proto(attribute: ir.Attr) -> AttributeProto:
    """Return an attribute as onnx reads it.

    Raises:
        SerdeError: onnx-ir does not write it.
    """
    if attribute.is_ref():
        return ir.serde.serialize_reference_attribute(attribute)
    return ir.serde.serialize_attribute(attribute)
