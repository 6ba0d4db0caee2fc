"""Rewrites of Slices and Gathers that together are a Split."""

from __future__ import annotations

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role, Span
from splitops.models.graph.onnx import known
from splitops.models.known import Tensor
from splitops.models.simplify.decisions import partition
from splitops.models.simplify.passes import SplitPass
from splitops.sizes.dims import Shape

__all__ = ["GathersPass", "ScalarGathersPass", "SlicesPass"]


class _CoverPass(SplitPass):
    """Nodes that each take a span of the same axis of the same tensor, and together all of it."""

    def span(self, node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, Span] | None:
        """Return the axis and the span that a node takes; None where it takes something else."""
        raise NotImplementedError

    def place(self, node: ir.Node, part: ir.Value, axis: int, editor: Editor) -> ir.Value:
        """Return what stands for a node's output once there is a part."""
        return part

    def rewrite(self, node: ir.Node, editor: Editor) -> None:
        """Replace all nodes that read what the root reads, if they cover an axis of it."""
        data = node.inputs[0]
        found = None if data is None else known(data)
        if data is None or not isinstance(found, Tensor) or found.shape is None or node.graph is None:
            return
        if not editor.first_look(self.name, data, node.graph) or not _can_split(found, editor, node):
            return
        axes: dict[int, dict[ir.Node, Span]] = {}
        for reader in data.consumers():
            if reader.graph is not node.graph or editor.role(reader) not in self.roots:
                continue
            if reader.inputs[0] is data and editor.position(reader) is not None:
                taken = self.span(reader, found.shape, editor)
                if taken is not None:
                    axes.setdefault(taken[0], {})[reader] = taken[1]
        for axis, spans in axes.items():
            size = found.shape[axis]
            cover = partition(list(spans.values()), size) if isinstance(size, int) else None
            if cover is not None and len(cover) > 1:
                self._split(data, axis, cover, spans, editor)
                return

    def _split(
        self, data: ir.Value, axis: int, cover: tuple[Span, ...], spans: dict[ir.Node, Span], editor: Editor
    ) -> None:
        first = min(spans, key=lambda reader: editor.position(reader) or 0)
        where, before = editor.where(first), f"{len(spans)} x {first.op_type}(axis={axis})"
        sizes = [end - begin for begin, end in cover]
        parts = editor.split(first, data, axis, sum(sizes), sizes)
        made = parts[0].producer()
        assert made is not None
        by_span = dict(zip(cover, parts, strict=True))
        for reader, span in spans.items():
            if span in by_span:
                part = self.place(reader, by_span[span], axis, editor)
                editor.replace(reader.outputs[0], part)
                editor.remove(reader)
        editor.applied(self, where, before, editor.describe(made), "they are the parts of one axis")


def _can_split(found: Tensor, editor: Editor, node: ir.Node) -> bool:
    rows = editor.split_rows(node)
    return found.type is not None and any(found.type in row.types_of(row.inputs[0]) for row in rows)


class SlicesPass(_CoverPass):
    """Slices of one tensor that together are a whole axis, of known size, are one Split."""

    name = "slices"
    roots = frozenset({Role.SLICE})

    def span(self, node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, Span] | None:
        """Read a Slice of one axis in steps of 1."""
        return editor.sliced(node, shape)


class GathersPass(_CoverPass):
    """Gathers of neighbouring positions that together are a whole axis, of known size, are one Split."""

    name = "gathers"
    roots = frozenset({Role.GATHER})

    def span(self, node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, Span] | None:
        """Read a Gather of a list of neighbouring positions."""
        return _gathered(node, shape, editor, rank=1)


class ScalarGathersPass(_CoverPass):
    """Gathers of every single position of an axis are one Split, and a Squeeze for each.

    These are more nodes than before: it is for runtimes that split faster than they gather, and applied only
    where it is named.
    """

    name = "scalar-gathers"
    roots = frozenset({Role.GATHER})

    def span(self, node: ir.Node, shape: Shape, editor: Editor) -> tuple[int, Span] | None:
        """Read a Gather of one position."""
        return _gathered(node, shape, editor, rank=0)

    def place(self, node: ir.Node, part: ir.Value, axis: int, editor: Editor) -> ir.Value:
        """Squeeze the axis away."""
        return editor.squeeze(node, part, axis)


def _gathered(node: ir.Node, shape: Shape, editor: Editor, rank: int) -> tuple[int, Span] | None:
    found = editor.gathered(node)
    if found is None:
        return None
    axis, array = found
    axis = axis + len(shape) if axis < 0 else axis
    size = shape[axis] if 0 <= axis < len(shape) else None
    if not isinstance(size, int) or array.ndim != rank or not array.size:
        return None
    positions = [int(index) for index in array.reshape(-1).tolist()]
    if any(not -size <= index < size for index in positions):
        return None
    begin = positions[0] % size
    if [index % size for index in positions] != list(range(begin, begin + len(positions))):
        return None
    return axis, (begin, begin + len(positions))
