"""Concat, which concatenates tensors along an axis."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, Value, make_partial_value
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_integer,
    get_entries,
    get_shape,
    infer_result,
)
from splitops.models.ops.shapes import concatenate
from splitops.models.ops.writing import NodeWriter, require


def _infer(operands: Operands) -> AbstractTensor:
    tensors, axis = operands.get_tensors(), operands["axis"]

    def join() -> Value:
        # The elements of a short tensor that is not tracked are unknown, but their number is not.
        arrays = [
            make_partial_value(get_entries(one)) if one.elements is None else one.elements for one in tensors
        ]
        return np.concatenate([array.astype(object) for array in arrays], axis=axis)

    types = {one.type for one in tensors} - {None}
    if len(types) > 1:
        raise Unknown("the element types differ")
    shape = concatenate([get_shape(one) for one in tensors], axis)
    tracked = next((one for one in tensors if one.elements is not None), AbstractTensor())
    return infer_result(tracked, shape, join, types.pop() if types else None)


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    types = {str(kind) for value in operands["values"] if (kind := writer.find_type(value)) is not None}
    require(writer, len(types) < 2, f"joins {' and '.join(sorted(types))}")
    return operands


_AXIS: Final = {"axis": Attribute(as_integer)}
CONCAT: Final = Operator(
    onnx=(
        Spelling("Concat", "values*", _AXIS, since=4),
        Spelling("Concat", "values*", {"axis": Attribute(as_integer, 1)}),
    ),
    openvino=(Spelling("Concat", "values*", _AXIS),),
    role=Role.CONCAT,
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
)
