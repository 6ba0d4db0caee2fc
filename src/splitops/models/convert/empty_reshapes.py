"""Reshapes to sizes of 0, below the opset in which a Reshape can have them: there a 0 copies a size."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.onnx_adapter import NoAdapterError
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import shape_of, type_of
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.split_nodes.ways import get_onnx_types

_SINCE: Final = 10
"""The opset from which on a Slice takes the sizes as its bounds."""
_INT64_MAX: Final = (1 << 63) - 1


def write_empty_reshape(node: ir.Node, opset: int, names: FreshNames) -> None:
    """Replace a Reshape with allowzero by an If: with a size of 0, what has no elements is made.

    What the Reshape rejects is rejected too: data with elements, and a -1 beside a 0.

    Raises:
        NoAdapterError: there is no such form.
    """
    data, sizes = node.inputs
    assert data is not None
    assert sizes is not None
    kind, shape = type_of(data), shape_of(sizes)
    count = shape[0] if shape is not None and len(shape) == 1 else None
    known = "declare the sizes of the inputs, so that no size is 0"
    if opset < _SINCE:
        raise NoAdapterError(f"a size may be 0, for which opset {_SINCE} is needed: {known}")
    if not isinstance(count, int) or kind is None:
        raise NoAdapterError(f"a size may be 0, and the type of the data or the rank is unknown: {known}")
    made = get_onnx_types("ConstantOfShape", opset, "T2")
    if kind not in (made | get_onnx_types("Cast", opset, "T2")) & get_onnx_types("If", opset, "V"):
        raise NoAdapterError(f"a size may be 0, and no tensor of {kind} can be made: {known}")
    builder = OnnxOpBuilder(opset, names, make_stem(node))
    smallest = builder.op(
        "ReduceMin", [builder.op("Abs", [sizes])], {"axes": [0], "keepdims": 1}, hint="smallest"
    )
    none = builder.op("Equal", [smallest, builder.integers([0])], hint="is_empty")
    empty = OnnxOpBuilder(opset, names, make_stem(node))
    zeros = empty.op("Equal", [sizes, empty.integers([0])], hint="zeros")
    ones = empty.op("Where", [zeros, empty.integers([1]), sizes], hint="sizes")
    # As many elements as the sizes without zeros ask for: with one more of the data, they do not fit.
    number = empty.op("ReduceProd", [ones], {"axes": [0], "keepdims": 1}, hint="number")
    if kind in made:
        value = {"value": ir.tensor(np.zeros(1, kind.numpy))}
        filling = empty.op("ConstantOfShape", [number], value, hint="filling")
    else:
        value = {"value": ir.tensor(np.zeros(1, np.float32))}
        filling = empty.cast(empty.op("ConstantOfShape", [number], value), kind, "filling")
    flat = empty.op("Reshape", [data, empty.integers([-1])], hint="flat")
    filled = empty.op("Reshape", [empty.op("Concat", [flat, filling], {"axis": 0}), ones], hint="filled")
    begins, axes = empty.integers([0] * count), empty.integers(range(count))
    result = empty.op("Slice", [filled, begins, sizes, axes], hint="empty")
    stem = make_stem(node)
    plain = OnnxOpBuilder(opset, names, stem)
    reshaped = plain.op("Reshape", [data, sizes])
    branches = {
        "then_branch": ir.Graph([], [result], nodes=empty.nodes, name=names.make_name(f"{stem}_empty")),
        "else_branch": ir.Graph([], [reshaped], nodes=plain.nodes, name=names.make_name(f"{stem}_plain")),
    }
    for value_ in (result, reshaped):
        value_.type = ir.TensorType(ir.DataType(kind.onnx_number or 0))
    attributes = {name: ir.AttrGraph(name, graph) for name, graph in branches.items()}
    builder.replace(node, [builder.op("If", [none], attributes, hint="reshaped")])
