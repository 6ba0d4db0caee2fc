"""What OpenVINO fuses around a split, and gets wrong: found in a graph, and written so that it is not fused.

OpenVINO replaces a split and the nodes behind it by one operator where it knows their pattern. Each function
here follows one of its passes: it finds where the replacement does not do what the nodes say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import onnx_ir as ir

from splitops.models.graph.around import (
    NAMES,
    PARTS_OF_A_CELL,
    RESHAPING,
    Nodes,
    grows,
    only_number,
    source,
    unchanged,
)
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import known, shape_of
from splitops.models.known import Known
from splitops.spec.sizes.dims import Shape
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


_ACTIVATIONS: Final = frozenset({"Relu", "Sigmoid", "Tanh"})


def find_fused(editor: Editor, *, without_lengths: bool = False) -> list[Fused]:
    """Return what OpenVINO fuses wrongly, in the order of the model.

    Args:
        editor: the model, with what is known of its values noted.
        without_lengths: whether splits of equal lengths count as splits by a number.
    """
    found: list[Fused] = []
    for graph in editor.graphs:
        reader = _Reader(editor, graph, without_lengths)
        for node in graph:
            for find in _FINDERS.get(NAMES.get(node.op_type, node.op_type), ()):
                found += find(reader, node)
        found += _backward_slices(reader)
    return found


class _Reader(Nodes):
    """Reads the nodes of one graph as OpenVINO sees them: without nodes that change nothing.

    Args:
        editor: the model.
        graph: the graph.
        without_lengths: as in :func:`find_fused`.
    """

    def __init__(self, editor: Editor, graph: Iterable[ir.Node], without_lengths: bool) -> None:
        self.editor = editor
        self.graph = graph
        self.without_lengths = without_lengths
        self._slices: dict[tuple[ir.Value, int], list[_Slice]] | None = None
        self._read: dict[ir.Node, _Slice | None] = {}
        self._sources: dict[ir.Value, ir.Value] = {}

    def source(self, value: ir.Value) -> ir.Value:
        """Return the value that a value is, behind all nodes that change nothing."""
        if value not in self._sources:
            self._sources[value] = source(self, value)
        return self._sources[value]

    # What Around asks for

    def readers(self, node: ir.Node) -> list[ir.Node]:
        return [reader for value in node.outputs for reader in self.read_by(value)]

    def fact(self, value: ir.Value) -> Known:
        return known(value)

    def keeps_places(self, node: ir.Node) -> bool:
        shape = shape_of(node.outputs[0])
        rank = 0 if shape is None else len(shape)
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

    # What makes and reads a value

    def read_by(self, value: ir.Value) -> list[ir.Node]:
        """Return the nodes that read a value, behind those that change nothing, once for each time."""
        found: list[ir.Node] = []
        for use in value.uses():
            behind = [use.node]
            if self.name(use.node) in RESHAPING and unchanged(self, use.node) is None:
                behind = [other.node for other in use.node.outputs[0].uses()]  # two that undo one another
            if behind and all(unchanged(self, node) is value for node in behind):
                found += [reader for node in behind for reader in self.read_by(node.outputs[0])]
            else:
                found.append(use.node)
        return found

    def made_by(self, value: ir.Value | None, *names: str) -> ir.Node | None:
        """Return the node of one of some operators that makes a value."""
        node = None if value is None else self.source(value).producer()
        return node if node is not None and self.name(node) in names else None

    def part_of(self, value: ir.Value | None) -> tuple[ir.Node, int] | None:
        """Return the split that makes a value, and the position of the part."""
        found = None if value is None else self.source(value)
        node = None if found is None else found.producer()
        if found is None or node is None or NAMES.get(node.op_type, node.op_type) != "Split":
            return None
        return self.editor.part_of(found)

    def name(self, node: ir.Node) -> str:
        """Return the operator of a node as ONNX names it; empty for an operator of another domain."""
        if node.domain not in ("", "ai.onnx", self.editor.domain):
            return ""
        return NAMES.get(node.op_type, node.op_type)

    def only_for(self, value: ir.Value, node: ir.Node) -> bool:
        """Return whether nothing but one node reads a value."""
        return not value.is_graph_output() and all(reader is node for reader in self.read_by(value))

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

    def number(self, value: ir.Value | None) -> float | None:
        """Return the number that a constant of one element holds."""
        cast = self.made_by(value, "Cast")
        value = value if cast is None else cast.inputs[0]
        content = None if value is None else self.editor.content(self.source(value), 1)
        return None if content is None else only_number(content[0])

    def fits(self, table: ir.Value, rank: int) -> bool:
        """Return whether a table has as many axes as what it is multiplied with; constants are given them."""
        shape = shape_of(table)
        return shape is None or len(shape) == rank or self.editor.is_constant(table)

    def size(self, value: ir.Value | None) -> int | None:
        """Return the number of elements of a value, where it is known."""
        shape = None if value is None else _sizes(shape_of(value))
        if shape is None:
            return None
        size = 1
        for dim in shape:
            size *= dim
        return size

    @property
    def slices(self) -> dict[tuple[ir.Value, int], list[_Slice]]:
        """The Slices of one axis in steps of 1 and of known bounds, by what they slice and the axis."""
        if self._slices is None:
            self._slices = {}
            for node in self.graph:
                made = self._slice(node) if self.name(node) == "Slice" and _is_read(node) else None
                if made is not None:
                    self._slices.setdefault((made.data, made.axis), []).append(made)
        return self._slices

    def _slice(self, node: ir.Node) -> _Slice | None:
        if node not in self._read:
            self._read[node] = self._read_slice(node)
        return self._read[node]

    def _read_slice(self, node: ir.Node) -> _Slice | None:
        data = node.inputs[0]
        shape = None if data is None else shape_of(data)
        if data is None or shape is None or self.editor.role(node) is not Role.SLICE:
            return None
        bounds = self.editor.bounds(node, len(shape))
        if bounds is None or len(bounds) != 1:
            return None
        ((axis, taken),) = bounds.items()
        if taken.step != 1:
            return None
        size = shape[axis]
        return _Slice(node, self.source(data), axis, taken, size if isinstance(size, int) else None)

    def slice_of(self, value: ir.Value | None) -> _Slice | None:
        """Return the Slice of one axis that makes a value."""
        node = self.made_by(value, "Slice")
        return None if node is None else self._slice(node)


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


# Parts that are joined


def _joined(reader: _Reader, join: ir.Node) -> Iterator[Fused]:
    """Yield what is found at one Concat."""
    values = [None if value is None else reader.source(value) for value in join.inputs]
    axis, shape = reader.editor.axis(join), shape_of(join.outputs[0])
    if axis is None or not values or None in values:
        return
    inputs = [value for value in values if value is not None]
    yield from _squeezed(reader, join, inputs, axis, shape)
    yield from _repeated(reader, join, inputs, axis)
    yield from _convolved(reader, join, inputs, axis)
    yield from _rotated(reader, join, inputs, axis)


def _squeezed(
    reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value], axis: int, shape: Shape | None
) -> Iterator[Fused]:
    """Follow SplitSqueezeConcatFusion: a Transpose and a Reshape to the sizes of the result."""
    first: ir.Node | None = None
    path: list[ir.Node] = []
    for index, value in enumerate(inputs):
        squeeze = reader.made_by(value, "Squeeze", "Reshape")
        part = None if squeeze is None or squeeze.inputs[0] is None else reader.part_of(squeeze.inputs[0])
        if squeeze is None or part is None or part[1] != index or part[0] is not (first or part[0]):
            return
        first = part[0]
        if not reader.is_counted(first) or not reader.only_for(first.outputs[index], squeeze):
            return
        if not _loses_axis(reader, squeeze, first, index):
            return
        path.append(squeeze)
    assert first is not None
    if reader.count(first) != len(inputs):
        return
    nodes = (first, *path, join)
    if axis < 0:
        yield Fused(Fusion.SQUEEZED, first, nodes)
    if shape is not None and sum(not isinstance(size, int) for size in shape) > 1:
        yield Fused(Fusion.SQUEEZED_OPEN, first, nodes)


def _loses_axis(reader: _Reader, squeeze: ir.Node, split: ir.Node, index: int) -> bool:
    """Return whether a node drops the split axis of a part, of size 1, and nothing else."""
    cut = reader.editor.cut(split)
    before, after = shape_of(split.outputs[index]), shape_of(squeeze.outputs[0])
    if cut is None or before is None or after is None or len(after) != len(before) - 1:
        return False
    if before[cut.axis] != 1:
        return False
    left = (*before[: cut.axis], *before[cut.axis + 1 :])
    if reader.name(squeeze) == "Reshape":
        return _sizes(left) is not None and left == after
    return all(one == other for one, other in zip(left, after, strict=True) if isinstance(one, int))


def _repeated(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value], axis: int) -> Iterator[Fused]:
    """Follow SplitConcatPairToInterpolateFusion: an Interpolate on the axis of the split, as it is given."""
    parts = [reader.part_of(value) for value in inputs]
    split = None if parts[0] is None else parts[0][0]
    if split is None or any(part is None or part[0] is not split for part in parts):
        return
    cut = reader.editor.cut(split)
    if cut is None or cut.rank not in (4, 5) or not reader.is_counted(split):
        return
    count = reader.count(split)
    times, rest = divmod(len(inputs), count)
    order = [part[1] for part in parts if part is not None]
    if rest or count < 2 or times < 2 or order != [index for index in range(count) for _ in range(times)]:
        return
    if isinstance(cut.size, int) and cut.size != count:
        return
    if not all(reader.only_for(value, join) for value in split.outputs):
        return
    stated = reader.editor.stated_axis(split)
    elsewhere = axis % cut.rank != cut.axis or (stated is not None and stated < 0)
    if elsewhere or not isinstance(cut.size, int):
        yield Fused(Fusion.REPEATED, split, (split, join), elsewhere)


# Convolutions


def _convolved(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value], axis: int) -> Iterator[Fused]:
    """Follow ConvolutionToGroupConvolutionFusion: which part a convolution reads is not looked at."""
    first = _convolution(reader, inputs[0])
    channels = None if first is None else _channels(reader, first)
    if first is None or channels is None:
        return
    positions = (channels.begin, channels.end)
    convolutions, order = [first], [channels.index]
    for value in inputs[1:]:
        node = value.producer()
        if node is None or not node.inputs or node.graph is not join.graph:
            yield Fused(
                Fusion.CONVOLVED_BESIDE, channels.node, (channels.node, first, join), position=positions
            )
            return
        other = _convolution(reader, value)
        again = None if other is None else _channels(reader, other)
        if (
            other is None
            or again is None
            or again.whole is not channels.whole
            or not _are_alike(reader, first, other)
        ):
            return
        convolutions.append(other)
        order.append(again.index)
    shapes = {
        _sizes(shape_of(node.inputs[1])) if node.inputs[1] is not None else None for node in convolutions
    }
    rank = shape_of(join.outputs[0])
    if len(shapes) > 1 or None in shapes or len(inputs) < 2:
        return
    if order != list(range(channels.count)) or axis not in (1, 1 - len(rank or next(iter(shapes)) or ())):
        nodes = (channels.node, *convolutions, join)
        yield Fused(Fusion.CONVOLVED, channels.node, nodes, position=positions)


def _convolution(reader: _Reader, value: ir.Value) -> ir.Node | None:
    """Return the convolution of one group, without a bias, that makes a value."""
    node = reader.made_by(value, "Conv")
    if node is None or len([given for given in node.inputs if given is not None]) != 2:
        return None
    group = node.attributes.get("group")
    return node if group is None or (not group.is_ref() and group.value == 1) else None


def _are_alike(reader: _Reader, one: ir.Node, other: ir.Node) -> bool:
    """Return whether two convolutions state the same strides, pads and dilations."""
    return reader.editor.window(one) == reader.editor.window(other)


@dataclass(frozen=True, slots=True)
class _Channels:
    """What a convolution reads: a part of a split of the channels, or a Slice that becomes one.

    Attributes:
        node: the split or Slice.
        whole: what all parts have in common: the split, or the data of the Slices.
        index: which part.
        count: of how many.
        begin, end: positions of the channels.
    """

    node: ir.Node
    whole: object
    index: int
    count: int
    begin: int
    end: int


def _channels(reader: _Reader, convolution: ir.Node) -> _Channels | None:
    data, weights = convolution.inputs[:2]
    part = None if data is None else reader.part_of(data)
    kernel = None if weights is None else _sizes(shape_of(weights))
    if kernel is None or len(kernel) < 2:
        return None
    if part is not None:
        split, index = part
        cut, axis = reader.editor.cut(split), reader.editor.stated_axis(split)
        if cut is None:  # lengths that the graph computes: as the kernels are equal, so are they
            count, sizes = len(split.outputs), None
        else:
            axis, count, sizes = cut.axis, reader.count(split), cut.sizes
        if axis not in (1, 1 - len(kernel)):
            return None
        begin = index * kernel[1] if sizes is None else sum(sizes[:index])
        return _Channels(split, split, index, count, begin, begin + kernel[1])
    found = reader.slice_of(data)
    if found is None or found.axis != 1 or found.size is None or found.span is None:
        return None
    spans = sorted({other.span for other in reader.slices[found.data, 1] if other.span is not None})
    ends = [0, *(end for _, end in spans)]
    if len(spans) < 2 or ends[:-1] != [begin for begin, _ in spans] or ends[-1] != found.size:
        return None
    return _Channels(found.node, found.data, spans.index(found.span), len(spans), *found.span)


# Rotary embeddings


def _rotated(reader: _Reader, join: ir.Node, inputs: Sequence[ir.Value], axis: int) -> Iterator[Fused]:
    """Follow RoPEFusion: x * cos + Concat(-second half, first half) * sin, by whole rows of tables."""
    if len(inputs) != 2 or axis != -1:
        return
    second = _negated(reader, inputs[0])
    halves = None if second is None else _halves(reader, inputs[1], second)
    if halves is None:
        return
    node, data, half, size = halves
    shape = shape_of(data)
    for product in reader.read_by(join.outputs[0]):
        if reader.name(product) != "Mul":
            continue
        sine = _other(reader, product, join.outputs[0])
        for total in reader.read_by(product.outputs[0]):
            cosine = _cosine(reader, total, product, data)
            if cosine is None or sine is None or shape is None or len(shape) not in (3, 4):
                continue
            if not all(reader.fits(table, len(shape)) for table in (sine, cosine)):
                continue
            path = (node, join, product, total)
            tables = [shape_of(sine), shape_of(cosine)]
            widths = [None if table is None else (table or (1,))[-1] for table in tables]
            grown = any(table is not None and grows(shape, table) for table in tables)
            if grown or 2 * half != size or any(isinstance(width, int) and width != size for width in widths):
                known_size = isinstance(size, int)
                yield Fused(Fusion.ROTATED, node, path, known_size or grown)
            elif any(not isinstance(width, int) for width in widths):
                yield Fused(Fusion.ROTATED, node, path, False)


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


def _halves(
    reader: _Reader, first: ir.Value, second: ir.Value
) -> tuple[ir.Node, ir.Value, int, object] | None:
    """Return what two values are the halves of: node, data, size of the first one and of the axis."""
    one, other = reader.slice_of(first), reader.slice_of(second)
    if one is not None and other is not None and one.data is other.data and one.axis == other.axis:
        shape, span = shape_of(one.data), one.span
        follows = span is not None and other.taken.start in (span[1], span[1] - (one.size or 0))
        if shape is None or span is None or span[0] or one.axis != len(shape) - 1 or not follows:
            return None
        return one.node, one.data, span[1], shape[-1]
    parts = reader.part_of(first), reader.part_of(second)
    if parts[0] is None or parts[1] is None or parts[0][0] is not parts[1][0]:
        return None
    split, cut = parts[0][0], reader.editor.cut(parts[0][0])
    data = split.inputs[0]
    sizes = None if cut is None else cut.sizes
    if (
        cut is None
        or data is None
        or sizes is None
        or len(sizes) != 2
        or (parts[0][1], parts[1][1]) != (0, 1)
    ):
        return None
    if reader.is_counted(split) or reader.editor.stated_axis(split) != cut.rank - 1:
        return None
    return split, reader.source(data), sizes[0], cut.size


def _other(reader: _Reader, node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Return the input of a node of two inputs that is not a value, behind Identity nodes."""
    rest = [own for given in node.inputs if given is not None and (own := reader.source(given)) is not value]
    return rest[0] if len(rest) == 1 and len(node.inputs) == 2 else None


