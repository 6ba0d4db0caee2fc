"""Match patterns of nodes in a graph of either format. Idle nodes are skipped, as an optimiser does.

An idle node copies its input, for example an Identity or an addition of 0. A pattern is one of:

    "x"                      any value; the same name means the same value
    -1                       a constant whose only element is -1
    op("Mul", "x", -1)       the output of a Mul of both, in either order
    (op("Neg", "x"), ...)    one of several
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Final, TypeAlias

import onnx_ir as ir

from splitops.models.formats.openvino.nodes import DOMAIN
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, find_type, has_consumers
from splitops.spec.sizes.dims import Range, Shape
from splitops.spec.sizes.rules import SizeRule

_ONNX_NAMES: Final[Mapping[str, str]] = {
    "Broadcast": "Expand",
    "Convert": "Cast",
    "ConvertLike": "CastLike",
    "Convolution": "Conv",
    "Divide": "Div",
    "Multiply": "Mul",
    "Negative": "Neg",
    "ReLU": "Relu",
    "Subtract": "Sub",
    "VariadicSplit": "Split",
}
"""The ONNX names of OpenVINO operators in patterns, if they differ."""
_NOT_FOLDED: Final = frozenset({"CumSum", "GatherElements", "GatherND"})
"""Operators that OpenVINO does not fold, even if their inputs are constant."""
_CASTS: Final = frozenset({"Cast", "CastLike"})
_VARIADIC: Final = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_NEUTRAL: Final[Mapping[str, int]] = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
_COMMUTATIVE: Final = frozenset({"Add", "Mul"})
_RESHAPING: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_MOVING: Final = frozenset({"Expand", "Pad", "Slice", "Tile", "Transpose"})
MAY_BE_IDLE: Final = _CASTS | _VARIADIC | set(_NEUTRAL) | _RESHAPING | _MOVING | {"Identity", "Dropout"}
"""Operators whose nodes may return their input unchanged, so that optimisers remove them."""
_DOMAINS: Final = frozenset({"", "ai.onnx", DOMAIN})


@dataclass(frozen=True, slots=True)
class Op:
    """A pattern: the output of a node. ``names`` are ONNX operators, and ``bind`` names the output."""

    names: frozenset[str]
    inputs: tuple[Pattern, ...]
    bind: str = ""


Pattern: TypeAlias = "str | int | Op | tuple[Pattern, ...]"
Bindings: TypeAlias = Mapping[str, ir.Value]


def op(names: str, *inputs: Pattern, bind: str = "") -> Op:
    """Return the pattern of the output of a node. ``names`` has alternatives separated by spaces."""
    return Op(frozenset(names.split()), inputs, bind)


@dataclass(frozen=True, slots=True)
class SliceOfAxis:
    """A Slice of one axis in steps of 1. ``size`` is the size of the axis, or None if it is unknown."""

    node: ir.Node
    data: ir.Value
    axis: int
    bounds: slice
    size: int | None

    @property
    def span(self) -> tuple[int, int] | None:
        """The first position and the end of the Slice.

        If the size is unknown, these are the bounds of the node, or None if one is negative or the end is
        before the start. A smaller axis then ends the Slice earlier.
        """
        start, stop = self.bounds.start, self.bounds.stop
        if self.size is None:
            return (start, stop) if 0 <= start <= stop else None
        begin, end, _ = slice(start, stop).indices(self.size)
        return begin, max(begin, end)


class GraphView:
    """A view of a graph that skips idle nodes.

    With ``equal_as_count``, splits by equal lengths are treated as splits by a number of parts.
    """

    def __init__(
        self, graph: ir.Graph | ir.Function, editor: Editor, *, equal_as_count: bool = False
    ) -> None:
        self.editor = editor
        self._graph = graph
        self._equal_as_count = equal_as_count
        self._slices: dict[ir.Node, SliceOfAxis | None] = {}
        self._sources: dict[str | None, dict[ir.Value, ir.Value]] = {}

    # Nodes and values

    def name(self, node: ir.Node) -> str:
        """Return the ONNX name of the operator of a node, or an empty string for custom domains."""
        return get_onnx_name(node) if node.domain in _DOMAINS else ""

    def match(self, value: ir.Value | None, pattern: Pattern, bound: Bindings = {}) -> Iterator[Bindings]:  # noqa: B006 (never changed)
        """Yield the bindings of the names in a pattern, once for each way to match it."""
        own = None if value is None else self.skip_idle(value)
        if own is None:
            return
        if isinstance(pattern, str):
            if bound.get(pattern, own) is own:
                yield {**bound, pattern: own}
        elif isinstance(pattern, int):
            if self.number(own) == pattern:
                yield bound
        elif isinstance(pattern, tuple):
            for option in pattern:
                yield from self.match(own, option, bound)
        elif (node := self.find_producer(own, *pattern.names)) and len(node.inputs) == len(pattern.inputs):
            bound = {**bound, pattern.bind: own} if pattern.bind else bound
            is_commutative = self.name(node) in _COMMUTATIVE
            for inputs in permutations(node.inputs) if is_commutative else (node.inputs,):
                yield from self._match_all(inputs, pattern.inputs, bound)

    def _match_all(
        self, values: Sequence[ir.Value | None], patterns: Sequence[Pattern], bound: Bindings
    ) -> Iterator[Bindings]:
        if not patterns:
            yield bound
            return
        for found in self.match(values[0], patterns[0], bound):
            yield from self._match_all(values[1:], patterns[1:], found)

    def find_producer(self, value: ir.Value | None, *names: str) -> ir.Node | None:
        """Return the producer of a value if its operator is in ``names``, or None. Skip idle nodes."""
        node = None if value is None else self.skip_idle(value).producer()
        return node if node is not None and self.name(node) in names else None

    def skip_idle(self, value: ir.Value, until: str | None = None) -> ir.Value:
        """Return the value that idle nodes copy to ``value``, or ``value`` itself.

        Stop at a node of the operator ``until``.
        """
        sources = self._sources.setdefault(until, {})
        if value in sources:
            return sources[value]
        found, way = value, [value]
        while found not in sources:
            node = found.producer()
            name = None if node is None else self.name(node)
            ends = name == until or (name == "Dropout" and node is not None and found is not node.outputs[0])
            data = None if node is None or ends else self.find_unchanged(node)
            if data is None:
                sources[found] = found
            else:
                found = data
                way.append(found)
        sources |= dict.fromkeys(way, sources[found])
        return sources[value]

    def find_consumers(self, value: ir.Value, name: str = "") -> list[ir.Node]:
        """Return a consumer for each use of a value, skipping idle nodes. ``name`` selects one operator."""
        found: list[ir.Node] = []
        left = [(value, use.node) for use in reversed(tuple(value.uses()))]
        while left:
            data, node = left.pop()
            following = [node]
            if self.name(node) in _RESHAPING and self.find_unchanged(node) is None:
                following = [use.node for use in node.outputs[0].uses()]  # a second one may undo it
            if following and all(self.find_unchanged(one) is data for one in following):
                uses = [(one.outputs[0], use.node) for one in following for use in one.outputs[0].uses()]
                left += reversed(uses)
            elif not name or self.name(node) == name:
                found.append(node)
        return found

    def is_only_for(self, value: ir.Value, node: ir.Node) -> bool:
        """Return whether no node but ``node`` uses a value, apart from idle nodes before it.

        The value must not be a graph output, but outputs of the idle nodes may be.
        """
        return not value.is_graph_output() and all(reader is node for reader in self.find_consumers(value))

    # Idle nodes

    def find_unchanged(self, node: ir.Node) -> ir.Value | None:
        """Return the value that a node copies unchanged, or None if the node may change it.

        For the last of several reshapes that cancel out, this is the input of the first.
        """
        name = self.name(node)
        if name not in MAY_BE_IDLE:
            return None
        data, *others = node.inputs or (None,)
        if data is None or name in ("Identity", "Dropout"):
            return data
        if name in _NEUTRAL:
            return self._find_scaled(name, data, others)
        if name in _VARIADIC:
            return None if others else data
        output = node.outputs[0]
        if name in _CASTS:
            return data if find_type(output) is not None and find_type(data) == find_type(output) else None
        while not is_same_shape(find_shape(data), find_shape(output)):
            reshape = data.producer() if name in _RESHAPING else None
            before = None if reshape is None or self.name(reshape) not in _RESHAPING else reshape.inputs[0]
            if before is None:
                return None
            data = before
        return data if name in _RESHAPING or self._is_in_order(node) else None

    def _find_scaled(self, name: str, data: ir.Value, others: Sequence[ir.Value | None]) -> ir.Value | None:
        """Return the operand that the other one, a neutral 0 or 1, leaves unchanged, or None if none is.

        A neutral constant of a higher rank is accepted, although it adds axes.
        """
        if len(others) != 1 or others[0] is None:
            return None
        if self.number(others[0]) == _NEUTRAL[name]:
            return data
        return others[0] if name in _COMMUTATIVE and self.number(data) == _NEUTRAL[name] else None

    def _is_in_order(self, node: ir.Node) -> bool:
        """Return whether a node that keeps the shape of its data also keeps the order of the elements."""
        rank = len(find_shape(node.outputs[0]) or ())
        if self.name(node) == "Pad":
            pads = node.inputs[1] if len(node.inputs) > 1 else None
            content = None if pads is None else self.editor.read_constant(self.skip_idle(pads), 2 * rank)
            return content is not None and not content[0].any()
        match self.editor.find_role(node):
            case Role.TRANSPOSE:
                return self.editor.read_permutation(node, rank) == list(range(rank))
            case Role.SLICE:
                bounds = self.editor.read_slices(node, rank)
                return bounds is not None and all(one.step > 0 for one in bounds.values())
        return True

    # Constants

    def number(self, value: ir.Value | None) -> float | None:
        """Return the number in a constant with one element, before a Cast of it; None for other values."""
        cast = self.find_producer(value, "Cast")
        data = value if cast is None else cast.inputs[0]
        constant = None if data is None else self.skip_idle(data)
        if constant is None or self.size(constant) not in (None, 1):
            return None
        content = self.editor.read_constant(constant, 1)
        if content is None or content[0].size != 1 or content[0].dtype.kind not in "iuf":
            return None
        return float(content[0].reshape(()))

    def size(self, value: ir.Value | None) -> int | None:
        """Return the number of elements of a value, or None if it is unknown."""
        sizes = None if value is None else get_static_sizes(find_shape(value))
        return None if sizes is None else math.prod(sizes)

    # Splits

    def find_split(self, value: ir.Value | None) -> tuple[ir.Node, int] | None:
        """Return the split that produces a value and the index of this part, or None. Skip idle nodes."""
        return None if value is None else self.editor.find_source_split(self.skip_idle(value))

    def is_counted(self, split: ir.Node) -> bool:
        """Return whether a split is a Split by a number of parts in OpenVINO, and not a VariadicSplit."""
        cut = self.editor.read_split_facts(split)
        if cut is None or cut.division.rule not in (SizeRule.EVEN, SizeRule.CEIL):
            equal = None if cut is None or not self._equal_as_count else cut.sizes
            return equal is not None and len(set(equal)) == 1
        return not isinstance(cut.size, int) or cut.size % cut.division.count == 0

    def count(self, split: ir.Node) -> int:
        """Return the number of parts of a split with known facts, including undeclared parts."""
        cut = self.editor.read_split_facts(split)
        assert cut is not None
        return cut.division.count or len(cut.division.lengths)

    # Slices

    @cached_property
    def sliced(self) -> dict[ir.Value, list[ir.Node]]:
        """The Slices whose outputs are used, keyed by the value that they slice."""
        found: dict[ir.Value, list[ir.Node]] = {}
        for node in self._graph:
            if (
                self.name(node) == "Slice"
                and node.inputs[0] is not None
                and any(map(has_consumers, node.outputs))
            ):
                found.setdefault(self.skip_idle(node.inputs[0]), []).append(node)
        return found

    def slice(self, node: ir.Node | None) -> SliceOfAxis | None:
        """Read a Slice of one axis in steps of 1, with bounds that OpenVINO folds. Otherwise return None."""
        if node is None:
            return None
        if node not in self._slices:
            self._slices[node] = self._read_slice(node)
        return self._slices[node]

    def _read_slice(self, node: ir.Node) -> SliceOfAxis | None:
        data = node.inputs[0]
        shape = None if data is None else find_shape(data)
        if data is None or shape is None or self.editor.find_role(node) is not Role.SLICE:
            return None
        bounds = self.editor.read_slices(node, len(shape))
        if bounds is None or len(bounds) != 1 or not all(map(self._is_folded, node.inputs[1:])):
            return None
        ((axis, one),) = bounds.items()
        size = shape[axis]
        known_size = size if isinstance(size, int) else None
        return SliceOfAxis(node, self.skip_idle(data), axis, one, known_size) if one.step == 1 else None

    def _is_folded(self, value: ir.Value | None) -> bool:
        """Return whether OpenVINO folds all layers that compute a constant."""
        left, seen = [value], {value}
        while left:
            node = None if (found := left.pop()) is None else found.producer()
            if node is None or node.op_type in ("Shape", "ShapeOf", "Size"):
                continue
            if self.name(node) in _NOT_FOLDED:
                return False
            left += [one for one in node.inputs if one not in seen]
            seen.update(node.inputs)
        return True


def get_onnx_name(node: ir.Node) -> str:
    """Return the ONNX name of the operator of a node, in any domain."""
    name = node.op_type
    return _ONNX_NAMES.get(name, name)


def is_same_shape(one: Shape | None, other: Shape | None) -> bool:
    """Return whether two shapes are certainly equal: unknown sizes must have the same symbol."""
    if one is None or one != other:
        return False
    return all(isinstance(size, int) or (isinstance(size, Range) and size.name is not None) for size in one)


def get_static_sizes(shape: Shape | None) -> tuple[int, ...] | None:
    """Return the sizes of a shape as integers, or None if the rank or a size is unknown."""
    found = None if shape is None else tuple(size for size in shape if isinstance(size, int))
    return None if shape is None or found is None or len(found) < len(shape) else found
