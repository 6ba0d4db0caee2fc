"""Infer the outputs of a node or layer with its operator in :mod:`splitops.models.ops`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import MAX_ELEMENTS, NOTHING, AbstractTensor, AbstractValue
from splitops.models.ops.operator import Operands, Operator, Spelling, Unknown
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.sizes.dims import to_exact

_TRACKED: Final = frozenset({"bool", "float16", "float32", "float64"})
_FOLDED_BY_OPENVINO: Final = frozenset({"bool", "int32", "int64", "float16", "float32"})
"""Types for which outputs of layers are computed. Narrow integers, for example, may wrap or saturate."""


def is_tracked(kind: ElementType | None) -> bool:
    """Return whether inference tracks elements of a type."""
    return kind is not None and (kind.integer or kind.name in _TRACKED)


def infer_operator(
    operator: Operator,
    spelling: Spelling,
    attributes: Mapping[str, Any],
    inputs: Sequence[AbstractValue],
    count: int,
    *,
    of_layer: bool,
) -> list[AbstractTensor]:
    """Infer the outputs of a node. They are unknown if too little is known or its operands do not match.

    Args:
        operator: operator of the node.
        spelling: how the version of the node maps operands to inputs and attributes.
        attributes: attributes of the node, as numbers or as text of IR.
        inputs: abstract inputs of the node. An absent input is None.
        count: number of outputs of the node.
        of_layer: whether the node is an OpenVINO layer.
    """
    try:
        operands = Operands(spelling.read(attributes, inputs), of_layer=of_layer)
        inferred = operator.infer(operands)
    except Unknown:
        return [NOTHING] * count
    found = ([inferred] if isinstance(inferred, AbstractTensor) else [*inferred])[:count]
    if operator.fold is not None and not all(tensor.is_complete for tensor in found):
        found = _fold(operator, operands, inputs, found) or found
    return [*found, *[NOTHING] * (count - len(found))]


def _fold(
    operator: Operator, operands: Operands, inputs: Sequence[AbstractValue], outputs: Sequence[AbstractTensor]
) -> list[AbstractTensor] | None:
    """Compute the outputs.

    Return None if this fails, an input is unknown or has a type that is not folded for layers, or an output
    may be too large.
    """
    for tensor in outputs:
        exact = to_exact(tensor.shape)
        if exact is None or math.prod(exact) > MAX_ELEMENTS:
            return None
    arrays = []
    for value in inputs:
        if value is None:
            continue
        array = value.to_array() if isinstance(value, AbstractTensor) else None
        if array is None or (operands.of_layer and array.dtype.name not in _FOLDED_BY_OPENVINO):
            return None
        arrays.append(array)
    assert operator.fold is not None
    try:
        with np.errstate(all="raise" if operands.of_layer else "ignore"):
            result = operator.fold(operands, *arrays)
    except (ValueError, IndexError, ArithmeticError):  # Unknown, and the errors of NumPy
        return None
    computed = [np.asarray(array) for array in (result if isinstance(result, tuple) else (result,))]
    folded = []
    for array, tensor in zip(computed, outputs, strict=False):
        kind = tensor.type or element_type_of(array.dtype)
        if array.size > MAX_ELEMENTS or element_type_of(array.dtype) is not kind:
            return None
        folded.append(AbstractTensor(kind, array.shape, array))
    return folded
