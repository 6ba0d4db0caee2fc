"""SplitToSequence as Split, where everything that reads the sequence can read the parts instead."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import ModelError, Rule, rule_error
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import position_of, read_elements, readers_of
from splitops.models.sites import Site
from splitops.models.sites.ways import unbind_error
from splitops.spec.operators import schema
from splitops.spec.sizes.arithmetic import Division, part_count, part_sizes
from splitops.spec.sizes.rules import SizeRule

_MOST_PARTS = 1 << 12
"""A Split with more outputs is not a help to anybody."""


def lower_sequence(node: ir.Node, site: Site, editor: OnnxEditor, rule: Rule) -> ir.Node:
    """Replace a SplitToSequence and its readers by a Split whose outputs they read, and return it.

    Readers that can do so are SequenceAt with a constant index, SequenceLength and ConcatFromSequence. Others
    are rejected by ``rule``, and nothing has changed.
    """
    if site.may_be_unbind:
        raise unbind_error(site, rule)
    binding = site.bind()
    division, axis, shape = binding.division, binding.axis, binding.data.shape
    sizes = _sizes(site, division, axis, shape)
    if sizes is None or axis is None:
        raise _unreadable(site, "the number of its parts is not known before the model runs", rule)
    sequence = node.outputs[0]
    readers = readers_of(sequence)
    for reader in readers:
        _prove(reader, site, len(sizes), rule)
    if sequence.is_graph_output():
        raise _unreadable(site, "the sequence is an output of its graph", rule)
    data, row, pen = node.inputs[0], schema("Split", editor.opset(node)), editor.pen(node)
    assert data is not None
    explicit = Division(SizeRule.EXPLICIT, lengths=sizes)
    parts = pen.split_as(row, explicit, data, axis, sizes)
    split = parts[0].producer()
    assert split is not None
    elements = [pen.squeeze(part, axis) for part in parts] if binding.squeeze else parts
    for reader in readers:
        read_elements(reader, elements, editor)
    editor.remove(node)
    return split


def _sizes(site: Site, division: Division | None, axis: int | None, shape: object) -> tuple[int, ...] | None:
    """Return the sizes of the parts; None where their number is not known."""
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


def _prove(reader: ir.Node, site: Site, count: int, rule: Rule) -> None:
    """Reject what cannot read elements instead of the sequence."""
    if is_operator(reader, "SequenceLength", "ConcatFromSequence"):
        return
    if not is_operator(reader, "SequenceAt"):
        raise _unreadable(site, f"{reader.op_type} reads the sequence", rule)
    position = position_of(reader)
    if position is None:
        raise _unreadable(site, "SequenceAt reads a position that is not constant", rule)
    if not -count <= position < count:
        raise ModelError(f"SequenceAt reads position {position} of a sequence of {count}", site.where)


def _unreadable(site: Site, reason: str, rule: Rule) -> Exception:
    return rule_error(
        str(site.schema),
        rule,
        reason,
        "the target has no sequences: only constant positions, the length and the concatenation can be read",
        where=site.where,
    )
