"""The size rules over ranges of axis sizes, and over lengths of which only some are known.

No rule is repeated here: :mod:`splitops.spec.sizes.arithmetic` is asked at the sizes where a bound can be
reached, the ends of the range and the ends of the blocks in which part sizes grow steadily.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from splitops.spec.sizes.arithmetic import Division, part_count, part_size, violation
from splitops.spec.sizes.dims import Dim, Range, dimension
from splitops.spec.sizes.rules import SizeRule


def fitting(division: Division, size: Dim) -> Dim | None:
    """Return the axis sizes that a division takes, as far as a range tells; None where it takes none.

    Examples:
        >>> fitting(Division(SizeRule.EVEN, count=3), Range(2, 7))
        Range(lo=3, hi=6, name=None)
        >>> fitting(Division(SizeRule.EXPLICIT, lengths=(2, 3)), Range())
        5
    """
    return _bounds(division, size, lambda at: at)


def part_range(division: Division, size: Dim, index: int) -> Dim:
    """Return the sizes that one part can have; ``size`` must hold one that fits.

    Examples:
        >>> part_range(Division(SizeRule.CEIL, count=2), Range(4, 6), 1)
        Range(lo=2, hi=3, name=None)
    """
    found = _bounds(division, size, lambda at: part_size(division, at, index), index)
    assert found is not None
    return found


def count_range(division: Division, size: Dim) -> Dim:
    """Return the numbers of parts that there can be.

    Examples:
        >>> count_range(Division(SizeRule.CHUNK, chunk=2), Range(3, 5))
        Range(lo=2, hi=3, name=None)
    """
    found = _bounds(division, size, lambda at: part_count(division, at))
    assert found is not None
    return found


def element_range(division: Division, size: Dim) -> Dim | None:
    """Return the sizes that any chunk can have; None where there are never any.

    Examples:
        >>> element_range(Division(SizeRule.CHUNK, chunk=4), Range(9, 11))
        Range(lo=1, hi=4, name=None)
    """
    # No part of an axis of size 0 says anything of the others.
    span = dimension(1, size.hi) if isinstance(size, Range) and size.lo == 0 != size.hi else size
    if span == 0:
        return None
    first = part_range(division, span, 0)
    last = _bounds(division, span, lambda at: part_size(division, at, part_count(division, at) - 1))
    return hull(first, last)


def free_lengths(lengths: tuple[int | None, ...]) -> Division:
    """Return the division in which one part takes all that partly known lengths leave open.

    The known part of ``[2, None, 3, None]`` takes 5 of the axis; the others share the rest.
    """
    known = tuple(length for length in lengths if length is not None and length >= 0)
    return Division(SizeRule.REMAINDER, lengths=(*known, -1))


def hull(*dims: Dim | None) -> Dim | None:
    """Return the least range that holds all of them, leaving out None; None of none.

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
    return dimension(min(lows), max(bounded) if len(bounded) == len(highs) else None, name if same else None)


def _bounds(division: Division, size: Dim, of: Callable[[int], int], index: int = 0) -> Dim | None:
    """Return the range of a quantity over all axis sizes that fit."""
    if isinstance(size, int):
        return of(size) if violation(division, size) is None else None
    # Beyond the horizon nothing changes any more, except that what grows with the axis goes on growing.
    horizon = _block(division) * (size.lo + index + 3)
    values = [of(at) for at in _critical(division, size.lo, horizon if size.hi is None else size.hi)]
    if not values:
        return None
    if size.hi is None:
        further = (of(at) for at in _critical(division, horizon, 4 * horizon))
        if max(further, default=0) > max(values):
            return Range(min(values))
    return dimension(min(values), max(values))


def _block(division: Division) -> int:
    """Return the length of the blocks of axis sizes in which every part size rises from end to end."""
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


def _critical(division: Division, lo: int, hi: int) -> Iterator[int]:
    """Yield the axis sizes in [lo, hi] where a bound can be reached, of those that fit.

    These are both ends, and beside each the nearest ends of blocks and the sizes after them.
    """
    block = _block(division)
    candidates = {lo, hi, block}  # of explicit lengths, a block is the one size that fits
    for end in (lo, hi):
        whole = end // block * block
        candidates |= {whole, whole + 1, whole + block, whole + block + 1}
    return (at for at in sorted(candidates) if lo <= at <= hi and violation(division, at) is None)
