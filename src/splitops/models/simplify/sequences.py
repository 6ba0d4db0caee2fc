"""Rewrites of SplitToSequence by what reads the sequence."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import shape_of
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import find_consumers, position_of, read_elements, stacks
from splitops.models.graph.op_builder import annotate_like
from splitops.models.split_nodes.static_facts import SplitFacts
from splitops.spec.sizes.rules import SizeRule


def sequence_reads(node: ir.Node, editor: Editor) -> None:
    """What reads the sequence of a SplitToSequence reads the data, or a Split of it.

    SequenceLength becomes a constant, or the size of the axis; ConcatFromSequence that undoes the split
    becomes the data, another one a Concat; SequenceAt becomes Gather where the parts have size 1, also at
    computed positions, else a part of a Split. On an axis of unknown size, only what fails where the
    sequence would have failed is written: Gather at positions, Split by lengths. Nothing is written that
    takes more nodes. A split node that may be PyTorch's ``unbind``
    (:attr:`splitops.models.split_nodes.split_node.SplitNode.may_be_unbind`) is left as it is.
    """
    assert isinstance(editor, OnnxEditor)  # no other format has sequences
    cut, data = editor.read_split_facts(node), node.inputs[0]
    sequence = node.outputs[0]
    if cut is None or data is None:
        return
    before, where = editor.describe(node), editor.where(node)
    readers = find_consumers(sequence)
    work = _Work(node, data, cut, editor)
    done = [reader for reader in readers if cut.removable and work.needs_no_part(reader)]
    left = [reader for reader in readers if reader not in done]
    needless = not sequence.is_graph_output() and all(map(work.can_read_parts, left))
    # Without the sequence, a Split may are in its place.
    if not needless or sum(map(work.written, readers)) + work.splits(left) > len(readers) + 1:
        needless, left = False, []
        done = [reader for reader in done if work.written(reader) <= 1]
    for reader in done:
        work.without_parts(reader)
    # The rest is worth a Split only if the sequence is not needed any more.
    if left:
        work.read_parts(left)
        done = readers
    if not done and not (not readers and needless and cut.removable):
        return
    if needless:
        editor.remove(node)
    words = ", ".join(dict.fromkeys(reader.op_type for reader in done)) or "nothing"
    editor.applied(where, before, work.after(), f"{words} can read the parts without a sequence")


class _Work:
    """One SplitToSequence and its readers."""

    def __init__(self, node: ir.Node, data: ir.Value, cut: SplitFacts, editor: OnnxEditor) -> None:
        self.node = node
        self.data = data
        self.cut = cut
        self.editor = editor
        self.parts: list[ir.Value] = []
        self.made: list[str] = []
        self.count = None if cut.elements is None else len(cut.elements)

    def after(self) -> str:
        """Write what stands for the sequence now."""
        return ", ".join(dict.fromkeys(self.made)) or "nothing"

    # Readers that need no part

    def needs_no_part(self, reader: ir.Node) -> bool:
        """Return whether a reader needs no part of a split that cannot fail."""
        if is_operator(reader, "SequenceLength"):
            return self.count is not None or self.cut.division.rule is SizeRule.CHUNK
        return is_operator(reader, "ConcatFromSequence") and self._undoes(reader)

    def written(self, reader: ir.Node) -> int:
        """Return how many nodes are written for a reader, but the Split that several may share."""
        if is_operator(reader, "SequenceLength"):
            return 1 if self.count is not None else 2 if self.cut.division.chunk == 1 else 4
        if is_operator(reader, "SequenceAt"):
            if not self._gathers(reader):
                return 0
            return 1 if position_of(reader) is not None or self.cut.squeeze else 2
        return 0 if self.cut.removable and self._undoes(reader) else 1

    def splits(self, readers: list[ir.Node]) -> bool:
        """Return whether a Split is written for readers of which each :meth:`can_read_parts`."""
        if readers and not self.cut.removable:
            return True
        return not all(self._gathers(reader) or is_operator(reader, "SequenceLength") for reader in readers)

    def without_parts(self, reader: ir.Node) -> None:
        """Rewrite a reader that :meth:`needs_no_part`."""
        if is_operator(reader, "SequenceLength"):
            self._length(reader)
            return
        self.editor.replace(reader.outputs[0], self.data)
        self.editor.remove(reader)
        self.made.append(self.data.name or "its input")

    def _length(self, reader: ir.Node) -> None:
        editor, cut = self.editor, self.cut
        if self.count is not None:
            value = editor.constant_node(ir.tensor(np.array(self.count, np.int64)), reader)
        else:
            chunk = cut.division.chunk
            builder = editor.make_builder(reader)
            value = builder.size(self.data, builder.constant(np.array(cut.axis, np.int64)))
            if chunk > 1:
                value = builder.op("Add", [value, builder.constant(np.array(chunk - 1, np.int64))])
                value = builder.op("Div", [value, builder.constant(np.array(chunk, np.int64))])
        editor.substitute(reader, [value])
        self.made.append("its length")

    def _undoes(self, reader: ir.Node) -> bool:
        """Return whether a ConcatFromSequence gives the data again; of no elements, it would fail."""
        cut, size = self.cut, self.cut.size
        least = size if isinstance(size, int) else size.lo
        return (
            (least > 0 or bool(cut.parts))
            and self._axis(reader) == cut.axis
            and (stacks(reader) is cut.squeeze)
        )

    def _axis(self, reader: ir.Node) -> int | None:
        """Return the axis of a ConcatFromSequence, in the rank of what it gives."""
        attribute = reader.attributes.get("axis")
        if attribute is None or attribute.is_ref():
            return None
        rank = self.cut.rank - int(self.cut.squeeze) + int(stacks(reader) is True)
        axis = int(attribute.value)
        return axis % rank if -rank <= axis < rank else None

    # Readers of parts

    def can_read_parts(self, reader: ir.Node) -> bool:
        """Return whether a reader can read parts instead of the sequence."""
        cut = self.cut
        if is_operator(reader, "SequenceAt"):
            position = position_of(reader)
            if position is None:
                # Gather takes what SequenceAt takes, and fails where it does.
                index = reader.inputs[1]
                return self._single and index is not None and shape_of(index) == ()
            if self._single:
                # Gather fails where SequenceAt does; and of a known size, the position must be there.
                return self.count is None or -self.count <= position < self.count
            return bool(cut.parts) and -len(cut.parts) <= position < len(cut.parts)
        if is_operator(reader, "SequenceLength"):
            return bool(cut.parts)
        if is_operator(reader, "ConcatFromSequence"):
            plain = stacks(reader) is False and not cut.squeeze
            return plain and bool(cut.parts) and self._axis(reader) is not None
        return False

    @property
    def _single(self) -> bool:
        """Whether each element is one position of the axis, whatever its size."""
        return self.cut.division.rule is SizeRule.CHUNK and self.cut.division.chunk == 1

    def read_parts(self, readers: list[ir.Node]) -> None:
        """Rewrite readers of which each :meth:`can_read_parts`."""
        if not self.cut.removable:
            self._parts()  # it proves the lengths, whatever is read of it
        for reader in readers:
            if self._gathers(reader):
                self._gather(reader)
            elif is_operator(reader, "SequenceLength"):
                self._length(reader)
            else:
                read_elements(reader, self._parts(), self.editor)
                self.made += ["Concat"] if is_operator(reader, "ConcatFromSequence") else []

    def _gathers(self, reader: ir.Node) -> bool:
        """Return whether a SequenceAt becomes a Gather."""
        if not is_operator(reader, "SequenceAt") or not self._single:
            return False
        return self.cut.squeeze or not self.cut.parts or position_of(reader) is None

    def _gather(self, reader: ir.Node) -> None:
        editor, cut, builder = self.editor, self.cut, self.editor.make_builder(reader)
        position = position_of(reader)
        if position is not None:
            index = builder.constant(np.full(() if cut.squeeze else (1,), position, np.int64))
        else:
            scalar = reader.inputs[1]
            assert scalar is not None
            index = scalar if cut.squeeze else builder.reshape(scalar, (1,), (1,))
        part = builder.op("Gather", [self.data, index], {"axis": cut.axis})
        annotate_like(part, self.data, {cut.axis: None if cut.squeeze else 1})
        editor.substitute(reader, [part])
        self.made.append("Gather")

    def _parts(self) -> list[ir.Value]:
        if not self.parts:
            sizes = self.cut.sizes
            assert sizes is not None
            self.parts = self.editor.make_builder(self.node).split(
                self.data, self.cut.axis, self.cut.size, sizes
            )
            self.made.append(self.editor.describe_producer(self.parts[0]))
        return self.parts
