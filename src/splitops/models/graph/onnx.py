"""Small tools for rewriting onnx-ir graphs: names, constants, what is known of a value, replacing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy.typing as npt
import onnx_ir as ir
from onnx import AttributeProto

from splitops.errors import NOWHERE
from splitops.models.formats.onnx.schemas import version_of
from splitops.models.formats.onnx.structure import FunctionKey, canonical, extend
from splitops.models.formats.onnx.tensors import is_marked, tensor_array
from splitops.models.formats.onnx.types import from_type
from splitops.models.graph.openvino import LayerNode, PortValue
from splitops.models.known import Known, SequenceOf, Tensor, fact, meet
from splitops.spec.elements.types import ElementType, element_type_of, from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape
from splitops.splitting.binding import Fact

TYPE: Final = "splitops.type"
"""Where values keep a type that onnx-ir does not read, in protobuf; models with such values have it too."""
ATTRIBUTES: Final = "splitops.attributes"
"""Where models keep the attributes that onnx-ir does not read, in protobuf, by node.

Not with the nodes: to ask a node or value for its ``meta`` makes two objects that stay.
"""
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
INITIALIZERS_OF_THEIR_OWN: Final = 4
"""The first IR version in which an initializer need not be an input as well."""
_KNOWN: Final = "splitops.known"
_OUTPUTS: Final = "splitops.outputs"
"""Where graphs keep the positions of their outputs; one that is no longer true is looked up again."""
_MOST_CONSTANT: Final = 1 << 20
"""Larger constants are not lengths, and are not read."""


def subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the graphs of a node's attributes, each with the last step of its path."""
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            start = f"{node.name}/" if type(node) is LayerNode else f"{label(node)}."
            yield f"{start}{attribute.name}", attribute.as_graph()
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            for index, graph in enumerate(attribute.as_graphs()):
                yield f"{label(node)}.{attribute.name}[{index}]", graph


def owners_of(model: ir.Model) -> Iterator[tuple[str | None, Any]]:
    """Yield the main graph and the functions of a model, each with its path."""
    yield None, model.graph
    for function in model.functions.values():
        yield function_path(function), function


def function_path(function: ir.Function) -> str:
    """Return the graph path of a model-local function."""
    return f"function {function.domain}.{function.name}"


def function_key(item: ir.Node | ir.Function) -> FunctionKey:
    """Return what a function is called by: the same for a function and for a node that calls it."""
    name = item.op_type if isinstance(item, ir.Node) else item.name
    return canonical(item.domain), name, item.overload


def functions_of(model: ir.Model) -> dict[FunctionKey, ir.Function]:
    """Return the model-local functions by key."""
    return {function_key(function): function for function in model.functions.values()}


def opset_imports(owner: ir.Graph | ir.Function, model: ir.Model | None = None) -> dict[str, int]:
    """Return the opset of each domain that a function, or the main graph of a model, imports."""
    found = {canonical(domain): version for domain, version in owner.opset_imports.items()}
    if not found and model is not None and (model.ir_version or 0) < 3:
        found[""] = 1  # opset_import came with IR version 3
    return found


def graphs_of(owner: Any, path: str | None = None) -> Iterator[tuple[str | None, Any]]:
    """Yield a graph and the graphs inside it, each with its path as the split nodes of models name it."""
    yield path, owner
    for node in owner:
        if node.attributes.data:  # many nodes have none
            for step, graph in subgraphs(node):
                yield from graphs_of(graph, extend(path, step))


def all_graphs(model: ir.Model) -> Iterator[tuple[str | None, Any]]:
    """Yield every graph and function of a model with its path."""
    for path, owner in owners_of(model):
        yield from graphs_of(owner, path)


def nodes_of(owner: Any, path: str | None = None) -> Iterator[tuple[str | None, ir.Node]]:
    """Yield every node of a graph with the path of its graph, those inside a node behind it."""
    for node in owner:
        yield path, node
        if node.attributes.data:
            for step, graph in subgraphs(node):
                yield from nodes_of(graph, extend(path, step))


def located_nodes(model: ir.Model) -> Iterator[tuple[str | None, ir.Node, int]]:
    """Yield every node with the path of its graph and the opset of ONNX that is imported there.

    Nodes of subgraphs come behind the node that they belong to.
    """
    for start, owner in owners_of(model):
        opset = opset_imports(owner, model if start is None else None).get("", 1)
        for path, node in nodes_of(owner, start):
            yield path, node, opset


class OtherVersion(NamedTuple):
    """A node of a function, whose opset selects another version of it than the opset of the model."""

    function: str
    """The path of the function."""
    path: str
    """That of the node's graph, the function or one inside it."""
    node: ir.Node
    version: int | None
    """None where the opset has no such operator."""
    of_model: int | None


def other_versions(model: ir.Model) -> Iterator[OtherVersion]:
    """Yield the nodes of functions of which the model's opset selects another version.

    Such models are not valid, and runtimes that inline functions read the model's version.
    """
    imported, functions = opset_imports(model.graph, model), functions_of(model)
    for function in functions.values():
        own, start = opset_imports(function), function_path(function)
        for path, node in nodes_of(function, start) if own != imported else ():
            domain, assumed = canonical(node.domain), imported.get(canonical(node.domain))
            if assumed is None or domain not in own or function_key(node) in functions:
                continue
            first, second = (version_of(node.op_type, opset, domain) for opset in (own[domain], assumed))
            since = tuple(None if one is None else one.since for one in (first, second))
            if since[0] != since[1]:
                yield OtherVersion(start, path or start, node, *since)


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node, those of subgraphs behind the node that they belong to."""
    for _, node, _ in located_nodes(model):
        yield node


def label(node: ir.Node) -> str:
    """Return the node's name; of an unnamed node, its operator and first output."""
    if node.name:
        return node.name
    named = next((value.name for value in node.outputs if value.name), "")
    return f"{node.op_type} -> {named}"


