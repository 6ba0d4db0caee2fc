"""From a proved request to the sizes and offsets of the parts: the only size arithmetic.

Execution, inference, checking and conversion all ask this module. Everything is exact Python-integer
arithmetic, and nothing here is proportional to a size, only to the number of parts that are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final, assert_never

from splitops.errors import NOWHERE, Rule, Where, brief, rule_error
from splitops.operators.schema import OperatorSchema, SizeRule
from splitops.records import record

__all__ = [
    "MAX_PARTS",
    "Division",
    "SplitPlan",
    "SplitRequest",
    "Violation",
    "describe",
    "part_count",
    "part_size",
    "part_sizes",
    "plan_request",
    "violation",
]

MAX_PARTS: Final = 1 << 24
"""The most parts that one call makes; more is ``parts.count`` instead of exhausted memory."""


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
            full = min(count, size // chunk) if chunk else 0
            tail = tuple(part_size(division, size, i) for i in range(full, min(full + 1, count)))
            return (chunk,) * full + tail + (0,) * (count - full - len(tail))
        case _:
            assert_never(division.rule)


def _uniform_chunk(division: Division, size: int) -> int:
    return division.chunk if division.rule is SizeRule.CHUNK else _ceil_div(size, division.count)


def _ceil_div(dividend: int, divisor: int) -> int:
    # No negative number in between: a symbolic size may end in a runtime whose division truncates.
    return (dividend + divisor - 1) // divisor


@record
class SplitRequest:
    """One split of one tensor, proved valid: what binding gives to planning.

    Attributes:
        schema: the operator version that asked.
        shape: shape of the data.
        axis: the split axis, in [0, rank).
        division: how its size is divided.
        squeeze: whether the parts, of size 1, lose the axis.
        outputs: how many parts are wanted, counted from the first; None is all.
        where: the place in a model.
    """

    schema: OperatorSchema
    shape: tuple[int, ...]
    axis: int
    division: Division
    squeeze: bool = False
    outputs: int | None = None
    where: Where = NOWHERE


@dataclass(frozen=True)
class SplitPlan:
    """Where each part of a tensor begins and how long it is: integers only, knowing no operator.

    Attributes:
        shape: shape of the data that the plan is for.
        axis: the split axis, in [0, rank).
        offsets: where each part begins on the axis.
        sizes: the size of each part on the axis.
        squeeze: whether the parts, of size 1, lose the axis.
    """

    shape: tuple[int, ...]
    axis: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    squeeze: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each part."""
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        if self.squeeze:
            return (before + after,) * len(self.sizes)
        return tuple((*before, size, *after) for size in self.sizes)


def plan_request(request: SplitRequest) -> SplitPlan:
    """Compute the plan of a valid request.

    Raises:
        PartsError: ``parts.count`` where the request asks for more than :data:`MAX_PARTS` parts.
    """
    size = request.shape[request.axis]
    count = part_count(request.division, size)
    if request.outputs is not None:
        count = min(count, request.outputs)
    if count > MAX_PARTS:
        raise rule_error(
            str(request.schema),
            Rule.PARTS_COUNT,
            f"axis {request.axis} of data {request.shape} would be split into {count} parts",
            f"at most {MAX_PARTS} parts are made at once",
            where=request.where,
            count=count,
        )
    sizes = part_sizes(request.division, size, count)
    offsets = tuple(accumulate(sizes, initial=0))[:-1] if sizes else ()
    return SplitPlan(request.shape, request.axis, offsets, sizes, request.squeeze)


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
