"""SplitToSequence as Split, where everything that reads the sequence can read the parts instead."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError, Rule, rule_error
from splitops.models.graph.editor import note_like
from splitops.models.graph.onnx import (
    Names,
    Tape,
    replace_node,
)
from splitops.models.graph.onnx_editor import is_operator
from splitops.models.graph.onnx_sequences import position_of, readers_of, stacks
from splitops.models.sites import Site
from splitops.models.sites.restating import unbind_error
from splitops.spec.sizes.arithmetic import Division, part_count, part_sizes

_MOST_PARTS = 1 << 12
"""A Split with more outputs is not a help to anybody."""


def lower_sequence(node: ir.Node, site: Site, opset: int, names: Names, rule: Rule) -> ir.Node:
    """Replace a SplitToSequence and its readers by a Split whose outputs they read.

    Readers that can do so are SequenceAt with a constant index, SequenceLength and ConcatFromSequence.

    Args:
        node: the node.
        site: what is known of it.
        opset: the opset of its graph, which is also that of the nodes that are made.
        names: the names of the model.
        rule: what the target breaks where the sequence must stay one.

    Returns:
        The Split.

    Raises:
        RuleError: ``rule``, another operator reads the sequence, an index or the number of parts is not
            known, or the split node may be PyTorch's ``unbind``; ``parts.count``, there are no parts or
            too many. Nothing has changed then.
    """
    if site.may_be_unbind:
        raise unbind_error(site, rule)
    binding = site.bind()
    division, axis, shape = binding.division, binding.axis, binding.data.shape
    sizes = _sizes(site, division, axis, shape)
    if sizes is None or axis is None:
        raise _unreadable(site, "the number of its parts is not known before the model runs", rule)
    sequence = node.outputs[0]
    positions = {reader: _position(reader, site, len(sizes), rule) for reader in readers_of(sequence)}
    if sequence.is_graph_output():
        raise _unreadable(site, "the sequence is an output of its graph", rule)
    return _written(node, opset, names, axis, sizes, binding.squeeze, positions)


def _sizes(site: Site, division: Division | None, axis: int | None, shape: object) -> tuple[int, ...] | None:
    """Return the sizes of the parts; None where their number is not known.

    Raises:
        PartsError: ``parts.count``, there are no parts or too many.
    """
    if division is None:
        return None
    size = shape[axis] if isinstance(shape, tuple) and axis is not None else None
    if not isinstance(size, int) and not division.lengths:
        return None
    count = part_count(division, size) if isinstance(size, int) else len(division.lengths)
    if not 1 <= count <= _MOST_PARTS:
        got, expected = f"the sequence has {count} parts", f"a Split gives 1 to {_MOST_PARTS}"
        raise rule_error(str(site.schema), Rule.PARTS_COUNT, got, expected, where=site.where, count=count)
    return part_sizes(division, size, count) if isinstance(size, int) else division.lengths


def _position(reader: ir.Node, site: Site, count: int, rule: Rule) -> int | None:
    """Return which part a SequenceAt reads; None for a reader of all parts."""
    if is_operator(reader, "SequenceLength", "ConcatFromSequence"):
        return None
    if not is_operator(reader, "SequenceAt"):
        raise _unreadable(site, f"{reader.op_type} reads the sequence", rule)
    position = position_of(reader)
    if position is None:
        raise _unreadable(site, "SequenceAt reads a position that is not constant", rule)
    if not -count <= position < count:
        raise ModelError(f"SequenceAt reads position {position} of a sequence of {count}", site.where)
    return position % count


def _unreadable(site: Site, reason: str, rule: Rule) -> Exception:
    return rule_error(
        str(site.schema),
        rule,
        reason,
        "the target has no sequences: only constant positions, the length and the concatenation can be read",
        where=site.where,
    )


def _written(
    node: ir.Node,
    opset: int,
    names: Names,
    axis: int,
    sizes: tuple[int, ...],
    squeeze: bool | None,
    positions: Mapping[ir.Node, int | None],
) -> ir.Node:
    """Write the Split, and what its readers become; the positions say which part each of them reads."""
    data, base = node.inputs[0], node.name or node.outputs[0].name or "split"
    assert data is not None
    tape = Tape(opset, names, base)
    lengths = [tape.integers(sizes)] if opset >= 13 else []
    attributes = {"axis": axis} if lengths else {"axis": axis, "split": list(sizes)}
    parts = tape.multi("Split", [data, *lengths], attributes, outputs=len(sizes), hint="part")
    split = tape.nodes[-1]
    for part, size in zip(parts, sizes, strict=True):
        note_like(part, data, {axis: size})
    elements = [tape.of_axis("Squeeze", part, axis, "element") for part in parts] if squeeze else parts
    for reader, position in positions.items():
        own = Tape(opset, names, reader.name or reader.outputs[0].name or base)
        if position is not None:
            # Identity, so that a graph output keeps its name.
            result = own.op("Identity", [elements[position]])
        elif reader.op_type == "SequenceLength":
            result = own.constant(np.array(len(parts), np.int64))
        else:
            result = _concatenated(reader, elements, own)
        replace_node(reader, own.nodes, [result])
    replace_node(node, tape.nodes, [None])
    return split


def _concatenated(reader: ir.Node, elements: list[ir.Value], tape: Tape) -> ir.Value:
    axis = int(reader.attributes["axis"].value)
    if stacks(reader):
        elements = [tape.of_axis("Unsqueeze", element, axis) for element in elements]
    return tape.op("Concat", elements, {"axis": axis})
