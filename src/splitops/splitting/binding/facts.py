"""What is known of one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitops.ground.records import record
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.sizes.dims import Shape

Number = int | float


@record
class Fact:
    """What is known of one input.

    Attributes:
        type: its element type; None is unknown.
        shape: its shape; None where even the rank is unknown.
        value: the numbers in it, needed of axis and lengths alone: one number for a scalar, a tuple for a
            1-D tensor (an entry that is not known is None); None is unknown.
    """

    type: ElementType | None = None
    shape: Shape | None = None
    value: Number | tuple[Number | None, ...] | None = None


def fact_of(array: np.ndarray[Any, Any], *, value: bool) -> Fact:
    """Return what an array says of an input, its numbers included where asked (of rank 0 and 1)."""
    numbers: Any = None
    if value and isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        return Fact(foreign_type(f"masked {array.dtype}"), array.shape)
    if value and array.ndim <= 1:
        numbers = array.tolist()
        if array.ndim:
            numbers = tuple(numbers)
    return Fact(element_type_of(array.dtype) or foreign_type(str(array.dtype)), array.shape, numbers)


def foreign_type(name: str) -> ElementType:
    """Return a type for a dtype that neither dialect has: no version takes it, and messages name it."""
    return ElementType(name, bits=0)
