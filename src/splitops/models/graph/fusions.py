"""What OpenVINO fuses around a split, and gets wrong: found in a graph, and written so that it is not fused.

OpenVINO replaces a split and the nodes behind it by one operator where it knows their pattern. Each function
here follows one of its passes: it finds where the replacement does not do what the nodes say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE, SplitError
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import (
    all_graphs,
    constant_array,
    fixed_integers,
    is_constant,
    known,
    shape_of,
)
from splitops.models.graph.openvino import DOMAIN, LayerNode
from splitops.models.known import Known, Tensor
from splitops.spec.sizes.dims import Dim, Range, Shape
from splitops.spec.sizes.rules import SizeRule


class Fusion(StrEnum):
    """What OpenVINO fuses wrongly."""

    SQUEEZED = "squeezed-parts"
    """Parts of size 1 lose their axis and are joined on an axis that is counted from the end."""
    SQUEEZED_OPEN = "squeezed-open-parts"
    """Parts of size 1 lose their axis and are joined, and two sizes of the result are unknown."""
    REPEATED = "repeated-parts"
    """Each part is joined with itself, as in an upsampling."""
    CONVOLVED = "convolved-parts"
    """Convolutions of parts are joined in another order than that of the parts, or not all of them."""
    CONVOLVED_BESIDE = "convolved-beside"
    """A convolution of a part is joined with an input or a constant."""
    ROTATED = "rotated-halves"
    """A rotary embedding has halves or tables of other sizes than half of the data and the data."""
    BACKWARDS = "backward-slices"
    """Slices follow one another, and one of them ends before it starts."""
    GATED = "gated-parts"
    """The gates of an LSTM cell, of which one has a constant of its own, are in another order."""
    REDUCED = "turned-reduction"
    """A Transpose moves axes of size 1 past others, in front of a reduction that drops its axes."""


@dataclass(frozen=True, slots=True)
class Fused:
    """One place that OpenVINO fuses wrongly.

    Attributes:
        fusion: what it is.
        node: the split, or the Slice, that is fused.
        path: the nodes of the pattern, in the order in which they run: the last one is replaced.
        surely: False where it depends on sizes that only a run knows.
        position: of convolutions, the first channel that the first one reads and the one behind the last.
    """

    fusion: Fusion
    node: ir.Node
    path: tuple[ir.Node, ...]
    surely: bool = True
    position: tuple[int, int] = (0, 0)

    @property
    def join(self) -> ir.Node:
        """The node that OpenVINO replaces."""
        return self.path[-1]


FactOf = Callable[[ir.Value], Known]
"""What is known of a value."""


def find_fused(editor: Editor, *, without_lengths: bool = False) -> list[Fused]:
    """Return what OpenVINO fuses wrongly, in the order of the model; what is known of its values is noted.

    ``without_lengths``, splits of equal lengths count as splits by a number.
    """
    return list(_search(editor.model, known, editor, without_lengths))


def may_be_fused_in(model: ir.Model, facts: FactOf = known) -> bool:
    """Return whether operators and sizes leave it open that :func:`find_fused` finds something in a model."""
    try:
        return any(True for _ in _search(model, facts))
    except _UndecidedError:
        return True


class _UndecidedError(Exception):
    """Only how the nodes are written decides."""


def _search(
    model: ir.Model, facts: FactOf, editor: Editor | None = None, without_lengths: bool = False
) -> Iterator[Fused]:
    for _, graph in all_graphs(model):
        roots = [node for node in graph if node.op_type in _ROOTS]
        reader = _Reader(roots, facts, editor, without_lengths)
        for node in roots:
            finder = _FINDERS.get(reader.name(node))
            if finder is not None:
                yield from finder(reader, node)
        yield from _backward_slices(reader)


# The graph as OpenVINO sees it

_NAMES: Final[Mapping[str, str]] = {
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
"""Names in OpenVINO of operators that ONNX has too."""
_NOT_FOLDED: Final = frozenset({"CumSum", "GatherElements", "GatherND"})
"""Operators whose results are known, but which OpenVINO leaves to the device."""
_CASTS: Final = frozenset({"Cast", "CastLike"})
_OF_ANY_NUMBER: Final = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_NEUTRAL: Final[Mapping[str, int]] = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
_RESHAPING: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_MOVING: Final = frozenset({"Expand", "Pad", "Slice", "Tile", "Transpose"})
_DROPPED: Final = _CASTS | _OF_ANY_NUMBER | set(_NEUTRAL) | _RESHAPING | _MOVING | {"Identity", "Dropout"}
_DOMAINS: Final = frozenset({"", "ai.onnx", DOMAIN})
_ACTIVATIONS: Final = frozenset({"Relu", "Sigmoid", "Tanh"})
_PARTS_OF_A_CELL: Final = 4
REDUCTIONS: Final = frozenset(
    f"Reduce{kind}"
    for kind in ("L1", "L2", "LogSum", "LogicalAnd", "LogicalOr", "Max", "Mean", "Min", "Prod", "Sum")
)
"""Those that OpenVINO moves in front of a Transpose, as both formats name them."""


class _Reader:
    """Reads the nodes of one graph as OpenVINO sees them: without nodes that change nothing.

    A pattern may begin at the ``roots``, Slices among them. Without an editor, how nodes are written is not
    to be asked.
    """

    def __init__(
        self, roots: Sequence[ir.Node], facts: FactOf, editor: Editor | None, without_lengths: bool
    ) -> None:
        self._roots = roots
        self.without_lengths = without_lengths
        self._facts = facts
        self._editor = editor
        self._slices: dict[ir.Node, _Slice | None] = {}
        self._sources: dict[str | None, dict[ir.Value, ir.Value]] = {}

    @property
    def editor(self) -> Editor:
        """How the nodes are written; raises _UndecidedError where that is not to be asked."""
        if self._editor is None:
            raise _UndecidedError
        return self._editor

    def ask(self) -> None:
        """Ask for the editor, which decides whether nodes that keep the shape of their data change it."""
        _ = self.editor

    def name(self, node: ir.Node) -> str:
        """Return the operator of a node as ONNX names it; empty for an operator of another domain."""
        return _NAMES.get(node.op_type, node.op_type) if node.domain in _DOMAINS else ""

    def tensor(self, value: ir.Value) -> Tensor:
        """Return what is known of a tensor."""
        found = self._facts(value) or known(value)
        return found if isinstance(found, Tensor) else Tensor()

    def shape(self, value: ir.Value | None) -> Shape | None:
        """Return what is known of the shape of a tensor; None is an unknown rank."""
        return None if value is None else self.tensor(value).shape

    def sizes(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return a shape of which every size is known."""
        return _sizes(self.shape(value))

    def source(self, value: ir.Value, until: str | None = None) -> ir.Value:
        """Return the value that a value is, behind all nodes that change nothing, or until an operator."""
        sources = self._sources.setdefault(until, {})
        found, way = value, [value]
        while found not in sources:
            node = found.producer()
            kind = None if node is None else self.name(node)
            ends = kind == until or (kind == "Dropout" and node is not None and found is not node.outputs[0])
            given = None if node is None or ends else self.unchanged(node)
            if given is None:
                sources[found] = found
            else:
                found = given
                way.append(found)
        sources |= dict.fromkeys(way, sources[found])
        return sources[value]

    def unchanged(self, node: ir.Node) -> ir.Value | None:
        """Return what the first output of a node is, if the node changes nothing, so that it is dropped."""
        kind = self.name(node)
        if kind not in _DROPPED:
            return None
        data, *others = node.inputs or (None,)
        if data is None or kind in ("Identity", "Dropout"):
            return data
        if kind in _NEUTRAL:
            return self._scaled(kind, data, others)
        if kind in _OF_ANY_NUMBER:
            return None if others else data
        made = self.tensor(node.outputs[0])
        if kind in _CASTS:
            return data if made.type is not None and self.tensor(data).type == made.type else None
        while not _is_same(self.shape(data), made.shape):
            maker = data.producer() if kind in _RESHAPING else None
            given = None if maker is None or self.name(maker) not in _RESHAPING else maker.inputs[0]
            if given is None:
                return None
            data = given
        return data if kind in _RESHAPING or self._keeps_places(node) else None

    def _scaled(self, kind: str, data: ir.Value, others: Sequence[ir.Value | None]) -> ir.Value | None:
        """Return what 0 is added to, or what is multiplied by 1."""
        if len(others) != 1 or others[0] is None:
            return None
        if self.number(others[0]) == _NEUTRAL[kind]:
            return data
        return others[0] if kind in ("Add", "Mul") and self.number(data) == _NEUTRAL[kind] else None

    def _keeps_places(self, node: ir.Node) -> bool:
        """Return whether a node that gives the shape of its data leaves every element in its place."""
        if self._editor is None:
            return True  # what is behind it is looked at
        rank = len(self.shape(node.outputs[0]) or ())
        if self.name(node) == "Pad":
            pads = None if len(node.inputs) < 2 or node.inputs[1] is None else node.inputs[1]
            content = None if pads is None else self.editor.content(self.source(pads), 2 * rank)
            return content is not None and not content[0].any()
        match self.editor.role(node):
            case Role.TRANSPOSE:
                return self.editor.permutation(node, rank) == list(range(rank))
            case Role.SLICE:
                bounds = self.editor.bounds(node, rank)
                return bounds is not None and all(taken.step > 0 for taken in bounds.values())
        return True

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """Return the nodes that read a value, behind those that change nothing, once for each time."""
        found: list[ir.Node] = []
        left = [(value, use.node) for use in reversed(tuple(value.uses()))]
        while left:
            given, node = left.pop()
            behind = [node]
            if self.name(node) in _RESHAPING and self.unchanged(node) is None:
                behind = [use.node for use in node.outputs[0].uses()]  # two that undo one another
            if behind and all(self.unchanged(one) is given for one in behind):
                read = [(one.outputs[0], use.node) for one in behind for use in one.outputs[0].uses()]
                left += reversed(read)
            else:
                found.append(node)
        return found

    def only_for(self, value: ir.Value, node: ir.Node) -> bool:
        """Return whether nothing but one node reads a value."""
        return not value.is_graph_output() and all(reader is node for reader in self.readers(value))

    def made_by(self, value: ir.Value | None, *names: str) -> ir.Node | None:
        """Return the node of one of some operators that makes a value."""
        node = None if value is None else self.source(value).producer()
        return node if node is not None and self.name(node) in names else None

    def number(self, value: ir.Value | None) -> float | None:
        """Return the number that a constant of one element holds."""
        cast = self.made_by(value, "Cast")
        given = value if cast is None else cast.inputs[0]
        held = None if given is None else self.source(given)
        if held is None or (self.sizes(held) is not None and self.size(held) != 1):
            return None
        array = _small_constant(held)
        return float(array.reshape(-1)[0]) if array is not None and array.dtype.kind in "iuf" else None

    def size(self, value: ir.Value | None) -> int | None:
        """Return the number of elements of a value, where it is known."""
        sizes = self.sizes(value)
        return None if sizes is None else math.prod(sizes)

    # Splits and Slices

    def part_of(self, value: ir.Value | None) -> tuple[ir.Node, int] | None:
        """Return the split that makes a value, and the position of the part."""
        if value is None or self.made_by(value, "Split") is None:
            return None
        return self.editor.part_of(self.source(value))

    def is_counted(self, split: ir.Node) -> bool:
        """Return whether a split is one by a number of parts to OpenVINO: its operator Split."""
        cut = self.editor.cut(split)
        if cut is None or cut.division.rule not in (SizeRule.EVEN, SizeRule.CEIL):
            equal = None if cut is None or not self.without_lengths else cut.sizes
            return equal is not None and len(set(equal)) == 1
        return not isinstance(cut.size, int) or cut.size % cut.division.count == 0

    def count(self, split: ir.Node) -> int:
        """Return the number of parts of a split, declared or not."""
        cut = self.editor.cut(split)
        assert cut is not None
        return cut.division.count or len(cut.division.lengths)

    @cached_property
    def sliced(self) -> dict[ir.Value, list[ir.Node]]:
        """The Slices that are read, by what they slice."""
        found: dict[ir.Value, list[ir.Node]] = {}
        for node in self._roots:
            if self.name(node) == "Slice" and node.inputs[0] is not None and _is_read(node):
                found.setdefault(self.source(node.inputs[0]), []).append(node)
        return found

    def slices(self, data: ir.Value, axis: int) -> list[_Slice]:
        """Return the Slices of one axis in steps of 1 and of known bounds of a value."""
        found = (self.slice(node) for node in self.sliced.get(data, ()))
        return [one for one in found if one is not None and one.axis == axis]

    def slice(self, node: ir.Node | None) -> _Slice | None:
        """Return a node as a Slice of one axis in steps of 1."""
        if node is None:
            return None
        if node not in self._slices:
            self._slices[node] = self._read_slice(node)
        return self._slices[node]

    def _read_slice(self, node: ir.Node) -> _Slice | None:
        data = node.inputs[0]
        shape = self.shape(data)
        if data is None or shape is None or self.editor.role(node) is not Role.SLICE:
            return None
        bounds = self.editor.bounds(node, len(shape))
        if bounds is None or len(bounds) != 1 or not all(map(self._is_folded, node.inputs[1:])):
            return None
        ((axis, taken),) = bounds.items()
        size = shape[axis]
        known_size = size if isinstance(size, int) else None
        return _Slice(node, self.source(data), axis, taken, known_size) if taken.step == 1 else None

    def _is_folded(self, value: ir.Value | None) -> bool:
        """Return whether OpenVINO folds the layers that compute a known number."""
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


