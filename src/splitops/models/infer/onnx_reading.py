"""Convert nodes and constants of ONNX graphs for inference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx import AttributeProto, NodeProto

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor
from splitops.models.graph.onnx import is_external
from splitops.models.graph.onnx_functions import Attributes
from splitops.spec.elements.types import from_onnx


def to_node_proto(node: ir.Node, attributes: Attributes, unread: Sequence[AttributeProto] = ()) -> NodeProto:
    """Convert a node to protobuf, with values named by position. ``unread`` are additional attributes."""
    return NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=["" if value is None else f"i{index}" for index, value in enumerate(node.inputs)],
        output=["" if value.name == "" else f"o{index}" for index, value in enumerate(node.outputs)],
        attribute=[*map(to_attribute_proto, attributes.values()), *unread],
    )


def to_attribute_proto(attribute: ir.Attr) -> AttributeProto:
    """Convert an attribute to protobuf. Raise SerdeError if onnx-ir cannot write it."""
    if attribute.is_ref():
        return ir.serde.serialize_reference_attribute(attribute)
    return ir.serde.serialize_attribute(attribute)


def infer_constant(attributes: Attributes) -> AbstractTensor | None:
    """Infer the output of a Constant node.

    Return None if its value is neither a dense tensor nor numbers, or if only a call of the function sets it.
    """
    for attribute in attributes.values():
        match attribute.type:
            case _ if attribute.is_ref():
                continue
            case ir.AttributeType.TENSOR:
                return make_abstract_tensor(attribute.value)
            case ir.AttributeType.INT | ir.AttributeType.INTS:
                return make_abstract_tensor(ir.tensor(np.array(attribute.value, np.int64)))
            case ir.AttributeType.FLOAT | ir.AttributeType.FLOATS:
                return make_abstract_tensor(ir.tensor(np.array(attribute.value, np.float32)))
    return None


def make_abstract_tensor(tensor: ir.TensorProtocol) -> AbstractTensor:
    """Return the abstract value of a tensor. Elements that are strings, external or too many are omitted."""
    kind, shape = from_onnx(tensor.dtype.value), tuple(map(int, tensor.shape.numpy()))
    here = tensor.dtype != ir.DataType.STRING and not is_external(tensor)
    return AbstractTensor(kind, shape, tensor.numpy() if here and math.prod(shape) <= MAX_ELEMENTS else None)
