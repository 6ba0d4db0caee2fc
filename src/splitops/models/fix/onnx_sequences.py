"""Rewrite sequences with a dynamic number of parts to use element types that onnxruntime supports."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.graph.onnx import find_type
from splitops.models.graph.onnx_editor import OnnxEditor, is_operator
from splitops.models.graph.onnx_sequences import find_consumers
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType

_CARRIERS: Final = {
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",  # Cast keeps the 64 bits in both directions
    "bfloat16": "float32",
}
"""Element types that onnxruntime supports in sequences, keyed by the type that they hold without loss."""


def cast_sequence(node: ir.Node, editor: OnnxEditor) -> ElementType:
    """Cast the data to its type in :data:`_CARRIERS`, and cast the used parts back to their own type.

    Return the new element type of the sequence.

    Raises:
        ModelError: there is no such type, or the sequence is a graph output or has other uses.
    """
    data, sequence = node.inputs[0], node.outputs[0]
    kind = None if data is None else find_type(data)
    carrier = _CARRIERS.get(kind.name) if kind is not None else None
    if data is None or kind is None or carrier is None:
        raise ModelError(f"no element type of sequences can hold {kind or 'an unknown type'}")
    readers = find_consumers(node.outputs[0])
    others = [reader for reader in readers if not is_operator(reader, *_ELEMENTS, "SequenceLength")]
    if sequence.is_graph_output() or others:
        who = others[0].op_type if others else "the caller"
        raise ModelError(f"the number of its parts is known only at run time, and {who} reads them")
    builder = editor.make_builder(node)
    inputs = [builder.cast(data, ELEMENT_TYPES[carrier]), *node.inputs[1:]]
    carried = builder.add(node.op_type, inputs, node.attributes, hint="carried")
    sequence.replace_all_uses_with(carried)
    builder.replace(node, [None])
    for reader in readers:
        if is_operator(reader, *_ELEMENTS):
            builder = editor.make_builder(reader)
            read = builder.add(reader.op_type, list(reader.inputs), reader.attributes)
            builder.replace(reader, [builder.cast(read, kind)])
    return ELEMENT_TYPES[carrier]


_ELEMENTS: Final = ("SequenceAt", "ConcatFromSequence")