@dataclass(frozen=True, slots=True)
class _Slice:
    """A Slice of one axis in steps of 1; ``size`` is that of the axis where it is known."""

    node: ir.Node
    data: ir.Value
    axis: int
    taken: slice
    size: int | None

    @property
    def span(self) -> tuple[int, int] | None:
        """First position and the one behind the last; None where they depend on a size that is not known."""
        start, stop = self.taken.start, self.taken.stop
        if self.size is None:
            return (start, stop) if 0 <= start <= stop else None
        begin, end, _ = slice(start, stop).indices(self.size)
        return begin, max(begin, end)


def _is_same(one: Shape | None, other: Shape | None) -> bool:
    """Return whether two shapes are surely the same one."""
    if one is None or one != other:
        return False
    return all(isinstance(size, int) or (isinstance(size, Range) and size.name is not None) for size in one)


def _sizes(shape: Shape | None) -> tuple[int, ...] | None:
    """Return a shape of which every size is known."""
    found = None if shape is None else tuple(size for size in shape if isinstance(size, int))
    return None if shape is None or found is None or len(found) < len(shape) else found


def _small_constant(value: ir.Value) -> npt.NDArray[Any] | None:
    """Return the constant of one element that a value is."""
    maker = value.producer()
    if type(maker) is not LayerNode:
        array = constant_array(value, limit=1)
        return array if array is not None and array.size == 1 else None
    constant = maker.layer.constant
    if constant is None or math.prod(constant.shape) != 1:
        return None
    try:
        return constant.array(NOWHERE)
    except SplitError:
        return None