def _cosine(reader: _Reader, total: ir.Node, product: ir.Node, data: ir.Value) -> ir.Value | None:
    """Return by what the data is multiplied in the other summand of a sum."""
    if reader.name(total) != "Add":
        return None
    summand = _other(reader, total, product.outputs[0])
    scaled = None if summand is None else reader.made_by(summand, "Mul")
    return None if scaled is None else _other(reader, scaled, data)


# Slices


def _backward_slices(reader: _Reader) -> Iterator[Fused]:
    """Follow GroupedSliceToVSplitOptimization: a length of -1 is what the others leave."""
    for group in reader.slices.values():
        size = group[0].size
        kept = {
            (one.taken.start, one.taken.stop): one for one in group if one.taken.start >= 0 <= one.taken.stop
        }
        if size is None or not any(stop < start for start, stop in kept):
            continue
        if _sizes(shape_of(group[0].data)) is not None:  # a Slice of everything has been removed
            kept = {span: one for span, one in kept.items() if span[0] or span[1] < size}
        spans = sorted(kept)
        lengths = _lengths_of(spans, size)
        if lengths is None or lengths == [_clamped(span, size) for span in spans]:
            continue
        nodes = tuple(kept[span].node for span in spans)
        for start, stop in spans:
            if stop < start:
                yield Fused(Fusion.BACKWARDS, kept[start, stop].node, nodes)


