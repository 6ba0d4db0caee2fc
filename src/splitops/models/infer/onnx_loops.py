"""What Loop and Scan make of the values that go into and out of their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splitops.models.known import Known, SequenceOf, Tensor
from splitops.spec.sizes.dims import UNKNOWN, Dim


def scalar(known: Known) -> int | None:
    """Return the number of a tensor of one element, where it is known."""
    if isinstance(known, Tensor) and known.is_whole and known.value is not None and known.value.size == 1:
        return int(known.value.reshape(()).item())
    return None


def integers(attributes: Mapping[str, Any], name: str, count: int) -> list[int]:
    """Return an attribute of integers, zeros where it is absent."""
    return list(attributes[name].value) if name in attributes else [0] * max(0, count)


def without_value(known: Known) -> Known:
    """Return what holds for a value in every round: not its numbers."""
    return replace(known, value=None) if isinstance(known, Tensor) else known


def without_axis(known: Known, axis: int) -> tuple[Known, Dim | None]:
    """Return the slices of a scanned tensor, and how many there are."""
    if (
        not isinstance(known, Tensor)
        or known.shape is None
        or not -len(known.shape) <= axis < len(known.shape)
    ):
        return (Tensor(known.type) if isinstance(known, Tensor) else None), None
    axis %= len(known.shape)
    return Tensor(known.type, known.shape[:axis] + known.shape[axis + 1 :]), known.shape[axis]


def stacked(known: Known, count: Dim, axis: int) -> Known:
    """Return the tensor that a loop makes out of the outputs of its rounds."""
    if (
        not isinstance(known, Tensor)
        or known.shape is None
        or not -len(known.shape) - 1 <= axis <= len(known.shape)
    ):
        return Tensor(known.type) if isinstance(known, Tensor) else None
    axis %= len(known.shape) + 1
    return Tensor(known.type, (*known.shape[:axis], count, *known.shape[axis:]))


def widened(before: Known, after: Known) -> Known:
    """Give up the sizes that change from round to round."""
    if isinstance(before, Tensor) and isinstance(after, Tensor) and before.shape and after.shape:
        pairs = zip(before.shape, after.shape, strict=True)
        return Tensor(after.type, tuple(new if new == old else UNKNOWN for old, new in pairs))
    if isinstance(before, SequenceOf) and isinstance(after, SequenceOf):
        element = widened(before.element, after.element)
        assert isinstance(element, Tensor)
        length = after.length if after.length == before.length else UNKNOWN
        total = after.total if after.total == before.total else UNKNOWN
        return SequenceOf(element, length, after.axis, total)
    return after