def drops_axes(node: ir.Node) -> bool:
    """Return whether a reduction may drop the axes that it reduces."""
    if type(node) is LayerNode:
        return (node.layer.attribute("keep_dims") or "").lower() not in ("true", "1")
    stated = node.attributes.get("keepdims")
    return stated is not None and (stated.is_ref() or not stated.value)


def _is_read(node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs)


# Parts that are joined


def _joined(reader: _Reader, join: ir.Node) -> Iterator[Fused]:
    """Yield what is found at one Concat: what makes its first input tells which pattern it may end."""
    inputs = [reader.source(value) for value in join.inputs if value is not None]
    maker = inputs[0].producer() if inputs and len(inputs) == len(join.inputs) else None
    follow = None if maker is None else _PATTERNS.get(reader.name(maker))
    return iter(()) if follow is None else follow(reader, join, inputs)


def _squeezed(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value]) -> Iterator[Fused]:
    """Follow SplitSqueezeConcatFusion: a Transpose and a Reshape to the sizes of the result."""
    path: list[ir.Node] = []
    splits: set[ir.Node] = set()
    for index, value in enumerate(inputs):
        squeeze = reader.made_by(value, "Squeeze", "Reshape")
        part = None if squeeze is None else reader.part_of(squeeze.inputs[0])
        if squeeze is None or part is None or part[1] != index:
            return
        split = part[0]
        splits.add(split)
        if len(splits) > 1 or not reader.is_counted(split):
            return
        if not reader.only_for(split.outputs[index], squeeze) or not _loses_axis(reader, squeeze, *part):
            return
        path.append(squeeze)
    axis, shape = reader.editor.axis(join), reader.shape(join.outputs[0])
    if axis is None or reader.count(split) != len(inputs):
        return
    nodes = (split, *path, join)
    if axis < 0:
        yield Fused(Fusion.SQUEEZED, split, nodes)
    if shape is not None and sum(not isinstance(size, int) for size in shape) > 1:
        yield Fused(Fusion.SQUEEZED_OPEN, split, nodes)