def _clamped(span: tuple[int, int], size: int) -> int:
    return len(range(size)[slice(*span)])


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
    if reader.editor.role(split) is not Role.SPLIT or len(split.outputs) != PARTS_OF_A_CELL:
        return
    cut, data = reader.editor.cut(split), split.inputs[0]
    if cut is None or (cut.axis, cut.rank) != (1, 2) or not reader.is_counted(split):
        return
    total = reader.made_by(data, "Add", "Gemm")
    if total is None or reader.count(split) != PARTS_OF_A_CELL:
        return
    product = total if reader.name(total) == "Gemm" else _either(reader, total, "MatMul")
    if product is None or reader.made_by(product.inputs[0], "Concat") is None:
        return
    gates = [_gate(reader, part) for part in split.outputs]
    added = [index for index, gate in enumerate(gates) if gate is not None and len(gate) == 2]
    if len(added) != 1 or any(gate is None for gate in gates):
        return
    kinds = [reader.name(gate[-1]) for gate in gates if gate is not None]
    (forget,) = added
    output = _output_gate(reader, gates, forget)
    if output is None or forget not in (1, 2) or not kinds[0] == kinds[3] == kinds[forget]:
        return
    if (forget, output[0]) != (2, 3):
        inner = [node for gate in gates if gate is not None for node in gate]
        yield Fused(Fusion.GATED, split, (split, *inner, output[1]))


