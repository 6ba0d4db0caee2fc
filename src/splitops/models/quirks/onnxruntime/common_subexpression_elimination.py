"""Common subexpression elimination: nodes with the same operator, attributes and inputs are merged.

::

    x --+-> Split into a, b        -> Relu of b        x -> Split into c, d, e, f -> Relu of d
        +-> Split into c, d, e, f

Outputs are not compared. Below opset 18, a Split without lengths has as many parts as outputs. From opset 18
on, it may declare fewer outputs than ``num_outputs``. If two such nodes of one input declare different
numbers of outputs, consumers of one get the parts of the other. Splits by lengths are safe.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from splitops.models.formats.walk import (
    FunctionKey,
    canonicalise,
    extend,
    get_opset_imports,
    get_unread_attributes,
    index_functions,
    iter_all_graphs,
    iter_all_nodes,
    iter_subgraphs,
    make_function_key,
    make_function_path,
)
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import BY_CHANCE, PLAIN, is_external, read_constant
from splitops.models.quirks.quirk import Match, Quirk, set_lengths
from splitops.spec.operators import schema
from splitops.spec.operators.schemas import SourceKind

SplitKey: TypeAlias = tuple[str | None, str]
"""The key of a node: the path of its graph and the name of its first named output."""

_Seen: TypeAlias = MutableMapping[ir.Value, Hashable]
"""The value numbers of one graph. Values that are computed in the same way have the same number."""

_MAX_CONSTANT: Final = 1 << 8
"""Maximum number of elements of constants that are compared by content."""
_MAX_CALLS: Final = 1 << 16
"""Number of nodes in called functions, counted once per call, after which no further call is entered."""


CONFLICTING_SPLITS: Final = Quirk("merged", "onnxruntime", set_lengths)


def split_key(path: str | None, outputs: Sequence[str | None]) -> SplitKey:
    """Return the key of a node: the path of its graph and the name of its first named output."""
    return path, next(filter(None, outputs), "")


def find_conflicting_splits(model: ir.Model, *, equal_as_count: bool = False) -> frozenset[SplitKey]:
    """Return the keys of the splits that onnxruntime may merge although their numbers of outputs differ.

    With ``equal_as_count``, splits by equal lengths are treated as splits by a number of parts.

    Examples:
        >>> model = ir.from_onnx_text('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[N] x) => (float[K] p, float[L] q) {
        ...         a, b = Split(x)
        ...         c, d, e, f = Split(x)
        ...         p = Relu(b)
        ...         q = Relu(d) }''')
        >>> sorted(find_conflicting_splits(model))
        [(None, 'a'), (None, 'c')]
    """
    splits = (node for node in iter_all_nodes(model) if node.op_type == "Split")
    if len({len(node.outputs) for node in splits if equal_as_count or not _has_lengths(node)}) < 2:
        return frozenset()
    search = _Search(get_unread_attributes(model), index_functions(model), equal_as_count)
    opset = get_opset_imports(model.graph, model).get("", 1)
    search.visit_nodes(model.graph, {}, _Place(None, opset, object()))
    return frozenset(search.iter_conflicts())


def find(editor: Editor, *, equal_as_count: bool = False) -> Iterator[Match]:
    """Yield a match for each split that :func:`find_conflicting_splits` finds."""
    keys = find_conflicting_splits(editor.model, equal_as_count=equal_as_count) if not editor.domain else ()
    for path, graph in iter_all_graphs(editor.model) if keys else ():
        for node in graph:
            if node.op_type == "Split" and split_key(path, [value.name for value in node.outputs]) in keys:
                yield Match(CONFLICTING_SPLITS, node, (node,))


class _Constant(NamedTuple):
    """The value number of a small constant: its content."""

    type: np.dtype[Any]
    shape: tuple[int, ...]
    content: bytes


class _Place(NamedTuple):
    """The scope of nodes. ``graph`` identifies the graph in which they are optimised after inlining."""

    path: str | None
    opset: int
    graph: object
    in_call: bool = False


@dataclass
class _Search:
    unread: Mapping[ir.Node, object]
    functions: Mapping[FunctionKey, ir.Function]
    equal_as_count: bool
    groups: dict[Hashable, list[tuple[SplitKey, list[bool]]]] = field(default_factory=dict)
    """Groups of splits that differ only in their outputs: their keys, and which outputs are graph outputs."""
    numbers: dict[Hashable, int] = field(default_factory=dict)
    """A number for each distinct computation."""
    budget: int = _MAX_CALLS

    def iter_conflicts(self) -> Iterator[SplitKey]:
        """Yield the keys of the splits whose consumers may get the parts of another split."""
        for group in self.groups.values():
            if len({len(kept) for _, kept in group}) > 1:
                yield from (key for key, kept in group if any(_is_read_for(kept, one) for _, one in group))

    def visit_nodes(self, nodes: Iterable[ir.Node], seen: _Seen, place: _Place) -> None:
        """Assign value numbers to the outputs of nodes, and collect the splits in ``groups``."""
        for node in nodes:
            operator = node.op_type if canonicalise(node.domain) == "" else ""
            if operator == "Constant":
                continue  # its value number is its content
            inputs = tuple(
                None if value is None else _find_value_number(value, seen) for value in node.inputs
            )
            function = self.functions.get(make_function_key(node))
            results: Iterable[Hashable]
            if function is not None and self.budget > 0:
                results = self._call(function, inputs, place)
            elif operator == "Identity":
                results = inputs
            else:
                for step, graph in iter_subgraphs(node):
                    inner = _Place(extend(place.path, step), place.opset, object())
                    self.visit_nodes(graph, ChainMap({}, seen), inner)
                if operator == "Split":
                    self._split(node, inputs, place)
                number = self.numbers.setdefault((self._make_operator_key(node), inputs), len(self.numbers))
                results = ((number, index) for index in count())
            seen.update(zip(node.outputs, results, strict=False))

    def _call(self, function: ir.Function, inputs: Sequence[Hashable], place: _Place) -> Iterator[Hashable]:
        """Visit a function as if onnxruntime had inlined it. Return the value numbers of its outputs."""
        self.budget -= len(function)
        seen: _Seen = dict(zip(function.inputs, inputs, strict=False))
        opset = get_opset_imports(function).get("", 1)
        self.visit_nodes(function, seen, _Place(make_function_path(function), opset, place.graph, True))
        return (_find_value_number(value, seen) for value in function.outputs)

    def _split(self, node: ir.Node, inputs: tuple[Hashable, ...], place: _Place) -> None:
        if _has_lengths(node):
            op_schema = schema("Split", place.opset, "")
            counted = op_schema.count is not None and op_schema.count.kind is SourceKind.OUTPUTS
            # Nodes with different num_outputs are not merged.
            lengths = node.attributes["split"].value if "split" in node.attributes else inputs[1]
            if not (self.equal_as_count and counted and _are_equal(lengths)):
                return
        key = split_key(place.path, [value.name for value in node.outputs])
        kept = [value.is_graph_output() and not place.in_call for value in node.outputs]
        operator = self._make_operator_key(node, without="split")
        self.groups.setdefault((place.graph, operator, inputs[0]), []).append((key, kept))

    def _make_operator_key(self, node: ir.Node, *, without: str = "") -> Hashable:
        """Return a key of the operator and attributes of a node. It is unique if the node is never merged."""
        stated = [item for item in node.attributes.values() if item.name != without]
        unequal = node in self.unread or node.op_type in BY_CHANCE
        if unequal or any(item.type not in PLAIN or item.is_ref() for item in stated):
            return object()
        attributes = frozenset((item.name, item.type, item.value) for item in stated)
        return canonicalise(node.domain), node.op_type, attributes


def _is_read_for(kept: Sequence[bool], other: Sequence[bool]) -> bool:
    """Return whether a part of a split may be replaced with a part of another one.

    Each argument lists whether the outputs of a split are graph outputs, which are kept.
    """
    return len(kept) != len(other) and not all(a and b for a, b in zip(kept, other, strict=False))


def _has_lengths(node: ir.Node) -> bool:
    stated = node.attributes.data.get("split")
    return len(node.inputs) > 1 and node.inputs[1] is not None if stated is None else not stated.is_ref()


def _are_equal(lengths: Hashable) -> bool:
    """Return whether all lengths are equal. They are a tuple or the value number of a constant."""
    if isinstance(lengths, _Constant):
        lengths = tuple(np.frombuffer(lengths.content, lengths.type).tolist())
    return isinstance(lengths, tuple) and len(set(lengths)) == 1


def _find_value_number(value: ir.Value, seen: _Seen) -> Hashable:
    """Return the value number in ``seen``, by default the content of a small constant or the value itself."""
    if value not in seen:
        outside = is_external(value.const_value)
        array = None if outside else read_constant(value, limit=_MAX_CONSTANT)
        if array is None or array.dtype.hasobject:
            seen[value] = value
        else:
            seen[value] = _Constant(array.dtype, array.shape, array.tobytes())
    return seen[value]
