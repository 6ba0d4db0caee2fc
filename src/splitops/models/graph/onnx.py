"""Small tools for rewriting onnx-ir graphs: names, constants, what is known of a value, replacing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE
from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue, meet, to_fact
from splitops.models.formats.onnx.graphs import TYPE
from splitops.models.formats.onnx.tensors import is_marked, read_tensor
from splitops.models.formats.onnx.types import from_type
from splitops.models.formats.openvino.nodes import LayerNode, PortValue
from splitops.models.formats.walk import (
    canonicalise,
)
from splitops.spec.elements.types import ElementType, element_type_of, from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape
from splitops.splitting.binding import Fact

BY_CHANCE: Final = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
"""Operators that give other values in every run."""
PLAIN: Final = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)
"""Types of attributes whose values can be compared."""
_KNOWN: Final = "splitops.known"
_OUTPUTS: Final = "splitops.outputs"
"""Where graphs keep the positions of their outputs; one that is no longer true is looked up again."""
_MAX_CONSTANT: Final = 1 << 20
"""Larger constants are not lengths, and are not read."""


def attributes_of(stated: Mapping[str, Any]) -> list[ir.Attr]:
    """Return attributes of some values; onnx-ir asks slowly what they are, and nearly all are integers."""
    made: list[ir.Attr] = []
    for name, value in stated.items():
        if type(value) is ir.Attr:  # isinstance() asks its protocol, which is slow
            made.append(value)
        elif type(value) is int:
            made.append(ir.AttrInt64(name, value))
        elif type(value) in (list, tuple) and value and all(type(item) is int for item in value):
            made.append(ir.AttrInt64s(name, value))
        else:
            made += ir.convenience.convert_attributes({name: value})
    return made


def get_abstract_value(value: ir.Value) -> AbstractValue:
    """Return what is known of a value: by inference, else what it declares itself."""
    return value.meta[_KNOWN] if _KNOWN in value.meta else declared(value)


def declared(value: ir.Value) -> AbstractValue:
    """Return what a model declares of a value."""
    if type(value) is PortValue:
        return value.port.declared_tensor
    kind, shape = value.type, value.shape
    if kind is None and shape is None:
        return from_type(value.meta[TYPE]) if TYPE in value.meta else None
    sizes = None if shape is None else tuple(map(_size, shape.dims))
    if kind is None or isinstance(kind, ir.TensorType):
        return AbstractTensor(None if kind is None else from_onnx(kind.dtype.value), sizes)
    if isinstance(kind, ir.SequenceType) and isinstance(kind.elem_type, ir.TensorType):
        return AbstractSequence(AbstractTensor(from_onnx(kind.elem_type.dtype.value), sizes))
    return from_type(ir.serde.serialize_value(value).type)


def _size(size: int | ir.SymbolicDim) -> Dim:
    if isinstance(size, int):
        return size if size >= 0 else UNKNOWN
    name: object = size.value
    return Range(name=name) if isinstance(name, str) and name else UNKNOWN


def annotate(value: ir.Value, what: AbstractValue) -> None:
    """Note what is known of a value, which is not written with the model."""
    value.meta[_KNOWN] = what


def type_of(value: ir.Value) -> ElementType | None:
    """Return the element type of a tensor; None is unknown."""
    found = get_abstract_value(value)
    return found.type if isinstance(found, AbstractTensor) else None


def shape_of(value: ir.Value) -> Shape | None:
    """Return what is known of the shape of a tensor; None is an unknown rank."""
    found = get_abstract_value(value)
    return found.shape if isinstance(found, AbstractTensor) else None


def is_external(tensor: ir.TensorProtocol | None) -> bool:
    """Return whether the data of a tensor is in another file."""
    return type(tensor) is ir.ExternalTensor  # isinstance() asks its protocol, which is slow


def is_constant(value: ir.Value | None) -> bool:
    """Return whether a value is a constant that the model holds, of any size, and that no caller replaces."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.is_initializer()
    if type(producer) is LayerNode:
        return producer.op_type == "Const"
    return producer.op_type == "Constant" and canonicalise(producer.domain) == ""


def constant_array(value: ir.Value, *, limit: int = _MAX_CONSTANT) -> npt.NDArray[Any] | None:
    """Return the value of an initializer or Constant node; None where it is none, or not at hand.

    Initializers that the caller can replace, and data in files whose folder is not known, are not at hand.
    """
    if value.is_graph_input():
        return None
    try:
        tensor = ir.convenience.get_const_tensor(value)
    except (ValueError, TypeError):  # a Constant of a damaged file declares no value, or of no type
        return None
    if tensor is None or tensor.size > limit:
        return None
    if isinstance(tensor, ir.ExternalTensor):
        outside = ir.serde.serialize_tensor(tensor)
        return read_tensor(outside, NOWHERE) if is_marked(outside) else None
    return tensor.numpy()


def fixed_array(value: ir.Value | None, *, limit: int = _MAX_CONSTANT) -> npt.NDArray[Any] | None:
    """Return the numbers that a value has in every run: of a constant, or as they follow from shapes."""
    if value is None:
        return None
    array = constant_array(value, limit=limit)
    found = get_abstract_value(value) if array is None else None
    if not isinstance(found, AbstractTensor) or found.elements is None or not found.is_complete:
        return array
    return found.elements if found.type is None else found.elements.astype(found.type.numpy, copy=False)