def _either(reader: _Reader, node: ir.Node, name: str) -> ir.Node | None:
    return next((made for value in node.inputs if (made := reader.made_by(value, name)) is not None), None)


def _gate(reader: _Reader, part: ir.Value) -> list[ir.Node] | None:
    """Return what reads a gate: an activation, or an addition of one number and an activation."""
    read = reader.read_by(part)
    if len(read) != 1:
        return None
    (first,) = read
    if reader.name(first) in _ACTIVATIONS:
        return [first]
    behind = reader.read_by(first.outputs[0])
    if reader.name(first) != "Add" or len(behind) != 1 or reader.name(behind[0]) not in _ACTIVATIONS:
        return None
    number = _other(reader, first, reader.source(part))
    return [first, behind[0]] if reader.size(number) == 1 and reader.editor.is_constant(number) else None


def _output_gate(
    reader: _Reader, gates: Sequence[list[ir.Node] | None], forget: int
) -> tuple[int, ir.Node] | None:
    """Return which gate scales the activated state of a cell, and the node that does."""
    activated = {gate[-1].outputs[0]: index for index, gate in enumerate(gates) if gate is not None}
    for value, index in activated.items():
        for scaled in reader.read_by(value):
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
            others = set(range(PARTS_OF_A_CELL)) - {forget, index}
            if len(read) == 2 and {forget} in read and others in read:
                return index, scaled
    return None


