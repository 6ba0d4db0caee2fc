"""Gather, which selects positions along an axis."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import AbstractTensor, Value
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_integer,
    infer_result,
)
from splitops.models.ops.shapes import gather, normalise_axis
from splitops.models.ops.writing import NodeWriter, as_positions


def _infer(operands: Operands) -> AbstractTensor:
    shape = operands.get_shape()
    axis = normalise_axis(operands.get_integer("axis"), len(shape))

    def take() -> Value:
        data, positions = operands.get_elements(), operands.get_complete_elements("indices").astype(np.int64)
        size = data.shape[axis]
        if ((positions < (-size if operands["counts_back"] else 0)) | (positions >= size)).any():
            raise Unknown("outside: zeros, or an error")
        return np.asarray(np.take(data, positions, axis=axis))

    return infer_result(operands.get_tensor(), gather(shape, axis, operands.get_shape("indices")), take)


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    # Indices outside the axis are not preserved: OpenVINO returns zeros, ONNX fails or counts from the end.
    del operands["counts_back"]
    return {**operands, "indices": as_positions(writer, operands["indices"])}


_AXIS: Final = {"axis": Attribute(as_integer, 0)}
_ALONE: Final = {"batch_dims": 0}
_FROM_END, _FROM_START = {"counts_back": True}, {"counts_back": False}
GATHER: Final = Operator(
    onnx=(Spelling("Gather", "data indices", _AXIS, fixed=_FROM_END),),
    openvino=(
        Spelling("Gather", "data indices axis", since=8, fixed=_FROM_END, demands=_ALONE, versions=(8,)),
        Spelling("Gather", "data indices axis", fixed=_FROM_START, demands=_ALONE, versions=(1, 7)),
    ),
    role=Role.GATHER,
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
)