def fixed_integers(value: ir.Value | None) -> list[int] | None:
    """Return the integers that a 1-D tensor has in every run; None where they are not known."""
    array = fixed_array(value)
    if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
        return None
    return [int(number) for number in array.tolist()]


def initializer(graph: ir.Graph, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    """Add a tensor to a graph as an initializer, and return its value."""
    tensor.name = name
    type_, shape = ir.TensorType(tensor.dtype), fixed_shape(tensor)
    value = ir.Value(name=name, type=type_, shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def fixed_shape(tensor: ir.TensorProtocol) -> ir.Shape:
    """Return the shape of a tensor, as values state it."""
    return ir.Shape([int(size) for size in tensor.shape.numpy()])


def value_fact(value: ir.Value, *, read: bool) -> Fact:
    """Return what is known of a value, its numbers included where asked and known."""
    found = get_abstract_value(value)
    array = constant_array(value) if read else None
    if array is not None:
        found = AbstractTensor(element_type_of(array.dtype), array.shape, array)
    return to_fact(found, value=read) if isinstance(found, AbstractTensor) else Fact()


def transfer_values(values: Mapping[ir.Value, ir.Value]) -> None:
    """Put new values in the places of others: readers, names, types, what is known and metadata go over."""
    replace_all_uses(values)
    for old, new in values.items():
        take_over(new, old)
        name, old.name = old.name, None
        new.name = name or new.name


def describe_like(made: ir.Node, node: ir.Node) -> None:
    """Give a node in the place of another one its metadata and documentation."""
    made.metadata_props.update(node.metadata_props)
    made.doc_string = node.doc_string or made.doc_string


def take_over(new: ir.Value, old: ir.Value) -> None:
    """Give a value what another one declares, and what is known of either."""
    both = meet(get_abstract_value(new), get_abstract_value(old))
    new.type = new.type if old.type is None else old.type
    new.shape = new.shape if old.shape is None else old.shape  # that of a scalar is false
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    annotate(new, both)
    new.doc_string = old.doc_string or new.doc_string


def replace_all_uses(exchanged: Mapping[ir.Value, ir.Value]) -> None:
    """Let all that reads some values read others, outputs of graphs too."""
    readers: dict[ir.Node, dict[int, ir.Value]] = {}
    for old, new in exchanged.items():
        while old.is_graph_output():
            graph = old.graph
            assert graph is not None
            index = _output_index(graph, old)
            graph.outputs[index] = new
            graph.meta[_OUTPUTS][new] = index
        for use in old.uses():
            readers.setdefault(use.node, {})[use.idx] = new
    for node, changed in readers.items():
        values = list(node.inputs)
        for index, new in changed.items():
            values[index] = new
        _read(node, values, changed)


def set_inputs(node: ir.Node, values: Sequence[ir.Value | None]) -> None:
    """Let a node read other values."""
    _read(node, values, range(max(len(node.inputs), len(values))))


def _read(node: ir.Node, values: Sequence[ir.Value | None], changed: Iterable[int]) -> None:
    """Let a node read some values, of which those at some positions are others than before.

    onnx-ir runs through all inputs for each one that changes: of a Concat of 200,000 parts it would not end.
    """
    old, node._inputs = node.inputs, tuple(values)
    for index in changed:
        before = old[index] if index < len(old) else None
        after = values[index] if index < len(values) else None
        if before is not None:
            before._remove_usage(node, index)
        if after is not None:
            after._add_usage(node, index)
    if getattr(node, "device_configurations", ()):  # newer releases of onnx-ir have them
        for gone in {value for value in old if value is not None}.difference(values):
            node._drop_sharding_for_value(gone)


def remove_node(node: ir.Node) -> None:
    """Remove a node that reads nothing and that nothing reads from its graph.

    onnx-ir reads all outputs of the graph each time, of which there may be thousands.
    """
    graph = node.graph
    if isinstance(graph, ir.Graph):
        node.graph = None
        graph._nodes.remove(node)
    elif graph is not None:
        graph.remove(node)


def _output_index(graph: ir.Graph, value: ir.Value) -> int:
    """Return where a value is among the outputs of a graph, of which there may be thousands."""
    known: dict[ir.Value, int] = graph.meta.setdefault(_OUTPUTS, {})
    index = known.get(value)
    if index is None or index >= len(graph.outputs) or graph.outputs[index] is not value:
        known.clear()
        known.update((output, index) for index, output in enumerate(graph.outputs))
    return known[value]


def make_initializer(node: ir.Node, tensor: ir.TensorProtocol, graph: ir.Graph) -> None:
    """Put an initializer of a graph in the place of one of its Constant nodes."""
    old = node.outputs[0]
    name, old.name = old.name, None
    made = initializer(graph, tensor, name or "")
    made.meta.update(old.meta)
    old.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def has_consumers(value: ir.Value) -> bool:
    """Return whether anything reads a value."""
    return bool(value.uses()) or value.is_graph_output()


def remove_if_unused(value: ir.Value) -> None:
    """Remove the Constant node or the initializer that made a value which nobody reads any more."""
    if has_consumers(value) or value.is_graph_input():
        return
    producer = value.producer()
    if producer is not None:
        if producer.op_type == "Constant" and producer.domain == "" and producer.graph is not None:
            producer.graph.remove(producer, safe=True)
    elif value.is_initializer():
        graph = value.graph
        assert isinstance(graph, ir.Graph)
        if value.name is not None:
            graph.initializers.pop(value.name, None)
