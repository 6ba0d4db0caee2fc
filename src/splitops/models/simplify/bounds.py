"""Arithmetic of Slice bounds: Python ``slice`` objects that are read as the bounds of an ONNX Slice."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from splitops.common.integers import INT64_MAX
from splitops.models.ops.shapes import clamp, list_positions
from splitops.spec.sizes.dims import Dim, Shape


def is_whole_axis(bounds: slice, size: Dim) -> bool:
    """Return whether bounds select the whole axis in order, for every value of ``size``.

    Examples:
        >>> from splitops.spec.sizes.dims import UNKNOWN, Range
        >>> [is_whole_axis(slice(0, 9, 1), size) for size in (6, UNKNOWN, Range(2, 9))]
        [True, False, True]
        >>> is_whole_axis(slice(0, INT64_MAX, 1), UNKNOWN), is_whole_axis(slice(-1, -2, -1), 1)
        (True, True)
    """
    if isinstance(size, int):
        return list_positions(size, bounds) == range(size)
    longest = INT64_MAX if size.hi is None else size.hi
    from_first = bounds.start == 0 or bounds.start <= -longest
    return bool(bounds.step == 1 and from_first and bounds.stop >= longest)


def drop_whole_axes(bounds: Mapping[int, slice], shape: Shape) -> dict[int, slice]:
    """Return the bounds without those that select a whole axis, in the order of the axes.

    Examples:
        >>> drop_whole_axes({0: slice(0, 4, 1), 1: slice(0, 4, 1)}, (4, 8))
        {1: slice(0, 4, 1)}
    """
    return {axis: taken for axis, taken in sorted(bounds.items()) if not is_whole_axis(taken, shape[axis])}


def compose(inner: slice, outer: slice, size: Dim) -> slice | None:
    """Return bounds that equal ``inner`` followed by ``outer`` on an axis of ``size``.

    Return None if they are unknown or if their step would be negative.

    Examples:
        >>> from splitops.spec.sizes.dims import UNKNOWN
        >>> compose(slice(2, 9, 1), slice(1, -1, 2), 6)
        slice(3, 5, 2)
        >>> compose(slice(2, 9, 1), slice(1, 4, 1), UNKNOWN)
        slice(3, 6, 1)
        >>> compose(slice(2, 9, 1), slice(-1, 9, 1), UNKNOWN) is None
        True
    """
    if isinstance(size, int):
        inside = list_positions(size, inner)
        taken = inside[clamp(len(inside), outer)]
        if taken.step < 0:
            return None  # runtimes disagree on an end before the first position
        return slice(taken.start, max(taken.start, taken.stop), taken.step)
    if inner.step != 1 or outer.step != 1 or min(inner.start, inner.stop, outer.start, outer.stop) < 0:
        return None
    start, stop = inner.start + outer.start, min(inner.stop, inner.start + outer.stop)
    return slice(min(start, INT64_MAX), min(stop, INT64_MAX), 1)


def find_sliced_axis(bounds: Mapping[int, slice], shape: Shape) -> tuple[int, range] | None:
    """Return the only axis that is not selected whole, and its selected positions.

    Return None if there is not exactly one such axis, or if its size is unknown.

    Examples:
        >>> find_sliced_axis({0: slice(0, 9, 1), 1: slice(-2, 9, 1)}, (4, 8))
        (1, range(6, 8))
    """
    sliced = drop_whole_axes(bounds, shape)
    if len(sliced) != 1:
        return None
    ((axis, taken),) = sliced.items()
    size = shape[axis]
    return (axis, list_positions(size, taken)) if isinstance(size, int) else None


def find_stride(taken: Collection[range], size: int) -> int | None:
    """Return the smallest n > 1 for which ``taken`` has all ranges of :func:`list_strided_ranges`.

    Only divisors of ``size`` are considered. Return None if none of them qualifies.

    Examples:
        >>> find_stride([range(1, 6, 2), range(0, 6, 2)], 6), find_stride([range(0, 6, 2)], 6)
        (2, None)
        >>> find_stride([range(0, 5, 2), range(1, 5, 2)], 5) is None
        True
    """
    found = set(taken)
    for step in sorted({one.step for one in found}):
        if 1 < step <= len(found) and not size % step and found.issuperset(list_strided_ranges(step, size)):
            return step
    return None


def list_strided_ranges(step: int, size: int) -> list[range]:
    """Split the positions of an axis into ``step`` ranges of stride ``step``, one for each start.

    Examples:
        >>> list_strided_ranges(2, 6)
        [range(0, 6, 2), range(1, 6, 2)]
    """
    return [range(start, size, step) for start in range(step)]
