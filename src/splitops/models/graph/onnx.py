"""Read, annotate and edit values and nodes of onnx-ir graphs."""

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
from splitops.models.formats.walk import canonicalise
from splitops.spec.elements.types import ElementType, element_type_of, from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape
from splitops.splitting.binding import Fact

BY_CHANCE: Final = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
"""Operators that return random values."""
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
"""Metadata key of the index of each output of a graph. Stale indices are computed again."""
_MAX_CONSTANT: Final = 1 << 20
"""Default maximum number of elements of constants that are read: larger ones are not lengths."""


def make_attributes(values: Mapping[str, Any]) -> list[ir.Attr]:
    """Convert values, keyed by name, to attributes. Integers bypass onnx-ir's conversion, which is slow."""
    attributes: list[ir.Attr] = []
    for name, value in values.items():
        if type(value) is ir.Attr:  # isinstance() is slow, as it checks a protocol
            attributes.append(value)
        elif type(value) is int:
            attributes.append(ir.AttrInt64(name, value))
        elif type(value) in (list, tuple) and value and all(type(item) is int for item in value):
            attributes.append(ir.AttrInt64s(name, value))
        else:
            attributes += ir.convenience.convert_attributes({name: value})
    return attributes


def get_abstract_value(value: ir.Value) -> AbstractValue:
    """Return the abstract value that inference has annotated, or the declared one if there is none."""
    return value.meta[_KNOWN] if _KNOWN in value.meta else get_declared(value)


def get_declared(value: ir.Value) -> AbstractValue:
    """Return the declared type and shape of a value as an abstract value, or None if there is neither."""
    if type(value) is PortValue:
        return value.port.declared_tensor
    kind, shape = value.type, value.shape
    if kind is None and shape is None:
        return from_type(value.meta[TYPE]) if TYPE in value.meta else None
    sizes = None if shape is None else tuple(map(_convert_dim, shape.dims))
    if kind is None or isinstance(kind, ir.TensorType):
        return AbstractTensor(None if kind is None else from_onnx(kind.dtype.value), sizes)
    if isinstance(kind, ir.SequenceType) and isinstance(kind.elem_type, ir.TensorType):
        return AbstractSequence(AbstractTensor(from_onnx(kind.elem_type.dtype.value), sizes))
    return from_type(ir.serde.serialize_value(value).type)


def _convert_dim(size: int | ir.SymbolicDim) -> Dim:
    if isinstance(size, int):
        return size if size >= 0 else UNKNOWN
    name: object = size.value
    return Range(name=name) if isinstance(name, str) and name else UNKNOWN


def annotate(value: ir.Value, inferred: AbstractValue) -> None:
    """Store the abstract value of a value in its metadata, which is not saved with the model."""
    value.meta[_KNOWN] = inferred


def find_type(value: ir.Value) -> ElementType | None:
    """Return the inferred element type of a tensor, or None if it is unknown."""
    found = get_abstract_value(value)
    return found.type if isinstance(found, AbstractTensor) else None


def find_shape(value: ir.Value) -> Shape | None:
    """Return the inferred shape of a tensor, or None if its rank is unknown."""
    found = get_abstract_value(value)
    return found.shape if isinstance(found, AbstractTensor) else None


def is_external(tensor: ir.TensorProtocol | None) -> bool:
    """Return whether the data of a tensor is in another file."""
    return type(tensor) is ir.ExternalTensor  # isinstance() is slow, as it checks a protocol


def is_constant(value: ir.Value | None) -> bool:
    """Return whether a value is an initializer or the output of a Constant node or Const layer.

    Initializers that are graph inputs do not count. Constants of any size do.
    """
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.is_initializer()
    if type(producer) is LayerNode:
        return producer.op_type == "Const"
    return producer.op_type == "Constant" and canonicalise(producer.domain) == ""


def read_constant(value: ir.Value, *, limit: int = _MAX_CONSTANT) -> npt.NDArray[Any] | None:
    """Return the elements of an initializer or Constant node, or None if they are not available.

    They are not available if the value is computed, if it is a graph input, if it has more than ``limit``
    elements, or if it is stored in another file and the folder of the model is unknown.
    """
    if value.is_graph_input():
        return None
    try:
        tensor = ir.convenience.get_const_tensor(value)
    except (ValueError, TypeError):  # a Constant of a damaged file has no value, or one without a type
        return None
    if tensor is None or tensor.size > limit:
        return None
    if isinstance(tensor, ir.ExternalTensor):
        outside = ir.serde.serialize_tensor(tensor)
        return read_tensor(outside, NOWHERE) if is_marked(outside) else None
    return tensor.numpy()


def find_elements(value: ir.Value | None, *, limit: int = _MAX_CONSTANT) -> npt.NDArray[Any] | None:
    """Return the elements that a value has in every run, or None if they are unknown."""
    if value is None:
        return None
    array = read_constant(value, limit=limit)
    found = get_abstract_value(value) if array is None else None
    if not isinstance(found, AbstractTensor) or found.elements is None or not found.is_complete:
        return array
    return found.elements if found.type is None else found.elements.astype(found.type.numpy, copy=False)