def _is_read(node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs)


_Finder = Callable[[_Reader, ir.Node], Iterator[Fused]]
_FINDERS: Final[Mapping[str, Sequence[_Finder]]] = {"Concat": (_joined,), "Split": (_gated,)}


def _sizes(shape: Shape | None) -> tuple[int, ...] | None:
    """Return a shape of which every size is known."""
    if shape is None:
        return None
    found = tuple(size for size in shape if isinstance(size, int))
    return found if len(found) == len(shape) else None


# The same without a fusion


def unfuse(editor: Editor, fused: Fused) -> str | None:
    """Write a place in another form that means the same and is not fused.

    Returns:
        What is there now, in words; None where it cannot be written so.
    """
    match fused.fusion:
        case Fusion.SQUEEZED:
            return _with_positive_axis(editor, fused, fused.join)
        case Fusion.ROTATED:
            join = next(node for node in fused.path if editor.role(node) is Role.CONCAT)
            return _with_positive_axis(editor, fused, join)
        case Fusion.SQUEEZED_OPEN | Fusion.REPEATED | Fusion.GATED:
            return editor.state_lengths(fused.node)
        case Fusion.CONVOLVED | Fusion.CONVOLVED_BESIDE:
            return _gathered(editor, fused)
        case Fusion.BACKWARDS:
            return _without_end(editor, fused.node)


def _with_positive_axis(editor: Editor, fused: Fused, join: ir.Node) -> str | None:
    shapes = (shape_of(value) for value in (*join.outputs, *join.inputs) if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    axis = editor.axis(join)
    if rank is None or axis is None:
        return None
    editor.set_axis(join, axis % rank)
    return f"{editor.describe(fused.node)}, Concat(axis={axis % rank})"


def _gathered(editor: Editor, fused: Fused) -> str | None:
    """Let the first convolution read a Gather of its channels."""
    convolution, data = fused.path[1], fused.node.inputs[0]
    if data is None:
        return None
    begin, end = fused.position
    made = editor.gather(convolution, data, range(begin, end), 1)
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
    made = editor.slice(node, data, {axis: slice(taken.start, taken.start, 1)})
    editor.substitute(node, [made])
    return f"Slice(axis={axis}, {taken.start}:{taken.start})"
