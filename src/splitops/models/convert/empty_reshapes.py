"""Reshapes with ``allowzero`` for opsets below 14, in which a 0 always copies a size of the data."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.onnx_adapter import NoAdapterError
from splitops.models.formats.walk import FreshNames, make_stem
from splitops.models.graph.onnx import find_shape, find_type
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.split_nodes.ways import get_onnx_types

_SINCE: Final = 10
"""The first opset whose Slice reads its bounds from inputs."""


def write_empty_reshape(node: ir.Node, opset: int, names: FreshNames) -> None:
    """Replace a Reshape that sets ``allowzero`` with an If that creates an empty tensor in one branch.

    Like the Reshape, this branch fails if the data are not empty, or if the shape has both a -1 and a 0.

    Raises:
        NoAdapterError: the opset or the element type does not allow this, or the type of the data or the rank
            of the result is unknown.
    """
    data, sizes = node.inputs
    assert data is not None
    assert sizes is not None
    kind, shape = find_type(data), find_shape(sizes)
    count = shape[0] if shape is not None and len(shape) == 1 else None
    advice = "declare the sizes of the inputs, so that no size is 0"
    if opset < _SINCE:
        raise NoAdapterError(f"a size may be 0, which requires opset {_SINCE} or later: {advice}")
    if not isinstance(count, int) or kind is None:
        raise NoAdapterError(f"a size may be 0, and the type of the data or the rank is unknown: {advice}")
    fillable = get_onnx_types("ConstantOfShape", opset, "T2")
    if kind not in (fillable | get_onnx_types("Cast", opset, "T2")) & get_onnx_types("If", opset, "V"):
        raise NoAdapterError(f"a size may be 0, but opset {opset} cannot create a {kind} tensor: {advice}")
    stem = make_stem(node)
    builder, empty = (OnnxOpBuilder(opset, names, stem) for _ in range(2))
    smallest = builder.add(
        "ReduceMin", [builder.add("Abs", [sizes])], {"axes": [0], "keepdims": 1}, hint="smallest"
    )
    is_empty = builder.add("Equal", [smallest, builder.add_ints([0])], hint="is_empty")
    zeros = empty.add("Equal", [sizes, empty.add_ints([0])], hint="zeros")
    ones = empty.add("Where", [zeros, empty.add_ints([1]), sizes], hint="sizes")
    # If the data are not empty, data and filling together have too many elements, and the Reshape fails.
    number = empty.add("ReduceProd", [ones], {"axes": [0], "keepdims": 1}, hint="number")
    value = ir.tensor(np.zeros(1, kind.numpy if kind in fillable else np.float32))
    filling = empty.add("ConstantOfShape", [number], {"value": value}, hint="filling")
    filling = filling if kind in fillable else empty.cast(filling, kind)
    flat = empty.add("Reshape", [data, empty.add_ints([-1])], hint="flat")
    filled = empty.add("Reshape", [empty.add("Concat", [flat, filling], {"axis": 0}), ones], hint="filled")
    begins, axes = empty.add_ints([0] * count), empty.add_ints(range(count))
    result = empty.add("Slice", [filled, begins, sizes, axes], hint="empty")
    plain = OnnxOpBuilder(opset, names, stem)
    reshaped = plain.add("Reshape", [data, sizes])
    branches = {}
    for name, output, nodes in (("then", result, empty.nodes), ("else", reshaped, plain.nodes)):
        output.type = ir.TensorType(ir.DataType(kind.onnx_number or 0))
        graph_name = names.make_name(f"{stem}_{name}")
        branches[f"{name}_branch"] = ir.Graph([], [output], nodes=nodes, name=graph_name)
    builder.replace(node, [builder.add("If", [is_empty], branches, hint="reshaped")])
