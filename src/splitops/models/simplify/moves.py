"""Rewrites that shorten chains of Reshapes and Transposes, or hoist splits above them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx import find_shape, has_consumers
from splitops.models.simplify.factors import Factored, Move, Permute, find_moves
from splitops.models.simplify.slices import find_gathered_axis

_MOVERS: Final = frozenset({Role.RESHAPE, Role.TRANSPOSE})
_LONGEST: Final = 16
"""Maximum number of nodes that are traced from a node, so that the work is linear in the number of nodes."""


def merge_reshapes(node: ir.Node, editor: Editor) -> None:
    """Replace a chain of Reshapes and Transposes that has no other uses with a shorter equivalent chain.

    Squeeze, Unsqueeze and Flatten count as Reshapes. A Reshape to a computed shape is unchanged unless its
    sizes are inferred.
    """
    data = node.inputs[0]
    shape = None if data is None else find_shape(data)
    if data is None or shape is None:
        return
    factored = Factored(shape)
    if not _apply_node(factored, node, editor):
        return
    chain = [node, *_trace_moves(node.outputs[0], factored, editor)]
    end = chain[-1].outputs[0]
    fewer = find_moves(factored.source, factored.axes)
    if fewer is None or len(fewer) >= len(chain) or editor.has_fixed_name(end):
        return
    before, where = ", ".join(one.op_type for one in chain), editor.locate(chain[-1])
    editor.replace(end, apply_moves(fewer, chain[-1], data, editor))
    editor.remove(*chain)
    after = ", ".join("Transpose" if isinstance(move, Permute) else "Reshape" for move in fewer)
    editor.record(where, before, after or data.name or "its input", "fewer nodes have the same effect")


@dataclass(frozen=True, slots=True)
class AxisPartition:
    """A partition of an axis of a value: the parts, and the nodes that produce them, in topological order."""

    nodes: Sequence[ir.Node]
    axis: int
    sizes: Sequence[int]
    parts: Sequence[ir.Value]
    squeezed: bool
    """Whether the parts lose the axis."""


@dataclass(frozen=True, slots=True)
class HoistedPart:
    """A part of a hoisted split: its size on the split axis, and ``end``, the value that it replaces."""

    size: int
    end: ir.Value
    old_nodes: Sequence[ir.Node]
    """The existing nodes from the part to ``end``."""
    moves: Sequence[Move]
    """The new Reshapes and Transposes from the part to ``end``."""


def hoist_splits(node: ir.Node, editor: Editor) -> None:
    """Hoist a split above Reshapes and Transposes that keep its axis, if that needs fewer nodes.

    Gathers of every position of an axis count as a split. For each part, the nodes before the split are
    merged with those after the part. The packed projection of PyTorch's attention, which is divided by
    Reshape, Unsqueeze, Transpose, Squeeze and three Gathers, becomes one Split.
    """
    data = node.inputs[0]
    if data is None or node.graph is None or data.is_graph_output():
        return
    above = find_reshapes_before(data, node, editor)
    if not above or not editor.is_first_visit(data, node.graph):
        return
    partition = find_partition(node, data, editor)
    if partition is None or len(data.uses()) != len(partition.nodes):
        return
    while above:
        if _hoist(above, partition, editor):
            return
        del above[0]


def _hoist(above: list[ir.Node], partition: AxisPartition, editor: Editor) -> bool:
    """Hoist a split above nodes. Return False, without a change, if this is impossible or saves no nodes."""
    source, found = above[0].inputs[0], plan_hoist(above, partition, editor)
    if source is None or found is None:
        return False
    axis, parts = found
    old = len(above) + len(partition.nodes) + sum(len(part.old_nodes) for part in parts)
    if 1 + sum(len(part.moves) for part in parts) >= old:
        return False
    first = partition.nodes[0]
    where, before = editor.locate(first), f"{', '.join(one.op_type for one in above)}, {first.op_type}"
    sizes = [part.size for part in parts]
    values = editor.make_builder(first).split(source, axis, sum(sizes), sizes)
    for part, value in zip(parts, values, strict=True):
        if has_consumers(part.end):
            editor.replace(part.end, apply_moves(part.moves, first, value, editor))
        editor.remove(*part.old_nodes)
    editor.remove(*above, *partition.nodes)
    reason = "the nodes before it keep the axis"
    editor.record(where, before, editor.describe_producer(values[0]), reason)
    return True


def find_partition(node: ir.Node, data: ir.Value, editor: Editor) -> AxisPartition | None:
    """Return the partition of an axis by a split or by Gathers of all positions, or None for other nodes.

    The split must be valid for every size of the axis, and must not have empty parts.
    """
    facts = editor.read_split_facts(node)
    if facts is not None:
        sizes = facts.sizes
        if sizes is None or not facts.removable or sum(sizes) != facts.size or 0 in sizes:
            return None
        return AxisPartition([node], facts.axis, sizes, list(node.outputs), squeezed=False)
    shape = find_shape(data)
    found = None if shape is None else find_gathered_axis(node, data, shape, editor)
    if found is None:
        return None
    axis, gathers = found
    first = sorted(gathers, key=lambda gather: editor.find_position(gather) or 0)
    return AxisPartition(
        first, axis, [1] * len(gathers), [gather.outputs[0] for gather in gathers], squeezed=True
    )


def plan_hoist(
    chain: Sequence[ir.Node], partition: AxisPartition, editor: Editor
) -> tuple[int, list[HoistedPart]] | None:
    """Return the axis and parts of an equivalent split before ``chain``, or None if there is none."""
    source = chain[0].inputs[0]
    shape = None if source is None else find_shape(source)
    if shape is None:
        return None
    factored = Factored(shape)
    if not all(_apply_node(factored, node, editor) for node in chain):
        return None
    unit = math.gcd(*partition.sizes)
    factor = factored.find_leading(partition.axis, sum(partition.sizes) // unit)
    if factor is None:
        return None
    axis = next(index for index, factors in enumerate(factored.source) if factors[:1] == [factor])
    size = shape[axis]
    assert isinstance(size, int)  # its factor has an exact size
    parts = []
    for length, value in zip(partition.sizes, partition.parts, strict=True):
        part = factored.make_part(factor, length // unit, partition.axis if partition.squeezed else None)
        following = _trace_moves(value, part, editor)
        end = following[-1].outputs[0] if following else value
        found = find_moves(part.source, part.axes) if has_consumers(end) else []
        if found is None or editor.has_fixed_name(end):
            return None
        parts.append(HoistedPart(length * size // sum(partition.sizes), end, following, found))
    return axis, parts


def find_reshapes_before(value: ir.Value, node: ir.Node, editor: Editor) -> list[ir.Node]:
    """Return the Reshapes and Transposes before ``value``, in order. Only the last may have other uses."""
    chain: list[ir.Node] = []
    while len(chain) < _LONGEST:
        op = value.producer()
        if op is None or editor.find_role(op) not in _MOVERS or op.graph is not node.graph:
            break
        source = op.inputs[0]
        if source is None or (chain and (len(value.uses()) != 1 or value.is_graph_output())):
            break
        chain.append(op)
        value = source
    return chain[::-1]


def _trace_moves(value: ir.Value, factored: Factored, editor: Editor) -> list[ir.Node]:
    """Return the chain of Reshapes and Transposes that follows a value, after applying it to ``factored``."""
    chain: list[ir.Node] = []
    producer = value.producer()
    while len(chain) < _LONGEST and not value.is_graph_output() and len(value.uses()) == 1:
        node = next(iter(value.uses())).node
        same = producer is not None and node.graph is producer.graph
        if not same or node.inputs[0] is not value or any(map(editor.has_fixed_name, node.outputs)):
            break
        if not _apply_node(factored, node, editor):
            break
        chain.append(node)
        value = node.outputs[0]
    return chain


def _apply_node(factored: Factored, node: ir.Node, editor: Editor) -> bool:
    """Apply a Reshape or Transpose to ``factored``. Return False for other nodes or unknown shapes."""
    role = editor.find_role(node)
    if role is Role.TRANSPOSE:
        order = editor.read_permutation(node, len(factored.axes))
        return order is not None and factored.permute(order)
    shape = find_shape(node.outputs[0]) if role is Role.RESHAPE and editor.is_fixed(node) else None
    return shape is not None and factored.reshape(shape)


def apply_moves(found: Sequence[Move], before: ir.Node, value: ir.Value, editor: Editor) -> ir.Value:
    """Add Reshapes and Transposes of ``value`` before the node ``before``, and return the last output."""
    builder = editor.make_builder(before)
    for move in found:
        if isinstance(move, Permute):
            value = builder.transpose(value, move.order)
        else:
            value = builder.reshape(value, move.pattern, move.shape)
    return value
