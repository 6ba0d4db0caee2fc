"""What is known of the values of one OpenVINO layer, and of a split as OpenVINO itself infers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from splitops.errors import Rule, RuleError, SplitError, Where
from splitops.models.abstract_values import (
    MAX_ELEMENTS,
    NOTHING,
    AbstractTensor,
    AbstractValue,
    may_be,
    meet_shapes,
)
from splitops.models.formats.openvino.model import Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.nodes import from_nodes, get_layer, set_layer
from splitops.models.formats.walk import iter_all_nodes
from splitops.models.infer.operators import infer_operator, is_tracked
from splitops.models.ops import find_layer_spelling
from splitops.models.split_nodes import SplitNode
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, make_dim


def get_value_before(layer: Layer, where: Where) -> AbstractTensor:
    """Return what is known of the value of a Parameter or a Const; of another layer nothing."""
    if layer.type == "Parameter":
        kind = None if layer.has_dynamic_type else layer.read_element_type(where)
        return AbstractTensor(kind, layer.read_shape(where))
    constant = layer.constant
    if constant is None:
        return AbstractTensor()
    kind, value = constant.element_type, None
    if math.prod(constant.shape) <= MAX_ELEMENTS and is_tracked(kind):
        value = constant.read_array(where)
    return AbstractTensor(kind, constant.shape, value)


def infer_layer(layer: Layer, inputs: Sequence[AbstractTensor]) -> list[AbstractTensor]:
    """Return what is known of a layer's outputs from its inputs, and from what the file declares."""
    ports = [port.declared_tensor for port in layer.outputs]
    known = find_layer_spelling(layer.type, layer.version)
    if known is None:
        return ports
    found = infer_operator(*known, layer.data or {}, inputs, len(ports), of_layer=True)
    return [_both(*pair) for pair in zip(found, ports, strict=True)]


def _both(found: AbstractTensor, declared: AbstractTensor) -> AbstractTensor:
    """Return what is inferred of an output, and what the file declares if that is more."""
    if found is NOTHING:
        return declared
    kind, value = found.type or declared.type, found.elements
    if value is None or not is_tracked(kind) or not may_be(declared.shape, value.shape):
        return AbstractTensor(kind, meet_shapes(found.shape, declared.shape))
    return AbstractTensor(kind, tuple(value.shape), value)


def _openvino_accepts(error: SplitError) -> bool:
    """Return whether OpenVINO's inference goes on: with too little for -1, or sizes it does not know."""
    return isinstance(error, RuleError) and (
        error.rule is Rule.REMAINDER_NEGATIVE
        or isinstance(error.values.get("size"), Range)
        or error.values.get("axis", 0) is None
    )


def openvino_says(split_node: SplitNode, inputs: Sequence[AbstractTensor]) -> list[AbstractTensor] | None:
    """Return what OpenVINO's own inference says of a split; None where it ends with an error.

    It keeps nothing but the rank where the axis is not known; it rounds both ends of a range down where a
    split is in equal parts; of an axis that is not exact it knows nothing of what -1 takes; and it gives -1
    nothing where the other lengths are too long.
    """
    if not inputs or not (split_node.error is None or _openvino_accepts(split_node.error)):
        return None
    data = inputs[0]
    count, shape = len(split_node.outputs), data.shape
    axis = (
        split_node.facts[1].value if len(split_node.facts) > 1 and split_node.facts[1] is not None else None
    )
    axis = axis[0] if isinstance(axis, tuple) and axis else axis
    if shape is None:
        return [AbstractTensor(data.type)] * count
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return [AbstractTensor(data.type, (UNKNOWN,) * len(shape))] * count
    axis %= len(shape)
    sizes = _openvino_sizes(split_node, shape[axis], count)
    return [AbstractTensor(data.type, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _openvino_sizes(split_node: SplitNode, size: Dim, count: int) -> list[Dim]:
    name = split_node.schema.count_attribute
    number = None if name is None else split_node.attributes.get(name)
    if isinstance(number, int) and number >= 1:
        if isinstance(size, int):
            return [size // number] * count
        return [make_dim(size.lo // number, None if size.hi is None else size.hi // number)] * count
    lengths = (
        split_node.facts[2].value if len(split_node.facts) > 2 and split_node.facts[2] is not None else None
    )
    if not isinstance(lengths, tuple) or len(lengths) != count:
        return [UNKNOWN] * count
    known = sum(int(length) for length in lengths if length is not None and length >= 0)
    whole = all(length is not None for length in lengths)
    # A rest of exactly -1, OpenVINO takes for a size that it does not know.
    rest: Dim = UNKNOWN
    if isinstance(size, int) and whole and size - known != -1:
        rest = max(0, size - known)
    return [int(length) if length is not None and length >= 0 else rest for length in lengths]


def with_shapes(model: ir.Model, values: Mapping[ir.Value, AbstractValue]) -> OpenVINOModel:
    """Return the model that nodes were made of, with the dimensions of its ports: -1 where one is not exact.

    Ports cannot state intervals; those stay in the ``shape`` of Parameter layers. Nodes have them too.
    """
    for node in iter_all_nodes(model):
        declare_ports(node, values)
    return from_nodes(model)


def declare_ports(node: ir.Node, values: Mapping[ir.Value, AbstractValue]) -> None:
    """Set the types and dimensions of the ports of a layer, as far as they are known."""
    layer = get_layer(node)
    inputs = tuple([_port(*pair, values) for pair in zip(layer.inputs, node.inputs, strict=True)])
    outputs = tuple([_port(*pair, values) for pair in zip(layer.outputs, node.outputs, strict=True)])
    if (inputs, outputs) != (layer.inputs, layer.outputs):
        set_layer(node, replace(layer, inputs=inputs, outputs=outputs))


def _port(port: Port, value: ir.Value | None, values: Mapping[ir.Value, AbstractValue]) -> Port:
    known = None if value is None else values.get(value)
    if not isinstance(known, AbstractTensor) or known.shape is None:
        return port
    precision = known.type.precision if known.type is not None and known.type.precision else port.precision
    dims = tuple(size if isinstance(size, int) else -1 for size in known.shape)
    if dims == port.dims and precision == port.precision:
        return port
    return Port(port.id, precision, dims, port.names, port.attributes, port.children)
