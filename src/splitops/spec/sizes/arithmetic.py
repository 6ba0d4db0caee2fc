"""Arithmetic of the size rules: the number and sizes of parts of an axis.

Execution, inference, checks and conversions all use this module. It computes with exact Python integers, in
time that depends on the number of parts, not on their sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from splitops.common.json_values import record
from splitops.errors import Rule, brief
from splitops.spec.sizes.rules import SizeRule


@record
class Division:
    """A size rule and its parameters. It can be applied to axes of different sizes.

    Attributes:
        rule: size rule.
        count: number of parts (EVEN, CEIL), at least 1.
        lengths: sizes of the parts (EXPLICIT), or sizes with one -1 (REMAINDER).
        chunk: size of a chunk (CHUNK), at least 1.
    """

    rule: SizeRule
    count: int = 0
    lengths: tuple[int, ...] = ()
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a division cannot divide an axis: the broken rule, and the two clauses of its message."""

    rule: Rule
    got: str
    expected: str


def find_violation(division: Division, size: int) -> Violation | None:
    """Return why an axis of size ``size`` cannot be divided, or None if it can.

    ``got`` completes a clause that starts with the text of :func:`describe`, and ``expected`` one that starts
    with the name of the axis.
    """
    match division.rule:
        case SizeRule.EXPLICIT:
            total = sum(division.lengths)
            if total != size:
                return Violation(Rule.LENGTHS_SUM, f"sums to {total}", f"has size {size}")
        case SizeRule.REMAINDER:
            total = sum(division.lengths) + 1
            if total > size:
                return Violation(
                    Rule.REMAINDER_NEGATIVE, f"leaves {size - total} for the -1", f"has size {size}"
                )
        case SizeRule.EVEN:
            if size % division.count:
                expected = f"has size {size}, which {division.count} does not divide"
                return Violation(Rule.PARTS_DIVISIBLE, "requires equal parts", expected)
        case SizeRule.CEIL | SizeRule.CHUNK:
            pass
        case _:
            assert_never(division.rule)
    return None


def count_parts(division: Division, size: int) -> int:
    """Return the number of parts into which a division divides an axis of size ``size``."""
    match division.rule:
        case SizeRule.EXPLICIT | SizeRule.REMAINDER:
            return len(division.lengths)
        case SizeRule.EVEN | SizeRule.CEIL:
            return division.count
        case SizeRule.CHUNK:
            return _divide_up(size, division.chunk)
        case _:
            assert_never(division.rule)


def compute_part_size(division: Division, size: int, index: int) -> int:
    """Return the size of part ``index`` of an axis of size ``size``. The division must accept this size.

    Examples:
        >>> [compute_part_size(Division(SizeRule.CEIL, count=4), 5, i) for i in range(4)]
        [2, 2, 1, 0]
    """
    match division.rule:
        case SizeRule.EXPLICIT:
            return division.lengths[index]
        case SizeRule.REMAINDER:
            length = division.lengths[index]
            return length if length >= 0 else size - (sum(division.lengths) + 1)
        case SizeRule.EVEN:
            return size // division.count
        case SizeRule.CEIL | SizeRule.CHUNK:
            chunk = _compute_chunk(division, size)
            return max(0, min(chunk, size - index * chunk))
        case _:
            assert_never(division.rule)


def compute_part_sizes(division: Division, size: int, count: int) -> tuple[int, ...]:
    """Return the sizes of the first ``count`` parts; see :func:`compute_part_size`."""
    match division.rule:
        case SizeRule.EXPLICIT:
            return division.lengths[:count]
        case SizeRule.REMAINDER:
            lengths, at = division.lengths, division.lengths.index(-1)
            whole = (*lengths[:at], compute_part_size(division, size, at), *lengths[at + 1 :])
            return whole[:count]
        case SizeRule.EVEN | SizeRule.CEIL | SizeRule.CHUNK:
            # Full parts, then one part with the rest of the axis, then empty parts.
            chunk = _compute_chunk(division, size)
            full = min(count, size // max(chunk, 1))
            if full == count:
                return (chunk,) * count
            return (chunk,) * full + (size - full * chunk,) + (0,) * (count - full - 1)
        case _:
            assert_never(division.rule)


def _compute_chunk(division: Division, size: int) -> int:
    return division.chunk if division.rule is SizeRule.CHUNK else _divide_up(size, division.count)


def _divide_up(dividend: int, divisor: int) -> int:
    # Unlike -(-a // b), this has no negative operands: runtimes that compute symbolic sizes may truncate.
    return (dividend + divisor - 1) // divisor


def describe(division: Division, name: str) -> str:
    """Return a division as text, for example ``split = [2, 3]`` or ``num_outputs = 4``."""
    match division.rule:
        case SizeRule.EXPLICIT | SizeRule.REMAINDER:
            return f"{name} = {brief(division.lengths)}"
        case SizeRule.EVEN | SizeRule.CEIL:
            return f"{name} = {division.count}"
        case SizeRule.CHUNK:
            return f"{name} = {division.chunk}"
        case _:
            assert_never(division.rule)
