"""What reads a sequence of an ONNX graph, and how it reads the elements instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from splitops.models.graph.onnx import fixed_array
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator


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
