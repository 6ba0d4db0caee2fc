"""What reads a sequence of an ONNX graph, and how it reads the elements instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.graph.onnx import fixed_array, type_of
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.pen import OnnxPen
from splitops.models.sites.site import UNBIND_REPAIRS, Site
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.sizes.rules import SizeRule


def readers_of(sequence: ir.Value) -> list[ir.Node]:
    """Return the nodes that read a sequence, each once."""
    return list(dict.fromkeys(use.node for use in sequence.uses()))


def position_of(reader: ir.Node) -> int | None:
    """Return the position that a SequenceAt reads; None of other nodes, and where only a run knows it."""
    if not is_operator(reader, "SequenceAt") or len(reader.inputs) < 2:
        return None
    array = fixed_array(reader.inputs[1])
    return int(array.reshape(())) if array is not None and array.size == 1 else None


def stacks(reader: ir.Node) -> bool | None:
    """Return whether a ConcatFromSequence gives its elements a new axis; None where that is not known."""
    attribute = reader.attributes.get("new_axis")
    if attribute is None:
        return False
    return None if attribute.is_ref() or attribute.value not in (0, 1) else bool(attribute.value)


def read_elements(reader: ir.Node, elements: Sequence[ir.Value], editor: OnnxEditor) -> None:
    """Let a reader of a sequence read its elements instead: one, their number, or all joined."""
    if is_operator(reader, "SequenceAt"):
        position = position_of(reader)
        assert position is not None
        editor.replace(reader.outputs[0], elements[position])
        editor.remove(reader)
        return
    if is_operator(reader, "SequenceLength"):
        made = editor.constant_node(ir.tensor(np.array(len(elements), np.int64)), reader)
    else:
        axis, pen = int(reader.attributes["axis"].value), editor.pen(reader)
        if stacks(reader):
            elements = [pen.unsqueeze(element, axis) for element in elements]
        made = pen.concat(elements, axis)
    editor.substitute(reader, [made])


def slice_elements(node: ir.Node, site: Site, editor: OnnxEditor) -> int:
    """Replace each SequenceAt at a constant position by a Slice of the data; return how many nodes read it.

    SequenceLength becomes the number of parts. A position outside of the sequence gives an empty part, not
    an error.

    Raises:
        ModelError: more is read of the sequence, and nothing has changed.
    """
    if site.may_be_unbind:
        raise ModelError(f"chunks of 1 with keepdims = 0 have two meanings; {UNBIND_REPAIRS}")
    data, lengths = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    axis = None if site.binding is None else site.binding.axis
    given, readers = site.lengths, readers_of(node.outputs[0])
    if axis is None or data is None or lengths is None or given is None or given.shape is None:
        raise ModelError("how it is divided is not known before the model runs")
    positions = {reader: position_of(reader) for reader in readers}
    others = [one for one in readers if positions[one] is None and not is_operator(one, "SequenceLength")]
    if node.outputs[0].is_graph_output() or others:
        raise ModelError("more reads its sequence than constant positions and its length")
    for reader, at in positions.items():
        parts = _Parts(data, axis, lengths, site, editor.pen(reader))
        pen = parts.pen
        if at is None:
            pen.replace(reader, [pen.op("Reshape", [parts.number(), pen.integers([])], hint="number")])
        else:
            pen.replace(reader, [pen.part(data, axis, *parts.bounds(at))])
    editor.remove(node)
    return len(readers)


class _Parts:
    """The parts of a SplitToSequence, whose numbers a graph computes: values of shape [1]."""

    def __init__(self, data: ir.Value, axis: int, lengths: ir.Value, site: Site, pen: OnnxPen) -> None:
        self.pen = pen
        self._data, self._axis = data, axis
        division = None if site.binding is None else site.binding.division
        self._chunk = division.chunk if division is not None and division.rule is SizeRule.CHUNK else None
        self._is_list = site.lengths is None or site.lengths.shape != ()
        self._lengths = lengths

    def _numbers(self) -> ir.Value:
        """Return the lengths as int64."""
        lengths = self._lengths
        return lengths if type_of(lengths) is INT64 else self.pen.cast(lengths, INT64, "lengths")

    def _size_of_chunks(self) -> ir.Value:
        pen = self.pen
        if self._chunk is not None:
            return pen.integers([self._chunk])
        return pen.op("Reshape", [self._numbers(), pen.integers([1])], hint="chunk")

    def number(self) -> ir.Value:
        """Return the number of parts."""
        pen = self.pen
        if self._is_list:
            return pen.op("Shape", [self._lengths], hint="number")
        chunk = self._size_of_chunks()
        last = pen.op("Sub", [pen.size(self._data, pen.integers([self._axis])), pen.integers([1])])
        return pen.op("Div", [pen.op("Add", [last, chunk]), chunk], hint="number")

    def bounds(self, at: int) -> tuple[int | ir.Value, int | ir.Value]:
        """Return begin and end of the part at a position."""
        pen = self.pen
        if self._is_list:
            lengths = self._numbers()
            position = self._position(at)
            before = pen.op("Slice", [lengths, pen.integers([0]), position], hint="before")
            length = pen.op("Gather", [lengths, position], {"axis": 0}, hint="length")
            begin = pen.op("ReduceSum", [before], {"keepdims": 1})
            return begin, pen.op("Add", [begin, length])
        if at >= 0 and self._chunk is not None:
            return at * self._chunk, (at + 1) * self._chunk
        chunk = self._size_of_chunks()
        if at >= 0:
            begin = pen.op("Mul", [chunk, pen.integers([at])])
            return begin, pen.op("Add", [begin, chunk])
        begin = pen.op("Mul", [pen.op("Add", [self.number(), pen.integers([at])]), chunk])
        return self._clamped(begin), self._clamped(pen.op("Add", [begin, chunk]))

    def _position(self, at: int) -> ir.Value:
        """Return the position of a length from the front, as every opset takes it.

        In the place of one before the first length is one behind the last: a Gather of it fails too.
        """
        pen = self.pen
        if at >= 0:
            return pen.integers([at])
        number = self.number()
        position = pen.op("Add", [number, pen.integers([at])])
        return pen.op("Where", [pen.op("Less", [position, pen.integers([0])]), number, position])

    def _clamped(self, bound: ir.Value) -> ir.Value:
        """Return a bound that is not counted from the end: one before the data is its begin."""
        zero = self.pen.integers([0])
        return self.pen.op("Where", [self.pen.op("Less", [bound, zero]), zero, bound])


INT64: Final = ELEMENT_TYPES["int64"]
