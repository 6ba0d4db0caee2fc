"""What Slices take of an axis, decided on their bounds alone: a Python ``slice`` says what ONNX's means."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from splitops.models.ops.shapes import clamped, positions
from splitops.spec.sizes.dims import Dim, Shape

_MAX: Final = (1 << 63) - 1
"""No axis is longer, so as an end it is the end of every axis."""


def takes_all(bounds: slice, size: Dim) -> bool:
    """Return whether bounds take all of every axis of this size, in its order.

    Examples:
        >>> from splitops.spec.sizes.dims import UNKNOWN, Range
        >>> [takes_all(slice(0, 9, 1), size) for size in (6, UNKNOWN, Range(2, 9))]
        [True, False, True]
        >>> takes_all(slice(0, _MAX, 1), UNKNOWN), takes_all(slice(-1, -2, -1), 1)
        (True, True)
    """
    if isinstance(size, int):
        return positions(size, bounds) == range(size)
    longest = _MAX if size.hi is None else size.hi
    from_first = bounds.start == 0 or bounds.start <= -longest
    return bool(bounds.step == 1 and from_first and bounds.stop >= longest)


def without_whole(bounds: Mapping[int, slice], shape: Shape) -> dict[int, slice]:
    """Return the bounds of the axes of which not all is taken.

    Examples:
        >>> without_whole({0: slice(0, 4, 1), 1: slice(0, 4, 1)}, (4, 8))
        {1: slice(0, 4, 1)}
    """
    return {axis: taken for axis, taken in sorted(bounds.items()) if not takes_all(taken, shape[axis])}


def composed(inner: slice, outer: slice, size: Dim) -> slice | None:
    """Return the bounds that take of an axis what outer ones take of what inner ones take; None: unknown.

    Examples:
        >>> from splitops.spec.sizes.dims import UNKNOWN
        >>> composed(slice(2, 9, 1), slice(1, -1, 2), 6)
        slice(3, 5, 2)
        >>> composed(slice(2, 9, 1), slice(1, 4, 1), UNKNOWN)
        slice(3, 6, 1)
        >>> composed(slice(2, 9, 1), slice(-1, 9, 1), UNKNOWN) is None
        True
    """
    if isinstance(size, int):
        inside = positions(size, inner)
        taken = inside[clamped(len(inside), outer)]
        if taken.step < 0:
            return None  # an end before the first position is not stated alike everywhere
        return slice(taken.start, max(taken.start, taken.stop), taken.step)
    if inner.step != 1 or outer.step != 1 or min(inner.start, inner.stop, outer.start, outer.stop) < 0:
        return None
    return slice(min(inner.start + outer.start, _MAX), min(inner.stop, inner.start + outer.stop, _MAX), 1)


def sole_axis(bounds: Mapping[int, slice], shape: Shape) -> tuple[int, range] | None:
    """Return the axis and the positions of bounds that take less than all of one axis only, of known size.

    Examples:
        >>> sole_axis({0: slice(0, 9, 1), 1: slice(-2, 9, 1)}, (4, 8)), sole_axis({1: slice(1, 9, 2)}, (4, 8))
        ((1, range(6, 8)), (1, range(1, 8, 2)))
    """
    cut = without_whole(bounds, shape)
    if len(cut) != 1:
        return None
    ((axis, taken),) = cut.items()
    size = shape[axis]
    return (axis, positions(size, taken)) if isinstance(size, int) else None


def strides(taken: Collection[range], size: int) -> int | None:
    """Return in how many equal steps ranges together take all of an axis; None where they do not.

    Examples:
        >>> strides([range(1, 6, 2), range(0, 6, 2)], 6), strides([range(0, 6, 2)], 6), strides([range(6)], 6)
        (2, None, None)
        >>> strides([range(0, 5, 2), range(1, 5, 2)], 5) is None
        True
    """
    found = set(taken)
    for step in sorted({one.step for one in found}):
        if 1 < step <= len(found) and not size % step and found.issuperset(starts_of(step, size)):
            return step
    return None


def starts_of(step: int, size: int) -> list[range]:
    """Return the positions that each start leads to in equal steps through an axis.

    Examples:
        >>> starts_of(2, 6)
        [range(0, 6, 2), range(1, 6, 2)]
    """
    return [range(start, size, step) for start in range(step)]