def _loses_axis(reader: _Reader, squeeze: ir.Node, split: ir.Node, index: int) -> bool:
    """Return whether a node drops the split axis of a part, of size 1, and nothing else."""
    cut = reader.editor.cut(split)
    before, after = reader.shape(split.outputs[index]), reader.shape(squeeze.outputs[0])
    if cut is None or before is None or after is None or len(after) != len(before) - 1:
        return False
    if before[cut.axis] != 1:
        return False
    left = (*before[: cut.axis], *before[cut.axis + 1 :])
    if reader.name(squeeze) == "Reshape":
        return _sizes(left) is not None and left == after
    return all(one == other for one, other in zip(left, after, strict=True) if isinstance(one, int))


def _repeated(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value]) -> Iterator[Fused]:
    """Follow SplitConcatPairToInterpolateFusion: an Interpolate on the axis of the split, as it is given."""
    if inputs[:1] != inputs[1:2]:
        return
    parts = [reader.part_of(value) for value in inputs]
    split, axis = None if parts[0] is None else parts[0][0], reader.editor.axis(join)
    cut = None if split is None else reader.editor.cut(split)
    if split is None or cut is None or axis is None or cut.rank not in (4, 5):
        return
    if not reader.is_counted(split):
        return
    count = reader.count(split)
    times, rest = divmod(len(inputs), count)
    if rest or count < 2 or parts != [(split, index) for index in range(count) for _ in range(times)]:
        return
    if isinstance(cut.size, int) and cut.size != count:
        return
    if not all(reader.only_for(value, join) for value in split.outputs):
        return
    stated = reader.editor.written_axis(split)
    elsewhere = axis % cut.rank != cut.axis or (stated is not None and stated < 0)
    if elsewhere or not isinstance(cut.size, int):
        yield Fused(Fusion.REPEATED, split, (split, join), elsewhere)


# Convolutions


@dataclass(frozen=True, slots=True)
class _Channels:
    """What a convolution reads: a part of a split of the channels, or a Slice (``node``) that becomes one.

    All parts have a ``whole`` in common: the split, or the data of the Slices.
    """

    convolution: ir.Node
    node: ir.Node
    whole: object
    index: int
    count: int
    span: tuple[int, int]


