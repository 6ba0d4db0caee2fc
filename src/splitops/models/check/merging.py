"""The splits that onnxruntime takes for one another.

Its optimiser lets nodes of the same operator, attributes and inputs share one node's outputs ("common
subexpression elimination"). Below opset 18, a Split without lengths says only by its outputs how many parts
it makes, and outputs are not compared: of two such nodes on one input that declare different numbers of
outputs, what reads one reads the parts of the other. One that states its lengths is safe.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    numpy_helper,
)

from splitops.models.formats.onnx.structure import (
    FunctionKey,
    canonical,
    extend,
    function_key,
    function_path,
    functions_of,
    located_nodes,
    opset_imports,
    subgraphs,
)
from splitops.models.formats.onnx.tensors import is_external
from splitops.operators import schema
from splitops.operators.schema import Given

__all__ = ["SiteKey", "merged_sites", "site_key"]

SiteKey: TypeAlias = tuple[str | None, str]
"""A node by the path of its graph and its first output that has a name."""

_Values: TypeAlias = MutableMapping[str, Hashable]
"""What the names of one graph stand for: the same for values that are computed in the same way."""

_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_MOST_CONSTANT: Final = 1 << 8
"""Constants of more elements are not compared."""
_MOST_CALLS: Final = 1 << 16
"""Nodes of functions that are looked at, once for every call."""


def site_key(path: str | None, outputs: Sequence[str]) -> SiteKey:
    """Return what a node with some outputs, in the graph of a path, is found by."""
    return path, next(filter(None, outputs), "")


def merged_sites(model: ModelProto, *, with_lengths: bool = False) -> frozenset[SiteKey]:
    """Return the splits of a model that onnxruntime takes for others that declare other numbers of outputs.

    Args:
        model: a well-formed model.
        with_lengths: also splits that would be taken for others without the equal lengths that they state.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[N] x) => (float[K] p, float[L] q) {
        ...         a, b = Split(x)
        ...         c, d, e, f = Split(x)
        ...         p = Relu(b)
        ...         q = Relu(d) }''')
        >>> sorted(merged_sites(model))
        [(None, 'a'), (None, 'c')]
    """
    if sum(found.node.op_type == "Split" for found in located_nodes(model)) < 2:
        return frozenset()
    search = _Search(functions_of(model), with_lengths)
    values: _Values = {}
    search.initializers(model.graph, values)
    search.nodes(model.graph.node, values, _Place(None, opset_imports(model), _outputs(model.graph)))
    return frozenset(search.merged())


@dataclass(frozen=True, slots=True)
class _Member:
    """One split of those that are the same but for their outputs."""

    key: SiteKey
    outputs: tuple[str, ...]
    graph_outputs: frozenset[str]

    def differs(self, other: _Member) -> bool:
        """Return whether a part of one may be read in the place of the other's; graph outputs never are."""
        pairs = zip(self.outputs, other.outputs, strict=False)
        kept = all(a in self.graph_outputs and b in other.graph_outputs for a, b in pairs)
        return len(self.outputs) != len(other.outputs) and not kept


@dataclass(frozen=True, slots=True)
class _Constant:
    type: int
    shape: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    """Where nodes stand; subgraphs are optimised one by one."""

    path: str | None
    opsets: Mapping[str, int]
    graph_outputs: frozenset[str]
    graph: object = field(default_factory=object)


@dataclass
class _Search:
    functions: Mapping[FunctionKey, FunctionProto]
    with_lengths: bool
    groups: dict[Hashable, list[_Member]] = field(default_factory=dict)
    known: dict[Hashable, int] = field(default_factory=dict)
    """A number for each different computation."""
    budget: int = _MOST_CALLS

    def merged(self) -> Iterator[SiteKey]:
        """Yield the sites that are found to be taken for others."""
        for group in self.groups.values():
            if len({len(member.outputs) for member in group}) > 1:
                yield from (one.key for one in group if any(map(one.differs, group)))

    def initializers(self, graph: GraphProto, values: _Values) -> None:
        """Give equal small initializers that no caller replaces equal values."""
        replaceable = {value.name for value in graph.input}
        for tensor in graph.initializer:
            values[tensor.name] = object() if tensor.name in replaceable else _constant(tensor)

    def nodes(self, nodes: Sequence[NodeProto], values: _Values, place: _Place) -> None:
        """Give the outputs of nodes that compute the same the same values, and collect the splits."""
        for node in nodes:
            inputs = tuple(values.get(name, name) if name else None for name in node.input)
            function = self.functions.get(function_key(node))
            plain = canonical(node.domain) == ""
            if function is not None and self.budget > 0:
                results = self._call(function, inputs, place)
                values.update(zip(node.output, results, strict=False))
                continue
            if plain and node.op_type == "Identity":
                values[node.output[0]] = inputs[0]
                continue
            for step, graph in subgraphs(node):
                self._body(graph, values, extend(place.path, step), place.opsets)
            operator = self._operator(node, plain=plain)
            if plain and node.op_type == "Split":
                self._split(node, inputs, operator, place)
            if isinstance(operator, _Constant):
                values[node.output[0]] = operator
                continue
            number = self.known.setdefault((operator, inputs), len(self.known))
            values.update({name: (number, index) for index, name in enumerate(node.output) if name})

    def _call(self, function: FunctionProto, inputs: Sequence[Hashable], place: _Place) -> Iterator[Hashable]:
        """Look at a function's body as at nodes in the place of its call, where it is put first."""
        self.budget -= len(function.node)
        values: _Values = {name: object() for name in function.input}
        values.update(zip(function.input, inputs, strict=False))
        inner = replace(
            place,
            path=function_path(function),
            opsets=opset_imports(function),
            graph_outputs=frozenset(),
        )
        self.nodes(function.node, values, inner)
        return (values.get(name, object()) for name in function.output)

    def _body(self, graph: GraphProto, outer: _Values, path: str, opsets: Mapping[str, int]) -> None:
        values: _Values = ChainMap({value.name: object() for value in graph.input}, outer)
        self.initializers(graph, values)
        self.nodes(graph.node, values, _Place(path, opsets, _outputs(graph)))

    def _split(
        self, node: NodeProto, inputs: tuple[Hashable, ...], operator: Hashable, place: _Place
    ) -> None:
        row = schema("Split", place.opsets.get("", 1), "")
        if row.count is None or row.count.given is not Given.OUTPUTS:
            return
        attribute = next((tuple(item.ints) for item in node.attribute if item.name == "split"), None)
        lengths = inputs[1] if len(inputs) > 1 and attribute is None else attribute
        if lengths is not None:
            if not (self.with_lengths and _are_equal(lengths)):
                return
            operator = self._operator(node, plain=True, without="split")
        member = _Member(site_key(place.path, node.output), tuple(node.output), place.graph_outputs)
        self.groups.setdefault((place.graph, operator, inputs[0]), []).append(member)

    def _operator(self, node: NodeProto, *, plain: bool, without: str = "") -> Hashable:
        """Return what must be equal of nodes that compute the same; of some, nothing is equal to it."""
        if plain and node.op_type == "Constant":
            tensors = [item.t for item in node.attribute if item.name == "value"]
            return _constant(tensors[0]) if tensors else object()
        stated = [item for item in node.attribute if item.name != without]
        if any(item.type in _INCOMPARABLE or item.ref_attr_name for item in stated):
            return object()
        if plain and node.op_type in _RANDOM:
            return object()
        texts = sorted((item.name, item.SerializeToString(deterministic=True)) for item in stated)
        return canonical(node.domain), node.op_type, tuple(texts)


_INCOMPARABLE: Final = frozenset(
    {
        AttributeProto.TENSOR,
        AttributeProto.TENSORS,
        AttributeProto.SPARSE_TENSOR,
        AttributeProto.SPARSE_TENSORS,
        AttributeProto.GRAPH,
        AttributeProto.GRAPHS,
        AttributeProto.TYPE_PROTO,
        AttributeProto.TYPE_PROTOS,
    }
)


def _outputs(graph: GraphProto) -> frozenset[str]:
    return frozenset(value.name for value in graph.output)


def _constant(tensor: TensorProto) -> Hashable:
    """Return what is compared of a constant; nothing is equal to a large one, or one in another file."""
    if is_external(tensor) or tensor.data_type == TensorProto.STRING:
        return object()
    if math.prod(tensor.dims) > _MOST_CONSTANT:
        return object()
    array = numpy_helper.to_array(tensor)
    return _Constant(tensor.data_type, array.shape, array.tobytes())


def _are_equal(lengths: Hashable) -> bool:
    """Return whether lengths, numbers or a constant of them, are the same for every part."""
    if isinstance(lengths, _Constant):
        lengths = tuple(np.frombuffer(lengths.content, np.int64).tolist())
    return isinstance(lengths, tuple) and len(set(lengths)) == 1