def unread_attributes(model: ir.Model) -> Mapping[ir.Node, Sequence[AttributeProto]]:
    """Return the attributes of nodes that onnx-ir does not read."""
    found: Mapping[ir.Node, Sequence[AttributeProto]] = model.meta.get(ATTRIBUTES, {})
    return found


class Names:
    """Names that no value and no node of a model has yet."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = {""}
        self._counts: dict[str, int] = {}  # a wish may be common
        for _, graph in all_graphs(model):
            self._take(graph.inputs)
            if isinstance(graph, ir.Graph):
                self._take(graph.initializers.values())
            for node in graph:
                self._taken.add(node.name or "")
                self._take(node.outputs)

    def _take(self, values: Iterable[ir.Value]) -> None:
        self._taken.update(value.name or "" for value in values)

    def fresh(self, wish: str) -> str:
        """Return the wished name, or one like it that is free."""
        name, count = wish, self._counts.get(wish, 0)
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._counts[wish] = count
        self._taken.add(name)
        return name


def stem(node: ir.Node) -> str:
    """Return how the names of what is made for a node begin."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type


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


def known(value: ir.Value) -> Known:
    """Return what is known of a value: by inference, else what it declares itself."""
    return value.meta[_KNOWN] if _KNOWN in value.meta else declared(value)


def declared(value: ir.Value) -> Known:
    """Return what a model declares of a value."""
    if type(value) is PortValue:
        return value.port.declared
    kind, shape = value.type, value.shape
    if kind is None and shape is None:
        return from_type(value.meta[TYPE]) if TYPE in value.meta else None
    sizes = None if shape is None else tuple(map(_size, shape.dims))
    if kind is None or isinstance(kind, ir.TensorType):
        return Tensor(None if kind is None else from_onnx(kind.dtype.value), sizes)
    if isinstance(kind, ir.SequenceType) and isinstance(kind.elem_type, ir.TensorType):
        return SequenceOf(Tensor(from_onnx(kind.elem_type.dtype.value), sizes))
    return from_type(ir.serde.serialize_value(value).type)


def _size(size: int | ir.SymbolicDim) -> Dim:
    if isinstance(size, int):
        return size if size >= 0 else UNKNOWN
    name: object = size.value
    return Range(name=name) if isinstance(name, str) and name else UNKNOWN


def note(value: ir.Value, what: Known) -> None:
    """Note what is known of a value, which is not written with the model."""
    value.meta[_KNOWN] = what


def type_of(value: ir.Value) -> ElementType | None:
    """Return the element type of a tensor; None is unknown."""
    found = known(value)
    return found.type if isinstance(found, Tensor) else None


def shape_of(value: ir.Value) -> Shape | None:
    """Return what is known of the shape of a tensor; None is an unknown rank."""
    found = known(value)
    return found.shape if isinstance(found, Tensor) else None


def is_external(tensor: ir.TensorProtocol | None) -> bool:
    """Return whether the data of a tensor is in another file."""
    return type(tensor) is ir.ExternalTensor  # isinstance() asks its protocol, which is slow


def has_defaults(model: ir.Model) -> bool:
    """Return whether callers can replace initializers that are inputs: all had to be before IR version 4."""
    return model.ir_version is None or model.ir_version >= INITIALIZERS_OF_THEIR_OWN


def is_constant(value: ir.Value | None) -> bool:
    """Return whether a value is a constant that the model holds, of any size, and that no caller replaces."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.is_initializer()
    if type(producer) is LayerNode:
        return producer.op_type == "Const"
    return producer.op_type == "Constant" and canonical(producer.domain) == ""


def constant_array(value: ir.Value, *, limit: int = _MOST_CONSTANT) -> npt.NDArray[Any] | None:
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
        return tensor_array(outside, NOWHERE) if is_marked(outside) else None
    return tensor.numpy()


def fixed_array(value: ir.Value | None, *, limit: int = _MOST_CONSTANT) -> npt.NDArray[Any] | None:
    """Return the numbers that a value has in every run: of a constant, or as they follow from shapes."""
    if value is None:
        return None
    array = constant_array(value, limit=limit)
    found = known(value) if array is None else None
    if not isinstance(found, Tensor) or found.value is None or not found.is_whole:
        return array
    return found.value if found.type is None else found.value.astype(found.type.numpy, copy=False)


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
    found = known(value)
    array = constant_array(value) if read else None
    if array is not None:
        found = Tensor(element_type_of(array.dtype), array.shape, array)
    return fact(found, value=read) if isinstance(found, Tensor) else Fact()


def exchange(values: Mapping[ir.Value, ir.Value]) -> None:
    """Put new values in the places of others: readers, names, types, what is known and metadata go over."""
    replace_values(values)
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
    both = meet(known(new), known(old))
    new.type = new.type if old.type is None else old.type
    new.shape = new.shape if old.shape is None else old.shape  # that of a scalar is false
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    note(new, both)
    new.doc_string = old.doc_string or new.doc_string


def replace_values(exchanged: Mapping[ir.Value, ir.Value]) -> None:
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


def is_read(value: ir.Value) -> bool:
    """Return whether anything reads a value."""
    return bool(value.uses()) or value.is_graph_output()


def remove_if_unused(value: ir.Value) -> None:
    """Remove the Constant node or the initializer that made a value which nobody reads any more."""
    if is_read(value) or value.is_graph_input():
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
