"""Rewrites of Reshapes and Transposes: fewer in a row, and a split in front of those that keep its axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import has_consumers, shape_of
from splitops.models.simplify.factors import Factored, Move, Permute, moves
from splitops.models.simplify.slices import all_gathered

_MOVERS: Final = frozenset({Role.RESHAPE, Role.TRANSPOSE})
_LONGEST: Final = 16
"""No more nodes in a row are looked at together, so that the work grows with their number."""


def merge_reshapes(node: ir.Node, editor: Editor) -> None:
    """Reshapes and Transposes in a row, which nothing else reads, are as few as move the same.

    Squeeze, Unsqueeze and Flatten are Reshapes here. A Reshape by a shape that the model computes is left,
    unless its sizes are known by name.
    """
    data = node.inputs[0]
    shape = None if data is None else shape_of(data)
    if data is None or shape is None:
        return
    factored = Factored(shape)
    if not _goes_through(factored, node, editor):
        return
    row = [node, *_trace_moves(node.outputs[0], factored, editor)]
    end = row[-1].outputs[0]
    fewer = moves(factored.source, factored.axes)
    if fewer is None or len(fewer) >= len(row) or editor.has_fixed_name(end):
        return
    before, where = ", ".join(one.op_type for one in row), editor.where(row[-1])
    editor.replace(end, apply_moves(fewer, row[-1], data, editor))
    editor.remove(*row)
    after = ", ".join("Transpose" if isinstance(move, Permute) else "Reshape" for move in fewer)
    editor.applied(where, before, after or data.name or "its input", "together they move the same")


@dataclass(frozen=True, slots=True)
class AxisPartition:
    """Nodes that divide an axis of a value into parts, the first one of them first."""

    nodes: Sequence[ir.Node]
    axis: int
    sizes: Sequence[int]
    parts: Sequence[ir.Value]
    squeezed: bool
    """Whether the parts lose the axis."""


@dataclass(frozen=True, slots=True)
class HoistedPart:
    """A part of what is in front, its size on the axis that is divided there, and what it becomes."""

    size: int
    end: ir.Value
    behind: Sequence[ir.Node]
    """The nodes that led to it."""
    moves: Sequence[Move]
    """The ones that do now."""


def hoist_splits(node: ir.Node, editor: Editor) -> None:
    """A split behind Reshapes and Transposes that keep its axis is in front of them, with fewer nodes.

    Gathers of every single position of an axis are such a split too. What has moved the whole, and what moved
    each part behind it, becomes one for each part: PyTorch's packed projection of attention, divided by
    Reshape, Unsqueeze, Transpose, Squeeze and three Gathers, is one Split.
    """
    data = node.inputs[0]
    if data is None or node.graph is None or data.is_graph_output():
        return
    above = find_reshapes_before(data, node, editor)
    if not above or not editor.is_first_visit(data, node.graph):
        return
    cover = find_partition(node, data, editor)
    if cover is None or len(data.uses()) != len(cover.nodes):
        return
    while above:
        if _hoist(above, cover, editor):
            return
        del above[0]


def _hoist(above: list[ir.Node], cover: AxisPartition, editor: Editor) -> bool:
    """Move a split in front of nodes; return whether it could be, with fewer nodes."""
    source, found = above[0].inputs[0], plan_hoist(above, cover, editor)
    if source is None or found is None:
        return False
    axis, parts = found
    old = len(above) + len(cover.nodes) + sum(len(part.behind) for part in parts)
    if 1 + sum(len(part.moves) for part in parts) >= old:
        return False
    first = cover.nodes[0]
    where, before = editor.where(first), f"{', '.join(one.op_type for one in above)}, {first.op_type}"
    sizes = [part.size for part in parts]
    made = editor.make_builder(first).split(source, axis, sum(sizes), sizes)
    for part, value in zip(parts, made, strict=True):
        if has_consumers(part.end):
            editor.replace(part.end, apply_moves(part.moves, first, value, editor))
        editor.remove(*part.behind)
    editor.remove(*above, *cover.nodes)
    reason = "what moves the whole keeps the axis"
    editor.applied(where, before, editor.describe_producer(made[0]), reason)
    return True


def find_partition(node: ir.Node, data: ir.Value, editor: Editor) -> AxisPartition | None:
    """Return how a split, or Gathers of every position, divide a value; None where that is not known."""
    cut = editor.read_split_facts(node)
    if cut is not None:
        sizes = cut.sizes
        if sizes is None or not cut.removable or sum(sizes) != cut.size or 0 in sizes:
            return None
        return AxisPartition([node], cut.axis, sizes, list(node.outputs), squeezed=False)
    shape = shape_of(data)
    found = None if shape is None else all_gathered(node, data, shape, editor)
    if found is None:
        return None
    axis, gathers = found
    first = sorted(gathers, key=lambda gather: editor.position(gather) or 0)
    return AxisPartition(
        first, axis, [1] * len(gathers), [gather.outputs[0] for gather in gathers], squeezed=True
    )


def plan_hoist(
    movers: Sequence[ir.Node], cover: AxisPartition, editor: Editor
) -> tuple[int, list[HoistedPart]] | None:
    """Return which axis of what movers read a split behind them divides, and the parts; None: none."""
    source = movers[0].inputs[0]
    shape = None if source is None else shape_of(source)
    if shape is None:
        return None
    factored = Factored(shape)
    if not all(_goes_through(factored, node, editor) for node in movers):
        return None
    unit = math.gcd(*cover.sizes)
    factor = factored.leading(cover.axis, sum(cover.sizes) // unit)
    if factor is None:
        return None
    axis = next(index for index, factors in enumerate(factored.source) if factors[:1] == [factor])
    size = shape[axis]
    assert isinstance(size, int)  # as its factor is
    parts = []
    for length, value in zip(cover.sizes, cover.parts, strict=True):
        part = factored.part(factor, length // unit, cover.axis if cover.squeezed else None)
        behind = _trace_moves(value, part, editor)
        end = behind[-1].outputs[0] if behind else value
        found = moves(part.source, part.axes) if has_consumers(end) else []
        if found is None or editor.has_fixed_name(end):
            return None
        parts.append(HoistedPart(length * size // sum(cover.sizes), end, behind, found))
    return axis, parts


def find_reshapes_before(value: ir.Value, node: ir.Node, editor: Editor) -> list[ir.Node]:
    """Return the Reshapes and Transposes in front of a node, each only read by the next, the first first."""
    row: list[ir.Node] = []
    while len(row) < _LONGEST:
        mover = value.producer()
        if mover is None or editor.role(mover) not in _MOVERS or mover.graph is not node.graph:
            break
        behind = mover.inputs[0]
        if behind is None or (row and (len(value.uses()) != 1 or value.is_graph_output())):
            break
        row.append(mover)
        value = behind
    return row[::-1]


def _trace_moves(value: ir.Value, factored: Factored, editor: Editor) -> list[ir.Node]:
    """Take factors through the Reshapes and Transposes behind a value that nothing else reads."""
    row: list[ir.Node] = []
    producer = value.producer()
    while len(row) < _LONGEST and not value.is_graph_output() and len(value.uses()) == 1:
        mover = next(iter(value.uses())).node
        same = producer is not None and mover.graph is producer.graph
        if not same or mover.inputs[0] is not value or any(map(editor.has_fixed_name, mover.outputs)):
            break
        if not _goes_through(factored, mover, editor):
            break
        row.append(mover)
        value = mover.outputs[0]
    return row


def _goes_through(factored: Factored, node: ir.Node, editor: Editor) -> bool:
    """Take factors through a node; return whether it is a Reshape or Transpose that is known well enough."""
    role = editor.role(node)
    if role is Role.TRANSPOSE:
        order = editor.permutation(node, len(factored.axes))
        return order is not None and factored.permute(order)
    shape = shape_of(node.outputs[0]) if role is Role.RESHAPE and editor.is_fixed(node) else None
    return shape is not None and factored.regroup(shape)


def apply_moves(found: Sequence[Move], before: ir.Node, value: ir.Value, editor: Editor) -> ir.Value:
    """Add Reshapes and Transposes in front of a node."""
    builder = editor.make_builder(before)
    for move in found:
        if isinstance(move, Permute):
            value = builder.transpose(value, move.order)
        else:
            value = builder.reshape(value, move.pattern, move.shape)
    return value