def _convolved(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value]) -> Iterator[Fused]:
    """Follow ConvolutionToGroupConvolutionFusion: which part a convolution reads is not looked at."""
    first = _channels(reader, inputs[0])
    axis = None if first is None else reader.editor.axis(join)
    if first is None or axis is None:
        return
    read = [first]
    for value in inputs[1:]:
        maker = value.producer()
        if maker is None or not maker.inputs or maker.graph is not join.graph:
            beside = (first.node, first.convolution, join)
            yield Fused(Fusion.CONVOLVED_BESIDE, first.node, beside, position=first.span)
            return
        other = _channels(reader, value)
        window = reader.editor.window
        if other is None or other.whole is not first.whole:
            return
        if window(other.convolution) != window(first.convolution):
            return
        read.append(other)
    kernels = {reader.sizes(one.convolution.inputs[1]) for one in read}
    if len(kernels) > 1 or None in kernels or len(inputs) < 2:
        return
    rank = len(reader.shape(join.outputs[0]) or next(iter(kernels)) or ())
    if [one.index for one in read] != list(range(first.count)) or axis not in (1, 1 - rank):
        path = (first.node, *(one.convolution for one in read), join)
        yield Fused(Fusion.CONVOLVED, first.node, path, position=first.span)


def _channels(reader: _Reader, value: ir.Value) -> _Channels | None:
    """Return what a convolution of one group, without a bias, that makes a value reads."""
    node = reader.made_by(value, "Conv")
    if node is None or len([given for given in node.inputs if given is not None]) != 2:
        return None
    group = node.attributes.get("group")
    if group is not None and (group.is_ref() or group.value != 1):
        return None
    data, weights = node.inputs[:2]
    kernel, part = reader.sizes(weights), reader.part_of(data)
    if kernel is None or len(kernel) < 2:
        return None
    if part is not None:
        split, index = part
        cut, axis = reader.editor.cut(split), reader.editor.written_axis(split)
        if cut is None:  # lengths that the graph computes: as the kernels are equal, so are they
            count, sizes = len(split.outputs), None
        else:
            axis, count, sizes = cut.axis, reader.count(split), cut.sizes
        if axis not in (1, 1 - len(kernel)):
            return None
        begin = index * kernel[1] if sizes is None else sum(sizes[:index])
        return _Channels(node, split, split, index, count, (begin, begin + kernel[1]))
    found = reader.slice(reader.made_by(data, "Slice"))
    if found is None or found.axis != 1 or found.size is None or found.span is None:
        return None
    spans = sorted({one.span for one in reader.slices(found.data, 1) if one.span is not None})
    ends = [0, *(end for _, end in spans)]
    if len(spans) < 2 or ends[:-1] != [begin for begin, _ in spans] or ends[-1] != found.size:
        return None
    return _Channels(node, found.node, found.data, spans.index(found.span), len(spans), found.span)


# Rotary embeddings


def _rotated(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value]) -> Iterator[Fused]:
    """Follow RoPEFusion: x * cos + Concat(-second half, first half) * sin, by whole rows of tables."""
    second = _negated(reader, inputs[0]) if len(inputs) == 2 else None
    makers = [reader.made_by(value, "Split", "Slice") for value in (inputs[-1], second)]
    given = None if makers[0] is None or makers[1] is None else makers[0].inputs[0]
    if second is None or given is None:
        return
    data, half = reader.source(given), reader.shape(inputs[1])
    sums = list(_sums(reader, join, data))
    width = half[-1] if half else None
    if all(_misfits(reader, data, width, tables) is None for _, _, tables in sums):
        return
    halves = _halves(reader, inputs[1], second) if reader.editor.axis(join) == -1 else None
    shape = reader.shape(data)
    if halves is None or shape is None:
        return
    for product, total, tables in sums:
        surely = _misfits(reader, data, halves[1], tables)
        if surely is not None and all(_fits(reader, table, len(shape)) for table in tables):
            yield Fused(Fusion.ROTATED, halves[0], (halves[0], join, product, total), surely)


def _sums(
    reader: _Reader, join: ir.Node, data: ir.Value
) -> Iterator[tuple[ir.Node, ir.Node, tuple[ir.Value, ir.Value]]]:
    """Yield the products of a Concat, the sums of these and of products of the data, and both tables."""
    turned = join.outputs[0]
    for product in reader.readers(turned):
        sine = _other(reader, product, turned) if reader.name(product) == "Mul" else None
        for total in reader.readers(product.outputs[0]) if sine is not None else ():
            summand = _other(reader, total, product.outputs[0]) if reader.name(total) == "Add" else None
            scaled = reader.made_by(summand, "Mul")
            cosine = None if scaled is None else _other(reader, scaled, data)
            if sine is not None and cosine is not None:
                yield product, total, (sine, cosine)


def _misfits(reader: _Reader, data: ir.Value, half: Dim | None, tables: Iterable[ir.Value]) -> bool | None:
    """Return whether halves or tables surely have other sizes than OpenVINO takes them to have.

    None where they have these sizes, and where OpenVINO fuses nothing.
    """
    shape = reader.shape(data)
    if shape is None or half is None:
        return False
    if len(shape) not in (3, 4):
        return None
    size, found = shape[-1], [reader.shape(table) for table in tables]
    widths = [None if table is None else (table or (1,))[-1] for table in found]
    grown = any(table is not None and _grows(shape, table) for table in found)
    halved = isinstance(half, int) and 2 * half == size
    if grown or not halved or any(isinstance(width, int) and width != size for width in widths):
        return isinstance(size, int) or grown
    return None if all(isinstance(width, int) for width in widths) else False


