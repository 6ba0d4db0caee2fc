"""What a quirk is: one thing that an optimiser gets wrong, how it is found, and how it is cured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from splitops.errors import SplitError
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import shape_of
from splitops.models.graph.split_writer import write
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.models.split_nodes.ways import first_way


@dataclass(frozen=True, slots=True, eq=False)
class Quirk:
    """One thing that the optimiser of a runtime gets wrong.

    The limit of a target that names it has its releases, its source and the case that shows it.

    Attributes:
        name: its name, with which limits refer to it.
        runtime: the runtime whose optimiser has it.
        cure: rewrites the nodes of a match so that it no longer matches, and returns a description of the new
            nodes; None if it cannot.
        says_may: whether the message of its limit says that it is not certain.
    """

    name: str
    runtime: str
    cure: Callable[[Editor, Match], str | None]
    says_may: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """One place of a model at which an optimiser gets something wrong.

    Attributes:
        quirk: the quirk.
        node: the split, Slice or Transpose that it is about.
        path: the nodes of the pattern, in topological order: the optimiser replaces the last one.
        certain: False if it depends on sizes that are only known when the model runs.
        channels: the first channel that the first convolution reads, and the end of its channels.
    """

    quirk: Quirk
    node: ir.Node
    path: tuple[ir.Node, ...]
    certain: bool = True
    channels: tuple[int, int] = (0, 0)

    @property
    def last(self) -> ir.Node:
        """The node that the optimiser replaces."""
        return self.path[-1]

    def cure(self, editor: Editor) -> str | None:
        """Rewrite the nodes so that they no longer match, and describe them; None if that is not possible."""
        return self.quirk.cure(editor, self)


def set_lengths(editor: Editor, match: Match) -> str | None:
    """Set the length of each part of the split: the optimiser only knows splits by a number of parts."""
    node, split_node = match.node, editor.read_split_node(match.node)
    try:
        way = first_way(
            split_node,
            ConversionTarget(editor.domain, editor.opset(node)),
            SplitStyle.LENGTHS,
            must_differ=True,
        )
    except SplitError:
        return None
    if way.is_kept or (way.axis is None and editor.domain):
        return None
    write(node, split_node, way, editor.make_builder(node))
    editor.enqueue(node)
    return str(way)


def count_axis_from_the_front(editor: Editor, match: Match, concat: ir.Node) -> str | None:
    """Write a Concat with its axis counted from the front: the optimiser only knows, or misreads, others."""
    shapes = (shape_of(value) for value in (*concat.outputs, *concat.inputs) if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    axis = editor.axis(concat)
    if rank is None or axis is None:
        return None
    inputs = [value for value in concat.inputs if value is not None]
    editor.substitute(concat, [editor.make_builder(concat).concat(inputs, axis % rank)])
    return f"{editor.describe(match.node)}, Concat(axis={axis % rank})"
