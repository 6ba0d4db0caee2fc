"""The size rules and their arithmetic: how an axis of some size is divided. The only one there is.

Execution, inference, checking and conversion all ask this module. Everything is exact Python-integer
arithmetic, and nothing here is proportional to a size, only to the number of parts that are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from splitops.errors import Rule, brief
from splitops.ground.records import record
from splitops.spec.sizes.rules import SizeRule


@record
class Division:
    """How an axis of any size is to be divided: a size rule with its numbers.

    Attributes:
        rule: the size rule.
        count: the number of parts (EVEN, CEIL), at least 1.
        lengths: the sizes (EXPLICIT), or the sizes with one -1 (REMAINDER).
        chunk: the size of a chunk (CHUNK), at least 1.
    """

    rule: SizeRule
    count: int = 0
    lengths: tuple[int, ...] = ()
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    """Why an axis size does not fit a division: the rule with what was got and expected, in words."""

    rule: Rule
    got: str
    expected: str


def violation(division: Division, size: int) -> Violation | None:
    """Return why an axis of this size cannot be divided so, or None where it can.

    ``got`` goes on after :func:`describe`, ``expected`` after the name of the axis.
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
                return Violation(Rule.PARTS_DIVISIBLE, "asks for equal parts", expected)
        case SizeRule.CEIL | SizeRule.CHUNK:
            pass
        case _:
            assert_never(division.rule)
    return None


def part_count(division: Division, size: int) -> int:
    """Return the number of parts of an axis of this size."""
    match division.rule:
        case SizeRule.EXPLICIT | SizeRule.REMAINDER:
            return len(division.lengths)
        case SizeRule.EVEN | SizeRule.CEIL:
            return division.count
        case SizeRule.CHUNK:
            return _ceil_div(size, division.chunk)
        case _:
            assert_never(division.rule)


def part_size(division: Division, size: int, index: int) -> int:
    """Return the size of one part of an axis of this size, which must fit the division.

    Examples:
        >>> [part_size(Division(SizeRule.CEIL, count=4), 5, i) for i in range(4)]
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
            chunk = _uniform_chunk(division, size)
            return max(0, min(chunk, size - index * chunk))
        case _:
            assert_never(division.rule)


def part_sizes(division: Division, size: int, count: int) -> tuple[int, ...]:
    """Return the sizes of the first ``count`` parts, as :func:`part_size` gives them."""
    match division.rule:
        case SizeRule.EXPLICIT:
            return division.lengths[:count]
        case SizeRule.REMAINDER:
            at = division.lengths.index(-1)
            whole = (*division.lengths[:at], part_size(division, size, at), *division.lengths[at + 1 :])
            return whole[:count]
        case SizeRule.EVEN | SizeRule.CEIL | SizeRule.CHUNK:
            # Equal parts as long as the axis lasts, one part of what is left, then empty ones.
            chunk = _uniform_chunk(division, size)
            full = min(count, size // max(chunk, 1))
            if full == count:
                return (chunk,) * count
            return (chunk,) * full + (size - full * chunk,) + (0,) * (count - full - 1)
        case _:
            assert_never(division.rule)


def _uniform_chunk(division: Division, size: int) -> int:
    return division.chunk if division.rule is SizeRule.CHUNK else _ceil_div(size, division.count)


def _ceil_div(dividend: int, divisor: int) -> int:
    # No negative number in between: a symbolic size may end in a runtime whose division truncates.
    return (dividend + divisor - 1) // divisor


def describe(division: Division, name: str) -> str:
    """Write a division for a message, for example ``split = [2, 3]`` or ``num_outputs = 4``."""
    match division.rule:
        case SizeRule.EXPLICIT | SizeRule.REMAINDER:
            return f"{name} = {brief(division.lengths)}"
        case SizeRule.EVEN | SizeRule.CEIL:
            return f"{name} = {division.count}"
        case SizeRule.CHUNK:
            return f"{name} = {division.chunk}"
        case _:
            assert_never(division.rule)
