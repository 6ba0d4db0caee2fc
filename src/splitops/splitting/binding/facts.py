"""Facts: partial knowledge about one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitops.common.json_values import record
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.sizes.dims import Shape

Number = int | float


@record
class Fact:
    """Partial knowledge about one input.

    Attributes:
        type: element type; None if it is unknown.
        shape: shape; None if the rank is unknown.
        value: elements, needed only for axis and lengths: a number for a scalar, or a tuple for a 1-D
            tensor, with None for unknown elements; None if all are unknown.
    """

    type: ElementType | None = None
    shape: Shape | None = None
    value: Number | tuple[Number | None, ...] | None = None


def make_fact(array: np.ndarray[Any, Any], *, value: bool) -> Fact:
    """Return the facts about an array. With ``value``, they include the elements if the rank is 0 or 1.

    With ``value``, an array with masked elements gets a type that no operator accepts.
    """
    numbers: Any = None
    if value and isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        return Fact(make_unknown_type(f"masked {array.dtype}"), array.shape)
    if value and array.ndim <= 1:
        numbers = array.tolist()
        if array.ndim:
            numbers = tuple(numbers)
    return Fact(element_type_of(array.dtype) or make_unknown_type(str(array.dtype)), array.shape, numbers)


def make_unknown_type(name: str) -> ElementType:
    """Make a type, accepted by no operator, for a dtype that neither ONNX nor OpenVINO has."""
    return ElementType(name, bits=0)
