"""Conversion of SplitToSequence to Split, if all consumers of the sequence can read its parts instead."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import ModelError, Rule, rule_error
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import find_consumers, find_position, read_elements
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.static_facts import MAX_OUTPUTS
from splitops.models.split_nodes.ways import make_unbind_error
from splitops.spec.operators import schema
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts
from splitops.spec.sizes.rules import SizeRule


def lower_sequence(node: ir.Node, split_node: SplitNode, editor: OnnxEditor, rule: Rule) -> ir.Node:
    """Replace a SplitToSequence and the consumers of its sequence with a Split, and return the Split.

    The consumers may be SequenceAt with a constant position, SequenceLength and ConcatFromSequence.

    Raises:
        RuleError: the sequence has other uses or an unknown length (``rule``), or too many parts or none
            (``parts.count``). The graph is unchanged.
        ModelError: a SequenceAt reads a position outside of the sequence. The graph is unchanged.
    """
    if split_node.may_be_unbind:
        raise make_unbind_error(split_node, rule)
    binding = split_node.bind()
    axis, sizes = binding.axis, _compute_part_sizes(split_node)
    if sizes is None or axis is None:
        raise _make_error(split_node, "the number of its parts is known only at run time", rule)
    sequence = node.outputs[0]
    consumers = find_consumers(sequence)
    for consumer in consumers:
        _check_consumer(consumer, split_node, len(sizes), rule)
    if sequence.is_graph_output():
        raise _make_error(split_node, "the sequence is an output of its graph", rule)
    data, builder = node.inputs[0], editor.make_builder(node)
    assert data is not None
    op_schema = schema("Split", editor.get_opset(node))
    explicit = Division(SizeRule.EXPLICIT, lengths=sizes)
    parts = builder.split_as(op_schema, explicit, data, axis, sizes)
    split = parts[0].producer()
    assert split is not None
    elements = [builder.squeeze(part, axis) for part in parts] if binding.squeeze else parts
    for consumer in consumers:
        read_elements(consumer, elements, editor)
    editor.remove(node)
    return split


def _compute_part_sizes(split_node: SplitNode) -> tuple[int, ...] | None:
    """Return the part sizes, or None if their number is unknown. Raise RuleError if it is out of range."""
    binding = split_node.bind()
    division, axis, shape = binding.division, binding.axis, binding.data.shape
    if division is None:
        return None
    size = None if shape is None or axis is None else shape[axis]
    if not isinstance(size, int) and not division.lengths:
        return None
    count = count_parts(division, size) if isinstance(size, int) else len(division.lengths)
    if not 1 <= count <= MAX_OUTPUTS:
        got, expected = f"the sequence has {count} parts", f"a Split returns 1 to {MAX_OUTPUTS}"
        raise rule_error(
            str(split_node.schema), Rule.PARTS_COUNT, got, expected, where=split_node.where, count=count
        )
    return compute_part_sizes(division, size, count) if isinstance(size, int) else division.lengths


def _check_consumer(consumer: ir.Node, split_node: SplitNode, count: int, rule: Rule) -> None:
    """Check that a consumer can read the ``count`` elements instead of the sequence."""
    if is_operator(consumer, "SequenceLength", "ConcatFromSequence"):
        return
    if not is_operator(consumer, "SequenceAt"):
        raise _make_error(split_node, f"{consumer.op_type} reads the sequence", rule)
    position = find_position(consumer)
    if position is None:
        raise _make_error(split_node, "SequenceAt reads a position that is not constant", rule)
    if not -count <= position < count:
        raise ModelError(
            f"SequenceAt reads position {position} of a sequence of {count} elements", split_node.where
        )


def _make_error(split_node: SplitNode, reason: str, rule: Rule) -> Exception:
    return rule_error(
        str(split_node.schema),
        rule,
        reason,
        "the target has no sequences: only constant positions, the length and the concatenation can be read",
        where=split_node.where,
    )