def _grows(shape: Shape, table: Shape) -> bool:
    """Return whether a table makes data of a shape larger."""
    pairs = zip(reversed(shape), reversed(table), strict=False)
    return len(table) > len(shape) or any(
        size == 1 and isinstance(other, int) and other != 1 for size, other in pairs
    )


def _fits(reader: _Reader, table: ir.Value, rank: int) -> bool:
    """Return whether a table has as many axes as what it is multiplied with; constants are given them."""
    shape = reader.shape(table)
    return shape is None or len(shape) == rank or is_constant(table)


def _negated(reader: _Reader, value: ir.Value) -> ir.Value | None:
    """Return of what a value is the negative."""
    node = reader.made_by(value, "Neg", "Mul", "Sub")
    if node is None:
        return None
    if reader.name(node) == "Neg":
        return node.inputs[0]
    left, right = node.inputs
    if reader.name(node) == "Sub":
        return right if reader.number(left) == 0 else None
    if reader.number(left) == -1:
        return right
    return left if reader.number(right) == -1 else None


def _halves(reader: _Reader, first: ir.Value, second: ir.Value) -> tuple[ir.Node, int] | None:
    """Return the node of two values that are the halves of its data, and the size of the first one."""
    one, other = (reader.slice(reader.made_by(value, "Slice")) for value in (first, second))
    if one is not None and other is not None and one.data is other.data and one.axis == other.axis:
        shape, span = reader.shape(one.data), one.span
        follows = span is not None and other.taken.start in (span[1], span[1] - (one.size or 0))
        if shape is None or span is None or span[0] or one.axis != len(shape) - 1 or not follows:
            return None
        return one.node, span[1]
    part, rest = reader.part_of(first), reader.part_of(second)
    if part is None or rest is None or part[0] is not rest[0] or (part[1], rest[1]) != (0, 1):
        return None
    split = part[0]
    cut = reader.editor.cut(split)
    if cut is None or cut.sizes is None or len(cut.sizes) != 2 or reader.is_counted(split):
        return None
    return (split, cut.sizes[0]) if reader.editor.written_axis(split) == cut.rank - 1 else None


