"""Replace uses of a sequence in an ONNX graph with uses of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.graph.onnx import find_elements, find_type
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.split_nodes.split_node import UNBIND_REPAIRS, SplitNode
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.sizes.rules import SizeRule


def find_consumers(sequence: ir.Value) -> list[ir.Node]:
    """Return the nodes that use a sequence, each once."""
    return list(dict.fromkeys(use.node for use in sequence.uses()))


def find_position(reader: ir.Node) -> int | None:
    """Return the position of a SequenceAt, or None if it is not constant or the node is another operator."""
    if not is_operator(reader, "SequenceAt") or len(reader.inputs) < 2:
        return None
    array = find_elements(reader.inputs[1])
    return int(array.reshape(())) if array is not None and array.size == 1 else None


def read_new_axis(reader: ir.Node) -> bool | None:
    """Return whether a ConcatFromSequence stacks its elements, or None if that is unknown or invalid."""
    attribute = reader.attributes.get("new_axis")
    if attribute is None:
        return False
    return None if attribute.is_ref() or attribute.value not in (0, 1) else bool(attribute.value)


def read_elements(reader: ir.Node, elements: Sequence[ir.Value], editor: OnnxEditor) -> None:
    """Replace a SequenceAt, SequenceLength or ConcatFromSequence, given the elements of its sequence."""
    if is_operator(reader, "SequenceAt"):
        position = find_position(reader)
        assert position is not None
        editor.replace(reader.outputs[0], elements[position])
        editor.remove(reader)
        return
    if is_operator(reader, "SequenceLength"):
        result = editor.add_constant_node(ir.tensor(np.array(len(elements), np.int64)), reader)
    else:
        axis, builder = int(reader.attributes["axis"].value), editor.make_builder(reader)
        if read_new_axis(reader):
            elements = [builder.unsqueeze(element, axis) for element in elements]
        result = builder.concatenate(elements, axis)
    editor.substitute(reader, [result])


def slice_elements(node: ir.Node, split_node: SplitNode, editor: OnnxEditor) -> int:
    """Replace a SplitToSequence with a Slice for each SequenceAt. Return the number of replaced consumers.

    SequenceLength becomes the number of parts. With a chunk size, a position outside of the sequence returns
    an empty part instead of an error.

    Raises:
        ModelError: the sequence has other consumers, the split is ambiguous or has no lengths, or the axis or
            the rank of the lengths is unknown. The model is unchanged.
    """
    if split_node.may_be_unbind:
        raise ModelError(f"chunks of 1 with keepdims = 0 are ambiguous; {UNBIND_REPAIRS}")
    data, lengths = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    axis, fact, readers = split_node.axis, split_node.lengths, find_consumers(node.outputs[0])
    if axis is None or data is None or lengths is None or fact is None or fact.shape is None:
        raise ModelError("its axis or the rank of its lengths is known only at run time")
    positions = {reader: find_position(reader) for reader in readers}
    others = [n for n, at in positions.items() if at is None and not is_operator(n, "SequenceLength")]
    if node.outputs[0].is_graph_output() or others:
        raise ModelError("its sequence is used for more than its length and constant positions")
    for reader, at in positions.items():
        parts = _Parts(data, axis, lengths, split_node, editor.make_builder(reader))
        builder = parts.builder
        if at is None:
            builder.replace(
                reader, [builder.add("Reshape", [parts.count(), builder.add_ints([])], hint="number")]
            )
        else:
            builder.replace(reader, [builder.slice_axis(data, axis, *parts.compute_bounds(at))])
    editor.remove(node)
    return len(readers)


class _Parts:
    """Adds nodes for the number and the bounds of parts of a SplitToSequence. The values have shape [1]."""

    def __init__(
        self, data: ir.Value, axis: int, lengths: ir.Value, split_node: SplitNode, builder: OnnxOpBuilder
    ) -> None:
        self.builder = builder
        self._data, self._axis = data, axis
        division = split_node.division
        self._chunk = division.chunk if division is not None and division.rule is SizeRule.CHUNK else None
        self._is_list = split_node.lengths is None or split_node.lengths.shape != ()
        self._lengths = lengths

    def _cast_lengths(self) -> ir.Value:
        """Return the lengths as an int64 value."""
        lengths = self._lengths
        return lengths if find_type(lengths) is INT64 else self.builder.cast(lengths, INT64, "lengths")

    def _get_chunk_size(self) -> ir.Value:
        builder = self.builder
        if self._chunk is not None:
            return builder.add_ints([self._chunk])
        return builder.add("Reshape", [self._cast_lengths(), builder.add_ints([1])], hint="chunk")

    def count(self) -> ir.Value:
        """Return the number of parts."""
        builder = self.builder
        if self._is_list:
            return builder.add("Shape", [self._lengths], hint="number")
        chunk = self._get_chunk_size()
        last = builder.add(
            "Sub", [builder.add_size(self._data, builder.add_ints([self._axis])), builder.add_ints([1])]
        )
        return builder.add("Div", [builder.add("Add", [last, chunk]), chunk], hint="number")

    def compute_bounds(self, at: int) -> tuple[int | ir.Value, int | ir.Value]:
        """Return the bounds of the part with index ``at``, which may be negative."""
        builder = self.builder
        if self._is_list:
            lengths = self._cast_lengths()
            position = self._compute_position(at)
            before = builder.add("Slice", [lengths, builder.add_ints([0]), position], hint="before")
            length = builder.add("Gather", [lengths, position], {"axis": 0}, hint="length")
            begin = builder.add("ReduceSum", [before], {"keepdims": 1})
            return begin, builder.add("Add", [begin, length])
        if at >= 0 and self._chunk is not None:
            return at * self._chunk, (at + 1) * self._chunk
        chunk = self._get_chunk_size()
        if at >= 0:
            begin = builder.add("Mul", [chunk, builder.add_ints([at])])
            return begin, builder.add("Add", [begin, chunk])
        begin = builder.add("Mul", [builder.add("Add", [self.count(), builder.add_ints([at])]), chunk])
        return self._clamp(begin), self._clamp(builder.add("Add", [begin, chunk]))

    def _compute_position(self, at: int) -> ir.Value:
        """Convert the index of a length to a non-negative one, because older opsets reject negative indices.

        An index before the first length becomes the index past the last, so that a Gather fails there, too.
        """
        builder = self.builder
        if at >= 0:
            return builder.add_ints([at])
        number = self.count()
        position = builder.add("Add", [number, builder.add_ints([at])])
        return builder.add(
            "Where", [builder.add("Less", [position, builder.add_ints([0])]), number, position]
        )

    def _clamp(self, bound: ir.Value) -> ir.Value:
        """Replace a negative bound with 0, because a Slice would count it from the end."""
        zero = self.builder.add_ints([0])
        return self.builder.add("Where", [self.builder.add("Less", [bound, zero]), zero, bound])


INT64: Final = ELEMENT_TYPES["int64"]
