"""The forms of sequences whose number of parts only a run knows, by what reads them."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from splitops.models.fix.rounds import NoFormError
from splitops.models.graph.onnx import type_of
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import position_of, readers_of
from splitops.models.graph.pen import OnnxPen
from splitops.models.sites.site import UNBIND_REPAIRS, Site
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

_INT64: Final = ELEMENT_TYPES["int64"]
_CARRIERS: Final = {
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",  # by bits: Cast keeps the low 64, there and back
    "bfloat16": "float32",
}
"""Types that hold every value of another one, and of which onnxruntime has sequences."""


def carry(node: ir.Node, editor: OnnxEditor) -> ElementType:
    """Change the element type of a sequence, and cast back where it is read; return the new type."""
    data, sequence = node.inputs[0], node.outputs[0]
    kind = None if data is None else type_of(data)
    carrier = _CARRIERS.get(kind.name) if kind is not None else None
    if data is None or kind is None or carrier is None:
        raise NoFormError(f"no type of sequences holds {kind}")
    readers = readers_of(node.outputs[0])
    others = [reader for reader in readers if not is_operator(reader, *_ELEMENTS, "SequenceLength")]
    if sequence.is_graph_output() or others:
        who = others[0].op_type if others else "the caller"
        raise NoFormError(f"the number of its parts is known only when the model runs, and {who} reads them")
    pen = editor.pen(node)
    inputs = [pen.cast(data, ELEMENT_TYPES[carrier]), *node.inputs[1:]]
    carried = pen.op(node.op_type, inputs, node.attributes, hint="carried")
    sequence.replace_all_uses_with(carried)
    pen.replace(node, [None])
    for reader in readers:
        if is_operator(reader, *_ELEMENTS):
            pen = editor.pen(reader)
            read = pen.op(reader.op_type, list(reader.inputs), reader.attributes)
            pen.replace(reader, [pen.cast(read, kind)])
    return ELEMENT_TYPES[carrier]


_ELEMENTS: Final = ("SequenceAt", "ConcatFromSequence")


def slice_elements(node: ir.Node, site: Site, editor: OnnxEditor) -> int:
    """Replace each SequenceAt at a constant position by a Slice of the data; return their number."""
    if site.may_be_unbind:
        raise NoFormError(f"chunks of 1 with keepdims = 0 have two meanings; {UNBIND_REPAIRS}")
    data, lengths = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    axis = None if site.binding is None else site.binding.axis
    given, readers = site.lengths, readers_of(node.outputs[0])
    if axis is None or data is None or lengths is None or given is None or given.shape is None:
        raise NoFormError("how it is divided is not known before the model runs")
    positions = {reader: position_of(reader) for reader in readers}
    if node.outputs[0].is_graph_output() or any(at is None or at < 0 for at in positions.values()):
        raise NoFormError("more reads its sequence than constant positions from the front")
    for reader, at in positions.items():
        assert at is not None
        pen = editor.pen(reader)
        numbers = lengths if type_of(lengths) is _INT64 else pen.cast(lengths, _INT64, "lengths")
        begin, end = _bounds(numbers, at, pen, chunk=given.shape == ())
        pen.replace(reader, [pen.part(data, axis, begin, end)])
    editor.remove(node)
    return len(readers)


def _bounds(lengths: ir.Value, at: int, pen: OnnxPen, *, chunk: bool) -> tuple[ir.Value, ir.Value]:
    """Return begin and end of a part, of shape [1]: of chunks of one size, or of parts of many lengths."""
    if chunk:
        size = pen.op("Reshape", [lengths, pen.integers([1])], hint="chunk")
        begin = pen.op("Mul", [size, pen.integers([at])])
        return begin, pen.op("Add", [begin, size])
    before = pen.op("Slice", [lengths, pen.integers([0]), pen.integers([at])], hint="before")
    length = pen.op("Gather", [lengths, pen.integers([at])], {"axis": 0}, hint="length")
    begin = pen.op("ReduceSum", [before], {"keepdims": 1})
    return begin, pen.op("Add", [begin, length])
