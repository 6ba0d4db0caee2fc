"""The size rules by hand; their properties are in ``tests/core/test_properties.py``."""

from __future__ import annotations

import pytest

from splitops.errors import Rule
from splitops.spec import SizeRule
from splitops.spec.sizes.arithmetic import (
    Division,
    Violation,
    compute_part_size,
    compute_part_sizes,
    count_parts,
    describe,
    find_violation,
)

EXPLICIT = Division(SizeRule.EXPLICIT, lengths=(2, 0, 3))
REMAINDER = Division(SizeRule.REMAINDER, lengths=(0, -1, 3))
EVEN = Division(SizeRule.EVEN, count=3)
CEIL = Division(SizeRule.CEIL, count=4)
CHUNK = Division(SizeRule.CHUNK, chunk=4)


@pytest.mark.parametrize(
    ("division", "size", "expected"),
    [
        (EXPLICIT, 5, (2, 0, 3)),
        (REMAINDER, 5, (0, 2, 3)),
        (REMAINDER, 3, (0, 0, 3)),
        (EVEN, 6, (2, 2, 2)),
        (EVEN, 0, (0, 0, 0)),
        (CEIL, 10, (3, 3, 3, 1)),
        (CEIL, 5, (2, 2, 1, 0)),
        (CEIL, 0, (0, 0, 0, 0)),
        (CHUNK, 8, (4, 4)),
        (CHUNK, 9, (4, 4, 1)),
        (CHUNK, 3, (3,)),
        (CHUNK, 0, ()),
    ],
)
def test_the_sizes_of_the_parts(division: Division, size: int, expected: tuple[int, ...]) -> None:
    assert find_violation(division, size) is None
    assert count_parts(division, size) == len(expected)
    assert tuple(compute_part_size(division, size, index) for index in range(len(expected))) == expected
    for count in range(len(expected) + 1):
        assert compute_part_sizes(division, size, count) == expected[:count]


@pytest.mark.parametrize(
    ("division", "size", "broken"),
    [
        (EXPLICIT, 6, Violation(Rule.LENGTHS_SUM, "sums to 5", "has size 6")),
        (REMAINDER, 2, Violation(Rule.REMAINDER_NEGATIVE, "leaves -1 for the -1", "has size 2")),
        (
            EVEN,
            7,
            Violation(Rule.PARTS_DIVISIBLE, "requires equal parts", "has size 7, which 3 does not divide"),
        ),
    ],
)
def test_a_size_that_does_not_fit(division: Division, size: int, broken: Violation) -> None:
    assert find_violation(division, size) == broken


@pytest.mark.parametrize(
    ("division", "text"),
    [
        (EXPLICIT, "x = [2, 0, 3]"),
        (REMAINDER, "x = [0, -1, 3]"),
        (EVEN, "x = 3"),
        (CEIL, "x = 4"),
        (CHUNK, "x = 4"),
    ],
)
def test_a_division_in_words(division: Division, text: str) -> None:
    assert describe(division, "x") == text
