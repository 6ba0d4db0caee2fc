"""Operators other than splits that splitops understands, one file per operator or family.

The tables define how ONNX and OpenVINO write an operator, and how it is inferred and folded. Inference,
conversions in both directions, simplification and the op builders use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from splitops.models.formats.openvino.splits import parse_operation_set
from splitops.models.ops.arithmetic import ARITHMETIC_OF_SIZES
from splitops.models.ops.concat import CONCAT
from splitops.models.ops.convert import CONVERT, CONVERT_LIKE
from splitops.models.ops.copying import COPYING
from splitops.models.ops.elementwise import ELEMENTWISE
from splitops.models.ops.gather import GATHER
from splitops.models.ops.matrices import MATRICES
from splitops.models.ops.onnx_only import ONNX_ONLY
from splitops.models.ops.operator import Operator, Spelling
from splitops.models.ops.positions import POSITIONS
from splitops.models.ops.reductions import REDUCTIONS
from splitops.models.ops.reshape import FLATTEN, RESHAPE
from splitops.models.ops.shape import SHAPE, SIZE
from splitops.models.ops.slice import SLICE, STRIDED_SLICE
from splitops.models.ops.squeeze import SQUEEZE, UNSQUEEZE
from splitops.models.ops.transpose import TRANSPOSE
from splitops.models.ops.windows import WINDOWS

OPERATORS: Final[tuple[Operator, ...]] = (
    *(CONCAT, CONVERT, CONVERT_LIKE, FLATTEN, GATHER, RESHAPE, SHAPE, SIZE, SLICE, SQUEEZE, STRIDED_SLICE),
    *(TRANSPOSE, UNSQUEEZE, *ARITHMETIC_OF_SIZES, *COPYING, *ELEMENTWISE, *MATRICES, *ONNX_ONLY),
    *(*POSITIONS, *REDUCTIONS, *WINDOWS),
)
"""All operators of this package. Splits and control flow are not among them."""

BY_NODE: Final[Mapping[str, Operator]] = {
    spelling.name: operator for operator in OPERATORS for spelling in operator.onnx
}
"""Operators, keyed by their names in ONNX."""
BY_LAYER: Final[Mapping[str, Operator]] = {
    spelling.name: operator for operator in OPERATORS for spelling in operator.openvino
}
"""Operators, keyed by their names in OpenVINO."""


@lru_cache(maxsize=1024)  # bounded, because names come from files
def find_node_spelling(name: str, opset: int) -> tuple[Operator, Spelling] | None:
    """Return the operator of a node and its :class:`Spelling` at an opset, or None if there is none."""
    operator = BY_NODE.get(name)
    return None if operator is None else _find(operator, operator.onnx, name, opset)


@lru_cache(maxsize=1024)
def find_layer_spelling(name: str, version: str) -> tuple[Operator, Spelling] | None:
    """Return a layer's operator and its :class:`Spelling` in an operation set, or None if there is none."""
    operator, number = BY_LAYER.get(name), parse_operation_set(version)
    if operator is None or number is None:
        return None
    return _find(operator, operator.openvino, name, number)


def _find(
    operator: Operator, spellings: Sequence[Spelling], name: str, version: int
) -> tuple[Operator, Spelling] | None:
    found = (one for one in spellings if one.since <= version and one.name == name)
    return next(((operator, spelling) for spelling in found), None)
