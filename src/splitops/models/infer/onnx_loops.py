"""Convert abstract values between Loop or Scan and their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue
from splitops.spec.sizes.dims import UNKNOWN, Dim


def find_scalar(value: AbstractValue) -> int | None:
    """Return the element of a tensor with one element as an integer, or None if it is unknown."""
    if (
        isinstance(value, AbstractTensor)
        and value.is_complete
        and value.elements is not None
        and value.elements.size == 1
    ):
        return int(value.elements.reshape(()).item())
    return None


def read_ints(attributes: Mapping[str, Any], name: str, count: int) -> list[int]:
    """Return an attribute of integers, or ``count`` zeros if it is absent."""
    return list(attributes[name].value) if name in attributes else [0] * max(0, count)


def drop_elements(known: AbstractValue) -> AbstractValue:
    """Return a tensor without its elements, which may differ in each iteration. Keep other values."""
    return replace(known, elements=None) if isinstance(known, AbstractTensor) else known


def drop_axis(value: AbstractValue, axis: int) -> tuple[AbstractValue, Dim | None]:
    """Return a slice of a scanned tensor and the number of slices.

    The number is None if the rank is unknown or the tensor does not have the axis.
    """
    if not isinstance(value, AbstractTensor):
        return None, None
    shape = value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return AbstractTensor(value.type), None
    axis %= len(shape)
    return AbstractTensor(value.type, shape[:axis] + shape[axis + 1 :]), shape[axis]


def stack(value: AbstractValue, count: Dim, axis: int) -> AbstractValue:
    """Return the tensor that stacks the outputs ``value`` of ``count`` iterations along a new axis.

    Return None if they are not tensors.
    """
    if not isinstance(value, AbstractTensor):
        return None
    shape = value.shape
    if shape is None or not -len(shape) - 1 <= axis <= len(shape):
        return AbstractTensor(value.type)
    axis %= len(shape) + 1
    return AbstractTensor(value.type, (*shape[:axis], count, *shape[axis:]))


def widen(before: AbstractValue, after: AbstractValue) -> AbstractValue:
    """Return ``after`` with the sizes that differ from those in ``before`` replaced by unknown sizes."""
    if (
        isinstance(before, AbstractTensor)
        and isinstance(after, AbstractTensor)
        and before.shape
        and after.shape
    ):
        pairs = zip(before.shape, after.shape, strict=True)
        return AbstractTensor(after.type, tuple(new if new == old else UNKNOWN for old, new in pairs))
    if isinstance(before, AbstractSequence) and isinstance(after, AbstractSequence):
        element = widen(before.element, after.element)
        assert isinstance(element, AbstractTensor)
        length = after.length if after.length == before.length else UNKNOWN
        total = after.total if after.total == before.total else UNKNOWN
        return AbstractSequence(element, length, after.axis, total)
    return after