def find_integers(value: ir.Value | None) -> list[int] | None:
    """Return the integers that a 1-D tensor has in every run, or None if they are unknown."""
    array = find_elements(value)
    if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
        return None
    return [int(number) for number in array.tolist()]


def add_initializer(graph: ir.Graph, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    """Add a tensor to a graph as an initializer, and return its value."""
    tensor.name = name
    type_, shape = ir.TensorType(tensor.dtype), make_shape(tensor)
    value = ir.Value(name=name, type=type_, shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def make_shape(tensor: ir.TensorProtocol) -> ir.Shape:
    """Return the shape of a constant tensor as an ``ir.Shape`` for a value."""
    return ir.Shape([int(size) for size in tensor.shape.numpy()])


def make_fact(value: ir.Value, *, read: bool) -> Fact:
    """Return the inferred type and shape of a value and, with ``read``, its known elements.

    Elements are read only from scalars and 1-D tensors. The fact is empty if the value is not a tensor.
    """
    found = get_abstract_value(value)
    array = read_constant(value) if read else None
    if array is not None:
        found = AbstractTensor(element_type_of(array.dtype), array.shape, array)
    return to_fact(found, value=read) if isinstance(found, AbstractTensor) else Fact()


def transfer_values(values: Mapping[ir.Value, ir.Value]) -> None:
    """Replace values with new ones, which take over their uses, names, types, annotations and metadata."""
    replace_all_uses(values)
    for old, new in values.items():
        merge_value_info(new, old)
        name, old.name = old.name, None
        new.name = name or new.name


def copy_description(made: ir.Node, node: ir.Node) -> None:
    """Copy the metadata and the documentation of a node to the node that replaces it."""
    made.metadata_props.update(node.metadata_props)
    made.doc_string = node.doc_string or made.doc_string


def merge_value_info(new: ir.Value, old: ir.Value) -> None:
    """Copy declarations and metadata of ``old`` to ``new``, and combine the inferred values of both."""
    both = meet(get_abstract_value(new), get_abstract_value(old))
    new.type = new.type if old.type is None else old.type
    new.shape = new.shape if old.shape is None else old.shape  # the shape of a scalar is falsy
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    annotate(new, both)
    new.doc_string = old.doc_string or new.doc_string


def replace_all_uses(replaced: Mapping[ir.Value, ir.Value]) -> None:
    """Replace all uses of each key of ``replaced`` with the mapped value, including graph outputs."""
    consumers: dict[ir.Node, dict[int, ir.Value]] = {}
    for old, new in replaced.items():
        while old.is_graph_output():
            graph = old.graph
            assert graph is not None
            index = _get_output_index(graph, old)
            graph.outputs[index] = new
            graph.meta[_OUTPUTS][new] = index
        for use in old.uses():
            consumers.setdefault(use.node, {})[use.idx] = new
    for node, changed in consumers.items():
        values = list(node.inputs)
        for index, new in changed.items():
            values[index] = new
        _set_inputs_at(node, values, changed)


def set_inputs(node: ir.Node, values: Sequence[ir.Value | None]) -> None:
    """Replace the inputs of a node. Their number may change."""
    _set_inputs_at(node, values, range(max(len(node.inputs), len(values))))


def _set_inputs_at(node: ir.Node, values: Sequence[ir.Value | None], changed: Iterable[int]) -> None:
    """Set the inputs of a node. They differ from its present inputs only at the positions ``changed``.

    onnx-ir visits all inputs for each changed one: with a Concat of 200,000 parts, it would not finish.
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
    """Remove a node without inputs and consumers from its graph.

    onnx-ir would visit all outputs of the graph, maybe thousands, for each removed node.
    """
    graph = node.graph
    if isinstance(graph, ir.Graph):
        node.graph = None
        graph._nodes.remove(node)


def _get_output_index(graph: ir.Graph, value: ir.Value) -> int:
    """Return the index of a value in the outputs of a graph. Indices are cached for thousands of outputs."""
    known: dict[ir.Value, int] = graph.meta.setdefault(_OUTPUTS, {})
    index = known.get(value)
    if index is None or index >= len(graph.outputs) or graph.outputs[index] is not value:
        known.clear()
        known.update((output, index) for index, output in enumerate(graph.outputs))
    return known[value]


def replace_constant_node(node: ir.Node, tensor: ir.TensorProtocol, graph: ir.Graph) -> None:
    """Replace a Constant node with an initializer of ``graph``."""
    old = node.outputs[0]
    name, old.name = old.name, None
    made = add_initializer(graph, tensor, name or "")
    made.meta.update(old.meta)
    old.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def has_consumers(value: ir.Value) -> bool:
    """Return whether a node or a graph output uses a value."""
    return bool(value.uses()) or value.is_graph_output()


def remove_if_unused(value: ir.Value) -> None:
    """Remove the Constant node or the initializer of a value, if the value is unused."""
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