def _other(reader: _Reader, node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Return the input of a node of two inputs that is not a value, behind Identity nodes."""
    rest = [own for given in node.inputs if given is not None and (own := reader.source(given)) is not value]
    if not rest:
        reader.ask()  # a node between them may change something
    return rest[0] if len(rest) == 1 and len(node.inputs) == 2 else None


# Slices


def _backward_slices(reader: _Reader) -> Iterator[Fused]:
    """Follow GroupedSliceToVSplitOptimization: a length of -1 is what the others leave."""
    for data, nodes in reader.sliced.items():
        # One that ends before it starts is empty.
        if len(nodes) < 2 or not any(0 in (reader.shape(node.outputs[0]) or (0,)) for node in nodes):
            continue
        found = [one for node in nodes if (one := reader.slice(node)) is not None]
        for axis in dict.fromkeys(one.axis for one in found):
            group = [one for one in found if one.axis == axis]
            yield from _backwards(group, whole=reader.sizes(data) is not None)


def _backwards(group: Sequence[_Slice], *, whole: bool) -> Iterator[Fused]:
    """Yield the Slices of one axis that end before they start; ``whole`` ones of everything are removed."""
    size = group[0].size
    if size is None:
        return
    # Those that are written alike are one; others of the same positions are not.
    found = {(one.taken.start, one.taken.stop): one for one in group}.values()
    kept = [(slice(one.taken.start, one.taken.stop).indices(size)[:2], one.node) for one in found]
    if not any(stop < start for (start, stop), _ in kept):
        return
    if whole:
        kept = [(span, node) for span, node in kept if span != (0, size)]
    kept.sort(key=itemgetter(0))
    lengths = _lengths_of([span for span, _ in kept], size)
    if lengths is not None and lengths != [max(0, stop - start) for (start, stop), _ in kept]:
        nodes = tuple(node for _, node in kept)
        for (start, stop), node in kept:
            if stop < start:
                yield Fused(Fusion.BACKWARDS, node, nodes)


def _lengths_of(spans: Sequence[tuple[int, int]], size: int) -> list[int] | None:
    """Return the lengths that OpenVINO gives Slices; None where it leaves them alone."""
    if not spans or [0, *(stop for _, stop in spans)][:-1] != [start for start, _ in spans]:
        return None
    left, lengths = size, []
    for start, stop in spans:
        lengths.append(-1 if stop - start > left else stop - start)
        left -= stop - start
    if lengths.count(-1) > 1 or min(lengths) < -1:
        return None
    rest = size - sum(length for length in lengths if length != -1)
    found = [rest if length == -1 else length for length in lengths]
    return found if sum(found) == size else None


# LSTM cells


def _gated(reader: _Reader, split: ir.Node) -> Iterator[Fused]:
    """Follow LSTMCellFusionWithJointWeights: i, c, f, o is the only order of gates that it gets right."""
    total = reader.made_by(split.inputs[0], "Add", "Gemm") if len(split.outputs) == _PARTS_OF_A_CELL else None
    if total is None:
        return
    cut = reader.editor.cut(split) if reader.editor.role(split) is Role.SPLIT else None
    if cut is None or (cut.axis, cut.rank) != (1, 2) or not reader.is_counted(split):
        return
    product = total if reader.name(total) == "Gemm" else _either(reader, total, "MatMul")
    if product is None or reader.made_by(product.inputs[0], "Concat") is None:
        return
    gates = [gate for part in split.outputs if (gate := _gate(reader, part)) is not None]
    added = [index for index, gate in enumerate(gates) if len(gate) == 2]
    if not len(gates) == reader.count(split) == _PARTS_OF_A_CELL or len(added) != 1:
        return
    kinds, (forget,) = [reader.name(gate[-1]) for gate in gates], added
    output = _output_gate(reader, gates, forget)
    if output is None or forget not in (1, 2) or not kinds[0] == kinds[3] == kinds[forget]:
        return
    if (forget, output[0]) != (2, 3):
        yield Fused(Fusion.GATED, split, (split, *(node for gate in gates for node in gate), output[1]))


def _either(reader: _Reader, node: ir.Node, name: str) -> ir.Node | None:
    return next((made for value in node.inputs if (made := reader.made_by(value, name)) is not None), None)


def _gate(reader: _Reader, part: ir.Value) -> list[ir.Node] | None:
    """Return what reads a gate: an activation, or an addition of one number and an activation."""
    read = reader.readers(part)
    if len(read) != 1:
        return None
    (first,) = read
    if reader.name(first) in _ACTIVATIONS:
        return [first]
    behind = reader.readers(first.outputs[0])
    if reader.name(first) != "Add" or len(behind) != 1 or reader.name(behind[0]) not in _ACTIVATIONS:
        return None
    number = _other(reader, first, reader.source(part))
    return [first, behind[0]] if reader.size(number) == 1 and is_constant(number) else None


def _output_gate(reader: _Reader, gates: Sequence[list[ir.Node]], forget: int) -> tuple[int, ir.Node] | None:
    """Return which gate scales the activated state of a cell, and the node that does."""
    activated = {gate[-1].outputs[0]: index for index, gate in enumerate(gates)}
    for value, index in activated.items():
        for scaled in reader.readers(value):
            state = _other(reader, scaled, value) if reader.name(scaled) == "Mul" else None
            act = None if state is None else reader.made_by(state, *_ACTIVATIONS)
            total = None if act is None else reader.made_by(act.inputs[0], "Add")
            if index == forget or total is None:
                continue
            products = [reader.made_by(given, "Mul") for given in total.inputs]
            read = [
                {activated[v] for given in made.inputs if given and (v := reader.source(given)) in activated}
                for made in products
                if made is not None
            ]
            others = set(range(_PARTS_OF_A_CELL)) - {forget, index}
            if len(read) == 2 and {forget} in read and others in read:
                return index, scaled
    return None


# Reductions


def _turned(reader: _Reader, reduction: ir.Node) -> Iterator[Fused]:
    """Follow TransposeReduction: the Transpose that it puts behind is left out, as if it changed no shape.

    When it is left out is not known, only that it moves no other axes than some of size 1.
    """
    given = reduction.inputs[0] if drops_axes(reduction) else None
    value = None if given is None else reader.source(given, "Transpose")
    turn, shape = None if value is None else value.producer(), reader.shape(value)
    if turn is None or reader.name(turn) != "Transpose" or shape is None or not any(map(_may_be_one, shape)):
        return
    reduced, order = _reduced(reduction, len(shape)), list(range(len(shape)))
    if reduced is None:  # OpenVINO moves only those whose axes are constants
        reader.ask()  # of IR they are noted for it
        return
    path, read_by = [reduction], reduction
    while turn is not None and reader.only_for(turn.outputs[0], read_by):  # several in a row are one
        step = reader.editor.permutation(turn, len(shape))
        if step is None:
            return
        order, path = [step[axis] for axis in order], [turn, *path]
        if _moves_ones([(order[axis], size) for axis, size in enumerate(shape) if axis not in reduced]):
            yield Fused(Fusion.REDUCED, turn, tuple(path), False)
            return
        read_by = turn
        turn = reader.made_by(turn.inputs[0], "Transpose")


def _moves_ones(kept: list[tuple[int, Dim]]) -> bool:
    """Return whether axes, each with where it comes from, may give another shape, but only by sizes of 1."""
    before = sorted(kept, key=itemgetter(0))
    others = [axis for axis, size in kept if not _may_be_one(size)]
    same = _is_same(tuple(size for _, size in kept), tuple(size for _, size in before))
    return kept != before and others == sorted(others) and not same


def _may_be_one(size: Dim) -> bool:
    """Return whether OpenVINO may know that a size is 1: it does not of one that inputs name."""
    return size == 1 if isinstance(size, int) else size.name is None and size.lo <= 1


def _reduced(reduction: ir.Node, rank: int) -> frozenset[int] | None:
    """Return the axes that a reduction reduces; None where they are not known."""
    stated = reduction.attributes.get("axes")
    given = reduction.inputs[1] if len(reduction.inputs) > 1 else None
    axes: Sequence[int] | None = ()
    if stated is not None:
        axes = stated.value
    elif given is not None:
        axes = fixed_integers(given)
    if axes is None or not all(-rank <= axis < rank for axis in axes):
        return None
    if not axes and type(reduction) is not LayerNode:  # ONNX reduces all of them, unless it is told not to
        unless = reduction.attributes.get("noop_with_empty_axes")
        if unless is None or not unless.value:
            return None if unless is not None and unless.is_ref() else frozenset(range(rank))
    return frozenset(axis % rank for axis in axes)


_FINDERS: Final[Mapping[str, Callable[[_Reader, ir.Node], Iterator[Fused]]]] = {
    "Concat": _joined,
    "Split": _gated,
    **dict.fromkeys(REDUCTIONS, _turned),
}
"""What begins at the nodes of an operator, besides Slices."""
_ROOTS: Final = frozenset({"Slice", "VariadicSplit", *_FINDERS})
_PATTERNS: Final[Mapping[str, Callable[[_Reader, ir.Node, Sequence[ir.Value]], Iterator[Fused]]]] = {
    "Conv": _convolved,
    "Split": _repeated,
    **dict.fromkeys(("Reshape", "Squeeze"), _squeezed),
    **dict.fromkeys(("Mul", "Neg", "Sub"), _rotated),
}
"""What a Concat may end, by the operator that makes its first input."""


# The same without a fusion


def unfuse(editor: Editor, fused: Fused) -> str | None:
    """Write a place in a form that is not fused, and return it in words; None where there is none."""
    match fused.fusion:
        case Fusion.SQUEEZED:
            return _with_positive_axis(editor, fused, fused.join)
        case Fusion.ROTATED:
            join = next(node for node in fused.path if editor.role(node) is Role.CONCAT)
            return _with_positive_axis(editor, fused, join)
        case Fusion.SQUEEZED_OPEN | Fusion.REPEATED | Fusion.GATED:
            return editor.set_lengths(fused.node)
        case Fusion.CONVOLVED | Fusion.CONVOLVED_BESIDE:
            return _gathered(editor, fused)
        case Fusion.BACKWARDS:
            return _without_end(editor, fused.node)
        case Fusion.REDUCED:
            return _with_kept_axes(editor, fused.join)


def _with_positive_axis(editor: Editor, fused: Fused, join: ir.Node) -> str | None:
    shapes = (shape_of(value) for value in (*join.outputs, *join.inputs) if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    axis = editor.axis(join)
    if rank is None or axis is None:
        return None
    inputs = [value for value in join.inputs if value is not None]
    editor.substitute(join, [editor.pen(join).concat(inputs, axis % rank)])
    return f"{editor.describe(fused.node)}, Concat(axis={axis % rank})"


def _gathered(editor: Editor, fused: Fused) -> str | None:
    """Let the first convolution read a Gather of its channels."""
    convolution, data = fused.path[1], fused.node.inputs[0]
    if data is None:
        return None
    begin, end = fused.position
    made = editor.pen(convolution).gather(data, range(begin, end), 1)
    before = convolution.inputs[0]
    editor.set_inputs(convolution, [made, *convolution.inputs[1:]])
    return None if before is None else f"{editor.describe(fused.node)}, Gather(axis=1, {begin}:{end})"


def _without_end(editor: Editor, node: ir.Node) -> str | None:
    """Let an empty Slice end where it starts."""
    data = node.inputs[0]
    shape = None if data is None else shape_of(data)
    bounds = None if shape is None else editor.bounds(node, len(shape))
    if data is None or bounds is None or not editor.can_slice(data):
        return None
    ((axis, taken),) = bounds.items()
    made = editor.pen(node).slice(data, {axis: slice(taken.start, taken.start, 1)})
    editor.substitute(node, [made])
    return f"Slice(axis={axis}, {taken.start}:{taken.start})"


def _with_kept_axes(editor: Editor, reduction: ir.Node) -> str | None:
    """Let a reduction keep its axes, and drop them behind it."""
    data = reduction.inputs[0]
    shape = None if data is None else shape_of(data)
    reduced = None if shape is None else _reduced(reduction, len(shape))
    dropping = reduction.attributes.get("keepdims")
    if shape is None or reduced is None or (dropping is not None and dropping.is_ref()):
        return None
    axes = sorted(reduced)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    keeping: dict[str, Any] = {"keep_dims": "true"} if editor.domain else {"keepdims": 1}
    made = editor.pen(reduction).repeat(reduction, reduction.inputs, kept, keeping)
    for axis in reversed(axes):
        made = editor.pen(reduction).squeeze(made, axis)
    editor.substitute(reduction, [made])
    return f"{reduction.op_type}(keepdims=1), Squeeze(axes={axes})"
