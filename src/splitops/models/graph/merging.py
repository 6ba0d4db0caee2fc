"""The splits that onnxruntime takes for one another.

Its optimiser lets nodes of the same operator, attributes and inputs share one node's outputs ("common
subexpression elimination"). Below opset 18, a Split without lengths says only by its outputs how many parts
it makes; from then on one may declare fewer outputs than ``num_outputs`` says. Outputs are not compared: of
two such nodes on one input that declare different numbers of outputs, what reads one reads the parts of the
other. One that declares its lengths is safe.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from splitops.models.formats.onnx.structure import FunctionKey, canonical, extend
from splitops.models.graph.onnx import (
    BY_CHANCE,
    PLAIN,
    all_nodes,
    function_key,
    function_path,
    functions_of,
    is_external,
    opset_imports,
    subgraphs,
    unread_attributes,
)
from splitops.spec.operators import schema
from splitops.spec.operators.schemas import Given

SiteKey: TypeAlias = tuple[str | None, str]
"""A node by the path of its graph and its first output that has a name."""

_Values: TypeAlias = MutableMapping[ir.Value, Hashable]
"""What the values of one graph stand for: the same for values that are computed in the same way."""

_MOST_CONSTANT: Final = 1 << 8
"""Constants of more elements are not compared."""
_MOST_CALLS: Final = 1 << 16
"""Nodes of functions that are looked at, once for every call."""


def site_key(path: str | None, outputs: Sequence[str | None]) -> SiteKey:
    """Return what a node with some outputs, in the graph of a path, is found by."""
    return path, next(filter(None, outputs), "")


def merged_sites(model: ir.Model, *, with_lengths: bool = False) -> frozenset[SiteKey]:
    """Return the splits of a model that onnxruntime takes for others that declare other numbers of outputs.

    Args:
        model: a well-formed model.
        with_lengths: also splits that would be taken for others without the equal lengths that they state.

    Examples:
        >>> model = ir.from_onnx_text('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[N] x) => (float[K] p, float[L] q) {
        ...         a, b = Split(x)
        ...         c, d, e, f = Split(x)
        ...         p = Relu(b)
        ...         q = Relu(d) }''')
        >>> sorted(merged_sites(model))
        [(None, 'a'), (None, 'c')]
    """
    splits = (node for node in all_nodes(model) if node.op_type == "Split")
    if len({len(node.outputs) for node in splits if with_lengths or not _has_lengths(node)}) < 2:
        return frozenset()
    search = _Search(functions_of(model), with_lengths, unread_attributes(model))
    values: _Values = {}
    search.initializers(model.graph, values)
    search.nodes(
        model.graph, values, _Place(None, opset_imports(model.graph, model), frozenset(model.graph.outputs))
    )
    return frozenset(search.merged())


@dataclass(frozen=True, slots=True)
class _Member:
    """One split of those that are the same but for their outputs."""

    key: SiteKey
    outputs: tuple[ir.Value, ...]
    graph_outputs: frozenset[ir.Value]

    def differs(self, other: _Member) -> bool:
        """Return whether a part of one may be read in the place of the other's; graph outputs never are."""
        pairs = zip(self.outputs, other.outputs, strict=False)
        kept = all(a in self.graph_outputs and b in other.graph_outputs for a, b in pairs)
        return len(self.outputs) != len(other.outputs) and not kept


class _Constant(NamedTuple):
    type: int
    shape: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    """Where nodes stand; subgraphs are optimised one by one."""

    path: str | None
    opsets: Mapping[str, int]
    graph_outputs: frozenset[ir.Value]
    graph: object = field(default_factory=object)


@dataclass
class _Search:
    functions: Mapping[FunctionKey, ir.Function]
    with_lengths: bool
    unread: Mapping[ir.Node, object]
    groups: dict[Hashable, list[_Member]] = field(default_factory=dict)
    known: dict[Hashable, int] = field(default_factory=dict)
    """A number for each different computation."""
    budget: int = _MOST_CALLS

    def merged(self) -> Iterator[SiteKey]:
        """Yield the split nodes that are found to be taken for others."""
        for group in self.groups.values():
            if len({len(member.outputs) for member in group}) > 1:
                yield from (one.key for one in group if any(map(one.differs, group)))

    def initializers(self, graph: ir.Graph, values: _Values) -> None:
        """Give equal small initializers that no caller replaces equal values."""
        for value in graph.initializers.values():
            values[value] = object() if value.is_graph_input() else _constant(value.const_value)

    def nodes(self, nodes: Iterable[ir.Node], values: _Values, place: _Place) -> None:
        """Give the outputs of nodes that compute the same the same values, and collect the splits."""
        for node in nodes:
            inputs = tuple(None if value is None else values.get(value, value) for value in node.inputs)
            function = self.functions.get(function_key(node))
            operator = node.op_type if canonical(node.domain) == "" else ""
            results: Iterable[Hashable]
            if function is not None and self.budget > 0:
                results = self._call(function, inputs, place)
            elif operator == "Identity":
                results = inputs
            elif operator == "Constant":
                tensor = node.attributes.get("value")
                results = [_constant(None if tensor is None or tensor.is_ref() else tensor.value)]
            else:
                for step, graph in subgraphs(node):
                    self._body(graph, values, extend(place.path, step), place.opsets)
                if operator == "Split":
                    self._split(node, inputs, place)
                number = self.known.setdefault((self._operator(node), inputs), len(self.known))
                results = ((number, index) for index in count())
            values.update(zip(node.outputs, results, strict=False))

    def _call(self, function: ir.Function, inputs: Sequence[Hashable], place: _Place) -> Iterator[Hashable]:
        """Look at a function's body as at nodes in the place of its call, where it is put first."""
        self.budget -= len(function)
        values: _Values = {value: object() for value in function.inputs}
        values.update(zip(function.inputs, inputs, strict=False))
        inner = replace(
            place,
            path=function_path(function),
            opsets=opset_imports(function),
            graph_outputs=frozenset(),
        )
        self.nodes(function, values, inner)
        return (values.get(value, object()) for value in function.outputs)

    def _body(self, graph: ir.Graph, outer: _Values, path: str, opsets: Mapping[str, int]) -> None:
        values: _Values = ChainMap({value: object() for value in graph.inputs}, outer)
        self.initializers(graph, values)
        self.nodes(graph, values, _Place(path, opsets, frozenset(graph.outputs)))

    def _split(self, node: ir.Node, inputs: tuple[Hashable, ...], place: _Place) -> None:
        row = schema("Split", place.opsets.get("", 1), "")
        assert row.count is not None
        attribute = node.attributes.get("split")
        lengths = inputs[1] if attribute is None and len(inputs) > 1 else attribute and attribute.value
        if lengths is not None:
            counted = row.count.given is Given.OUTPUTS  # another num_outputs is another node
            if not (self.with_lengths and counted and _are_equal(lengths)):
                return
        key = site_key(place.path, [value.name for value in node.outputs])
        member = _Member(key, tuple(node.outputs), place.graph_outputs)
        operator = self._operator(node, without="split")
        self.groups.setdefault((place.graph, operator, inputs[0]), []).append(member)

    def _operator(self, node: ir.Node, *, without: str = "") -> Hashable:
        """Return what must be equal of nodes that compute the same; of some, nothing is equal to it."""
        stated = [item for item in node.attributes.values() if item.name != without]
        if node in self.unread or any(item.type not in PLAIN or item.is_ref() for item in stated):
            return object()
        if node.op_type in BY_CHANCE:
            return object()
        return canonical(node.domain), node.op_type, frozenset((i.name, i.type, i.value) for i in stated)


def _has_lengths(node: ir.Node) -> bool:
    stated = node.attributes.data.get("split")
    return len(node.inputs) > 1 and node.inputs[1] is not None if stated is None else not stated.is_ref()


def _constant(tensor: ir.TensorProtocol | None) -> Hashable:
    """Return what is compared of a constant; nothing is equal to a large one, or one in another file."""
    if tensor is None or is_external(tensor) or tensor.dtype == ir.DataType.STRING:
        return object()
    array = tensor.numpy() if tensor.size <= _MOST_CONSTANT else None
    return object() if array is None else _Constant(tensor.dtype.value, array.shape, array.tobytes())


def _are_equal(lengths: Hashable) -> bool:
    """Return whether lengths, numbers or a constant of them, are the same for every part."""
    if isinstance(lengths, _Constant):
        lengths = tuple(np.frombuffer(lengths.content, np.int64).tolist())
    return isinstance(lengths, tuple) and len(set(lengths)) == 1
