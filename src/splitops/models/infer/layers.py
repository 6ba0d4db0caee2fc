"""Infer the outputs of an OpenVINO layer, and of a split as OpenVINO itself infers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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


def get_initial_value(layer: Layer, where: Where) -> AbstractTensor:
    """Return the abstract value of a Parameter or a Const, or an unknown tensor for other layers."""
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
    """Infer the outputs of a layer from its inputs and from the types and shapes in the file."""
    ports = [port.declared_tensor for port in layer.outputs]
    known = find_layer_spelling(layer.type, layer.version)
    if known is None:
        return ports
    found = infer_operator(*known, layer.data or {}, inputs, len(ports), of_layer=True)
    return [_combine(*pair) for pair in zip(found, ports, strict=True)]


def _combine(inferred: AbstractTensor, declared: AbstractTensor) -> AbstractTensor:
    """Combine the inferred and the declared type and shape of an output."""
    if inferred is NOTHING:
        return declared
    kind, value = inferred.type or declared.type, inferred.elements
    if value is None or not is_tracked(kind) or not may_be(declared.shape, value.shape):
        return AbstractTensor(kind, meet_shapes(inferred.shape, declared.shape))
    return AbstractTensor(kind, tuple(value.shape), value)


def _is_accepted(error: SplitError) -> bool:
    """Return whether OpenVINO ignores an error: a negative remainder, or an unknown size or axis."""
    return isinstance(error, RuleError) and (
        error.rule is Rule.REMAINDER_NEGATIVE
        or isinstance(error.values.get("size"), Range)
        or error.values.get("axis", 0) is None
    )


def infer_as_openvino(split_node: SplitNode, inputs: Sequence[AbstractTensor]) -> list[AbstractTensor] | None:
    """Infer the parts of a split as OpenVINO does, or return None if OpenVINO's inference fails.

    OpenVINO keeps only the rank if the axis is unknown. For a split into equal parts, it divides both
    ends of an interval and rounds down. A part with length -1 has an unknown size if the size of the axis or
    another length is unknown, or if the other lengths exceed the size by exactly 1. It is empty if they
    exceed the size by 2 or more.
    """
    if not inputs or not (split_node.error is None or _is_accepted(split_node.error)):
        return None
    data = inputs[0]
    count, shape = len(split_node.outputs), data.shape
    axis = _get_elements(split_node, 1)
    axis = axis[0] if isinstance(axis, tuple) and axis else axis
    if shape is None:
        return [AbstractTensor(data.type)] * count
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return [AbstractTensor(data.type, (UNKNOWN,) * len(shape))] * count
    axis %= len(shape)
    sizes = _infer_openvino_sizes(split_node, shape[axis], count)
    return [AbstractTensor(data.type, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _get_elements(split_node: SplitNode, index: int) -> Any:
    """Return the known elements of an input of a split, or None."""
    fact = split_node.facts[index] if index < len(split_node.facts) else None
    return None if fact is None else fact.value


def _infer_openvino_sizes(split_node: SplitNode, size: Dim, count: int) -> list[Dim]:
    name = split_node.schema.count_attribute
    number = None if name is None else split_node.attributes.get(name)
    if isinstance(number, int) and number >= 1:
        if isinstance(size, int):
            return [size // number] * count
        return [make_dim(size.lo // number, None if size.hi is None else size.hi // number)] * count
    lengths = _get_elements(split_node, 2)
    if not isinstance(lengths, tuple) or len(lengths) != count:
        return [UNKNOWN] * count
    known = sum(int(length) for length in lengths if length is not None and length >= 0)
    whole = all(length is not None for length in lengths)
    # OpenVINO interprets a rest of exactly -1 as an unknown size.
    rest: Dim = UNKNOWN
    if isinstance(size, int) and whole and size - known != -1:
        rest = max(0, size - known)
    return [int(length) if length is not None and length >= 0 else rest for length in lengths]


def declare_shapes(model: ir.Model, values: Mapping[ir.Value, AbstractValue]) -> OpenVINOModel:
    """Declare the inferred types and dimensions in the ports of a model, and return it as IR.

    The nodes are changed in place. Dynamic dimensions become -1: unlike the ``shape`` of a Parameter, a port
    cannot declare an interval.
    """
    for node in iter_all_nodes(model):
        declare_ports(node, values)
    return from_nodes(model)


def declare_ports(node: ir.Node, values: Mapping[ir.Value, AbstractValue]) -> None:
    """Set the inferred types and dimensions of the ports of a layer."""
    layer = get_layer(node)
    inputs = tuple([_declare_port(*pair, values) for pair in zip(layer.inputs, node.inputs, strict=True)])
    outputs = tuple([_declare_port(*pair, values) for pair in zip(layer.outputs, node.outputs, strict=True)])
    if (inputs, outputs) != (layer.inputs, layer.outputs):
        set_layer(node, replace(layer, inputs=inputs, outputs=outputs))


def _declare_port(port: Port, value: ir.Value | None, values: Mapping[ir.Value, AbstractValue]) -> Port:
    known = None if value is None else values.get(value)
    if not isinstance(known, AbstractTensor) or known.shape is None:
        return port
    precision = known.type.precision if known.type is not None and known.type.precision else port.precision
    dims = tuple(size if isinstance(size, int) else -1 for size in known.shape)
    if dims == port.dims and precision == port.precision:
        return port
    return Port(port.id, precision, dims, port.names, port.attributes, port.children)
