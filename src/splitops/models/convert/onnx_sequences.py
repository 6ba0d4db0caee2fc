"""SplitToSequence as Split, where everything that reads the sequence can read the parts instead."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import ModelError, Rule, rule_error
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import find_consumers, position_of, read_elements
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.ways import make_unbind_error
from splitops.spec.operators import schema
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts
from splitops.spec.sizes.rules import SizeRule

_MAX_PARTS = 1 << 12
"""A Split with more outputs is not a help to anybody."""


def lower_sequence(node: ir.Node, split_node: SplitNode, editor: OnnxEditor, rule: Rule) -> ir.Node:
    """Replace a SplitToSequence and its readers by a Split whose outputs they read, and return it.

    Readers that can do so are SequenceAt with a constant index, SequenceLength and ConcatFromSequence. Others
    are rejected by ``rule``, and nothing has changed.
    """
    if split_node.may_be_unbind:
        raise make_unbind_error(split_node, rule)
    binding = split_node.bind()
    division, axis, shape = binding.division, binding.axis, binding.data.shape
    sizes = _sizes(split_node, division, axis, shape)
    if sizes is None or axis is None:
        raise _unreadable(split_node, "the number of its parts is not known before the model runs", rule)
    sequence = node.outputs[0]
    readers = find_consumers(sequence)
    for reader in readers:
        _prove(reader, split_node, len(sizes), rule)
    if sequence.is_graph_output():
        raise _unreadable(split_node, "the sequence is an output of its graph", rule)
    data, op_schema, builder = node.inputs[0], schema("Split", editor.opset(node)), editor.make_builder(node)
    assert data is not None
    explicit = Division(SizeRule.EXPLICIT, lengths=sizes)
    parts = builder.split_as(op_schema, explicit, data, axis, sizes)
    split = parts[0].producer()
    assert split is not None
    elements = [builder.squeeze(part, axis) for part in parts] if binding.squeeze else parts
    for reader in readers:
        read_elements(reader, elements, editor)
    editor.remove(node)
    return split


def _sizes(
    split_node: SplitNode, division: Division | None, axis: int | None, shape: object
) -> tuple[int, ...] | None:
    """Return the sizes of the parts; None where their number is not known."""
    if division is None:
        return None
    size = shape[axis] if isinstance(shape, tuple) and axis is not None else None
    if not isinstance(size, int) and not division.lengths:
        return None
    count = count_parts(division, size) if isinstance(size, int) else len(division.lengths)
    if not 1 <= count <= _MAX_PARTS:
        got, expected = f"the sequence has {count} parts", f"a Split gives 1 to {_MAX_PARTS}"
        raise rule_error(
            str(split_node.schema), Rule.PARTS_COUNT, got, expected, where=split_node.where, count=count
        )
    return compute_part_sizes(division, size, count) if isinstance(size, int) else division.lengths


def _prove(reader: ir.Node, split_node: SplitNode, count: int, rule: Rule) -> None:
    """Reject what cannot read elements instead of the sequence."""
    if is_operator(reader, "SequenceLength", "ConcatFromSequence"):
        return
    if not is_operator(reader, "SequenceAt"):
        raise _unreadable(split_node, f"{reader.op_type} reads the sequence", rule)
    position = position_of(reader)
    if position is None:
        raise _unreadable(split_node, "SequenceAt reads a position that is not constant", rule)
    if not -count <= position < count:
        raise ModelError(f"SequenceAt reads position {position} of a sequence of {count}", split_node.where)


def _unreadable(split_node: SplitNode, reason: str, rule: Rule) -> Exception:
    return rule_error(
        str(split_node.schema),
        rule,
        reason,
        "the target has no sequences: only constant positions, the length and the concatenation can be read",
        where=split_node.where,
    )
