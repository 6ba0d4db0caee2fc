"""Rewrites of SplitToSequence and the nodes that use its sequence."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_shape
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import find_consumers, find_position, read_elements, read_new_axis
from splitops.models.graph.op_builder import annotate_like
from splitops.models.split_nodes.static_facts import SplitFacts
from splitops.spec.sizes.rules import SizeRule


def replace_sequences(node: ir.Node, editor: Editor) -> None:
    """Replace the sequence of a SplitToSequence with its data, or with a Split of the data.

    SequenceLength becomes a constant or is computed from the size of the axis. ConcatFromSequence becomes the
    data if it undoes the split, otherwise a Concat. SequenceAt becomes a part of a Split or, if parts of size
    1 lose their axis or their number or the position is unknown, a Gather. On an axis of unknown size, the
    new nodes must fail if the old ones would have failed, so a Gather or a Split with lengths selects the
    parts. The number of nodes never grows. A split node that may be PyTorch's ``unbind``
    (:attr:`splitops.models.split_nodes.split_node.SplitNode.may_be_unbind`) is not changed.
    """
    assert isinstance(editor, OnnxEditor)  # no other format has sequences
    facts, data = editor.read_split_facts(node), node.inputs[0]
    sequence = node.outputs[0]
    if facts is None or data is None:
        return
    before, where = editor.describe(node), editor.locate(node)
    readers = find_consumers(sequence)
    work = _Work(node, data, facts, editor)
    done = [reader for reader in readers if facts.removable and work.needs_no_part(reader)]
    remaining = [reader for reader in readers if reader not in done]
    needless = not sequence.is_graph_output() and all(map(work.can_read_parts, remaining))
    # A Split replaces the sequence only if the sequence is then unused and the number of nodes does not grow.
    if not needless or sum(map(work.count_nodes, readers)) + work.needs_split(remaining) > len(readers) + 1:
        needless, remaining = False, []
        done = [reader for reader in done if work.count_nodes(reader) <= 1]
    for reader in done:
        work.rewrite_without_parts(reader)
    if remaining:
        work.rewrite_with_parts(remaining)
        done = readers
    if not done and not (not readers and needless and facts.removable):
        return
    if needless:
        editor.remove(node)
    words = ", ".join(dict.fromkeys(reader.op_type for reader in done))
    reason = f"{words} can read the parts without a sequence" if words else "the sequence is not read"
    editor.record(where, before, work.describe(), reason)


class _Work:
    """Rewrites the nodes that use the sequence of a SplitToSequence. ``made`` describes the new nodes."""

    def __init__(self, node: ir.Node, data: ir.Value, facts: SplitFacts, editor: OnnxEditor) -> None:
        self.node = node
        self.data = data
        self.facts = facts
        self.editor = editor
        self.parts: list[ir.Value] = []
        self.made: list[str] = []
        self.count = None if facts.elements is None else len(facts.elements)

    def describe(self) -> str:
        """Return a description of the nodes that replace the sequence."""
        return ", ".join(dict.fromkeys(self.made)) or "nothing"

    # Readers that need no part

    def needs_no_part(self, reader: ir.Node) -> bool:
        """Return whether a node can be rewritten without any part, provided that the split cannot fail."""
        if is_operator(reader, "SequenceLength"):
            return self.count is not None or self.facts.division.rule is SizeRule.CHUNK
        return is_operator(reader, "ConcatFromSequence") and self._is_inverse(reader)

    def count_nodes(self, reader: ir.Node) -> int:
        """Return the number of nodes that replace a node, not counting the Split that all share."""
        if is_operator(reader, "SequenceLength"):
            return 1 if self.count is not None else 2 if self.facts.division.chunk == 1 else 4
        if is_operator(reader, "SequenceAt"):
            if not self._is_gather(reader):
                return 0
            return 1 if find_position(reader) is not None or self.facts.squeeze else 2
        return 0 if self.facts.removable and self._is_inverse(reader) else 1

    def needs_split(self, readers: list[ir.Node]) -> bool:
        """Return whether a Split must be added to rewrite nodes for which :meth:`can_read_parts` is true."""
        if readers and not self.facts.removable:
            return True
        return not all(self._is_gather(reader) or is_operator(reader, "SequenceLength") for reader in readers)

    def rewrite_without_parts(self, reader: ir.Node) -> None:
        """Rewrite a node for which :meth:`needs_no_part` is true."""
        if is_operator(reader, "SequenceLength"):
            self._rewrite_length(reader)
            return
        self.editor.replace(reader.outputs[0], self.data)
        self.editor.remove(reader)
        self.made.append(self.data.name or "its input")

    def _rewrite_length(self, reader: ir.Node) -> None:
        editor, facts = self.editor, self.facts
        if self.count is not None:
            value = editor.add_constant_node(ir.tensor(np.array(self.count, np.int64)), reader)
        else:
            chunk = facts.division.chunk
            builder = editor.make_builder(reader)
            value = builder.add_size(self.data, builder.add_constant(np.array(facts.axis, np.int64)))
            if chunk > 1:
                value = builder.add("Add", [value, builder.add_constant(np.array(chunk - 1, np.int64))])
                value = builder.add("Div", [value, builder.add_constant(np.array(chunk, np.int64))])
        editor.substitute(reader, [value])
        self.made.append("its length")

    def _is_inverse(self, reader: ir.Node) -> bool:
        """Return whether a ConcatFromSequence always undoes the split. It fails if the sequence is empty."""
        facts, size = self.facts, self.facts.size
        least = size if isinstance(size, int) else size.lo
        return (
            (least > 0 or bool(facts.parts))
            and self._read_axis(reader) == facts.axis
            and (read_new_axis(reader) is facts.squeeze)
        )

    def _read_axis(self, reader: ir.Node) -> int | None:
        """Return the non-negative axis of a ConcatFromSequence, or None if it is unknown or out of range."""
        attribute = reader.attributes.get("axis")
        if attribute is None or attribute.is_ref():
            return None
        rank = self.facts.rank - int(self.facts.squeeze) + int(read_new_axis(reader) is True)
        axis = int(attribute.value)
        return axis % rank if -rank <= axis < rank else None

    # Readers of parts

    def can_read_parts(self, reader: ir.Node) -> bool:
        """Return whether a node can use parts instead of the sequence."""
        facts = self.facts
        if is_operator(reader, "SequenceAt"):
            position = find_position(reader)
            if position is None:
                # Gather accepts the same positions as SequenceAt.
                index = reader.inputs[1]
                return self._single and index is not None and find_shape(index) == ()
            if self._single:
                # Gather rejects the same positions as SequenceAt. With a known size, the position must exist.
                return self.count is None or -self.count <= position < self.count
            return bool(facts.parts) and -len(facts.parts) <= position < len(facts.parts)
        if is_operator(reader, "SequenceLength"):
            return bool(facts.parts)
        if is_operator(reader, "ConcatFromSequence"):
            plain = read_new_axis(reader) is False and not facts.squeeze
            return plain and bool(facts.parts) and self._read_axis(reader) is not None
        return False

    @property
    def _single(self) -> bool:
        """Whether each element is one position of the axis, for every size of the axis."""
        return self.facts.division.rule is SizeRule.CHUNK and self.facts.division.chunk == 1

    def rewrite_with_parts(self, readers: list[ir.Node]) -> None:
        """Rewrite nodes for which :meth:`can_read_parts` is true."""
        if not self.facts.removable:
            self._get_parts()  # the Split checks the lengths, even if no part is used
        for reader in readers:
            if self._is_gather(reader):
                self._write_gather(reader)
            elif is_operator(reader, "SequenceLength"):
                self._rewrite_length(reader)
            else:
                read_elements(reader, self._get_parts(), self.editor)
                self.made += ["Concat"] if is_operator(reader, "ConcatFromSequence") else []

    def _is_gather(self, reader: ir.Node) -> bool:
        """Return whether a node is a SequenceAt that becomes a Gather."""
        if not is_operator(reader, "SequenceAt") or not self._single:
            return False
        return self.facts.squeeze or not self.facts.parts or find_position(reader) is None

    def _write_gather(self, reader: ir.Node) -> None:
        editor, facts, builder = self.editor, self.facts, self.editor.make_builder(reader)
        position = find_position(reader)
        if position is not None:
            index = builder.add_constant(np.full(() if facts.squeeze else (1,), position, np.int64))
        else:
            scalar = reader.inputs[1]
            assert scalar is not None
            index = scalar if facts.squeeze else builder.reshape(scalar, (1,), (1,))
        part = builder.add("Gather", [self.data, index], {"axis": facts.axis})
        annotate_like(part, self.data, {facts.axis: None if facts.squeeze else 1})
        editor.substitute(reader, [part])
        self.made.append("Gather")

    def _get_parts(self) -> list[ir.Value]:
        if not self.parts:
            sizes = self.facts.sizes
            assert sizes is not None
            self.parts = self.editor.make_builder(self.node).split(
                self.data, self.facts.axis, self.facts.size, sizes
            )
            self.made.append(self.editor.describe_producer(self.parts[0]))
        return self.parts
