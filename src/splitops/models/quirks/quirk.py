"""Quirks (wrong optimisations of a runtime), their matches in a model, and rewrites that avoid them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from splitops.errors import SplitError
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_shape
from splitops.models.graph.split_writer import write_split
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import get_first_way


@dataclass(frozen=True, slots=True, eq=False)
class Quirk:
    """A wrong optimisation of a runtime.

    The limit that refers to it, in the file of a target, lists the affected releases, the source and usually
    a case.

    Attributes:
        name: name that limits refer to.
        runtime: affected runtime.
        rewrite: rewrites the nodes of a match so that they no longer match, and returns a description of the
            new nodes, or None if that is impossible.
        says_may: whether the message of its limit already expresses uncertainty.
    """

    name: str
    runtime: str
    rewrite: Callable[[Editor, Match], str | None]
    says_may: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """Nodes of a model that an optimiser rewrites wrongly.

    Attributes:
        quirk: the quirk.
        node: affected split, Slice or Transpose.
        path: nodes of the pattern, in topological order. The optimiser usually replaces the last one.
        certain: False if the optimised model may be right, for example for some sizes of a dynamic axis.
        channels: range of the channels that the first convolution reads, for quirks of convolutions.
    """

    quirk: Quirk
    node: ir.Node
    path: tuple[ir.Node, ...]
    certain: bool = True
    channels: tuple[int, int] = (0, 0)

    @property
    def last(self) -> ir.Node:
        """The last node of ``path``, which the optimiser usually replaces."""
        return self.path[-1]

    def rewrite(self, editor: Editor) -> str | None:
        """Rewrite the nodes so that they no longer match. Return a description, or None if this fails."""
        return self.quirk.rewrite(editor, self)


def set_lengths(editor: Editor, match: Match) -> str | None:
    """Replace the number of parts of a split with lengths, or in ONNX the split with Slices if necessary.

    The optimiser only matches splits by a number of parts. Return a description, or None if this fails.
    """
    node, split_node = match.node, editor.read_split_node(match.node)
    target = ConversionTarget(editor.domain, editor.get_opset(node))
    try:
        way = get_first_way(split_node, target, SplitStyle.LENGTHS, must_differ=True)
    except SplitError:
        return None
    if way.is_kept or (way.axis is None and editor.domain):
        return None
    write_split(node, split_node, way, editor.make_builder(node))
    editor.enqueue(node)
    return str(way)


def count_axis_from_the_front(editor: Editor, match: Match, concat: ir.Node) -> str | None:
    """Make the axis of a Concat non-negative. Return a description, or None if the axis or rank is unknown.

    The optimiser matches or misreads only negative axes.
    """
    shapes = (find_shape(value) for value in (*concat.outputs, *concat.inputs) if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    axis = editor.find_axis(concat)
    if rank is None or axis is None:
        return None
    inputs = [value for value in concat.inputs if value is not None]
    editor.substitute(concat, [editor.make_builder(concat).concatenate(inputs, axis % rank)])
    return f"{editor.describe(match.node)}, Concat(axis={axis % rank})"
