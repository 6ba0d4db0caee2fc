"""Bounds of part sizes and counts over ranges of axis sizes.

The rules of :mod:`splitops.spec.sizes.arithmetic` are evaluated only at axis sizes at which an extreme value
can occur: at the ends of the range, and at nearby ends of the periods in which part sizes never shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from splitops.spec.sizes.arithmetic import Division, compute_part_size, count_parts, find_violation
from splitops.spec.sizes.dims import Dim, Range, make_dim
from splitops.spec.sizes.rules import SizeRule


def find_valid_sizes(division: Division, size: Dim) -> Dim | None:
    """Return the smallest range with all sizes in ``size`` that a division accepts. None if it accepts none.

    Examples:
        >>> find_valid_sizes(Division(SizeRule.EVEN, count=3), Range(2, 7))
        Range(lo=3, hi=6, name=None)
        >>> find_valid_sizes(Division(SizeRule.EXPLICIT, lengths=(2, 3)), Range())
        5
    """
    return _bound(division, size, lambda at: at)


def bound_part(division: Division, size: Dim, index: int) -> Dim:
    """Return the range of sizes of part ``index``. The division must accept some axis size in ``size``.

    Examples:
        >>> bound_part(Division(SizeRule.CEIL, count=2), Range(4, 6), 1)
        Range(lo=2, hi=3, name=None)
    """
    found = _bound(division, size, lambda at: compute_part_size(division, at, index), index)
    assert found is not None
    return found


def bound_count(division: Division, size: Dim) -> Dim:
    """Return the range of the number of parts. The division must accept some axis size in ``size``.

    Examples:
        >>> bound_count(Division(SizeRule.CHUNK, chunk=2), Range(3, 5))
        Range(lo=2, hi=3, name=None)
    """
    found = _bound(division, size, lambda at: count_parts(division, at))
    assert found is not None
    return found


def bound_chunk(division: Division, size: Dim) -> Dim | None:
    """Return the range of the sizes of all chunks, or None if the axis has size 0 and there are no chunks.

    Examples:
        >>> bound_chunk(Division(SizeRule.CHUNK, chunk=4), Range(9, 11))
        Range(lo=1, hi=4, name=None)
    """
    # An axis of size 0 has no parts, so it does not contribute to the range.
    span = make_dim(1, size.hi) if isinstance(size, Range) and size.lo == 0 != size.hi else size
    if span == 0:
        return None
    first = bound_part(division, span, 0)
    last = _bound(division, span, lambda at: compute_part_size(division, at, count_parts(division, at) - 1))
    return hull(first, last)


def merge_unknown_lengths(lengths: tuple[int | None, ...]) -> Division:
    """Return a division by the known lengths, followed by one -1 that represents all other lengths.

    ``[2, None, 3, None]`` becomes ``[2, 3, -1]``: the unknown lengths share the rest of the axis.
    """
    known = tuple(length for length in lengths if length is not None and length >= 0)
    return Division(SizeRule.REMAINDER, lengths=(*known, -1))


def hull(*dims: Dim | None) -> Dim | None:
    """Return the smallest dimension that contains all ``dims`` that are not None, or None if all are None.

    Examples:
        >>> hull(2, Range(4, 5)), hull(Range(2, None, "N"), Range(2, None, "N"))
        (Range(lo=2, hi=5, name=None), Range(lo=2, hi=None, name='N'))
    """
    found = [dim for dim in dims if dim is not None]
    if not found:
        return None
    lows = [dim if isinstance(dim, int) else dim.lo for dim in found]
    highs = [dim if isinstance(dim, int) else dim.hi for dim in found]
    bounded = [high for high in highs if high is not None]
    name = found[0].name if isinstance(found[0], Range) else None
    same = name is not None and all(isinstance(dim, Range) and dim.name == name for dim in found)
    return make_dim(min(lows), max(bounded) if len(bounded) == len(highs) else None, name if same else None)


def _bound(division: Division, size: Dim, of: Callable[[int], int], index: int = 0) -> Dim | None:
    """Return the range of ``of`` over all axis sizes in ``size`` that are accepted, or None if none is.

    ``index`` is the index of the part that ``of`` computes, if it computes one.
    """
    if isinstance(size, int):
        return of(size) if find_violation(division, size) is None else None
    # Beyond the horizon, values that are bounded no longer change.
    horizon = _compute_period(division) * (size.lo + index + 3)
    end = horizon if size.hi is None else size.hi
    values = [of(at) for at in _iter_critical_sizes(division, size.lo, end)]
    if not values:
        return None
    if size.hi is None:
        further = (of(at) for at in _iter_critical_sizes(division, horizon, 4 * horizon))
        if max(further, default=0) > max(values):
            return Range(min(values))
    return make_dim(min(values), max(values))


def _compute_period(division: Division) -> int:
    """Return the period of a division: between its multiples, part sizes never shrink as the axis grows."""
    match division.rule:
        case SizeRule.EXPLICIT:
            return sum(division.lengths) or 1
        case SizeRule.REMAINDER:
            return sum(division.lengths) + 1 or 1
        case SizeRule.EVEN | SizeRule.CEIL:
            return division.count
        case SizeRule.CHUNK:
            return division.chunk
        case _:
            assert_never(division.rule)


def _iter_critical_sizes(division: Division, lo: int, hi: int) -> Iterator[int]:
    """Yield the accepted axis sizes in [lo, hi] at which an extreme value can occur.

    These are both ends, the period, and the multiples of the period around the ends, with their successors.
    """
    block = _compute_period(division)
    candidates = {lo, hi, block}  # explicit lengths accept only their period
    for end in (lo, hi):
        whole = end // block * block
        candidates |= {whole, whole + 1, whole + block, whole + block + 1}
    return (at for at in sorted(candidates) if lo <= at <= hi and find_violation(division, at) is None)
