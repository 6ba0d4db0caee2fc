"""What movers read of partly known tensors, and say of what they make of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, Entry, Value
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import Shape

_MAX_RANK: Final = 64


def shape_of(tensor: AbstractTensor) -> Shape:
    """Return the shape of a tensor; ValueError where its rank is unknown."""
    if tensor.shape is None:
        raise ValueError("the rank is unknown")
    return tensor.shape


def numbers(tensor: AbstractTensor) -> Value:
    """Return the numbers of a tensor, some unknown; ValueError where they are not followed."""
    if tensor.elements is None:
        raise ValueError("the numbers are not followed")
    return tensor.elements


def entries(tensor: AbstractTensor) -> list[Entry]:
    """Return the numbers of a tensor of rank 0 or 1; where they are not followed, only how many there are."""
    if tensor.elements is not None and tensor.elements.ndim <= 1:
        found: list[Entry] = tensor.elements.reshape(-1).tolist()
        return found
    (count,) = shape_of(tensor)
    if not isinstance(count, int) or count > _MAX_RANK:
        raise ValueError("the number of entries is unknown")
    return [None] * count


def integers(tensor: AbstractTensor) -> list[int]:
    """Return the integers of a tensor of rank 0 or 1; ValueError where one is unknown."""
    found = entries(tensor)
    known = [int(entry) for entry in found if isinstance(entry, int)]
    if len(known) < len(found):
        raise ValueError("a number is unknown")
    return known


def moved(
    element_type: ElementType | None, shape: Shape | None, compute: Callable[[], Value]
) -> AbstractTensor:
    """Return what is known of a result: its type, its shape, and its numbers where they can be computed."""
    exact = [size for size in shape or () if isinstance(size, int)]
    if shape is not None and len(exact) == len(shape) and math.prod(exact) > MAX_ELEMENTS:
        return AbstractTensor(element_type, shape)
    try:
        value = compute()
    except (ValueError, IndexError, TypeError):
        return AbstractTensor(element_type, shape)
    return AbstractTensor(element_type, tuple(value.shape), value)
