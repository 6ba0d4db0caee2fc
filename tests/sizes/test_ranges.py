"""Ranges of sizes against every size in them: a bound is reached, and nothing lies beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops.spec import SizeRule
from splitops.spec.sizes.arithmetic import Division, compute_part_size, count_parts, find_violation
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, make_dim, to_entries, to_integer
from splitops.spec.sizes.ranges import (
    bound_chunk,
    bound_count,
    bound_part,
    find_valid_sizes,
    hull,
    merge_unknown_lengths,
)

lengths = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def divisions(draw: st.DrawFn) -> Division:
    rule = draw(st.sampled_from(SizeRule))
    match rule:
        case SizeRule.EXPLICIT:
            return Division(rule, lengths=draw(lengths))
        case SizeRule.REMAINDER:
            given = draw(lengths)
            at = draw(st.integers(0, len(given)))
            return Division(rule, lengths=(*given[:at], -1, *given[at:]))
        case SizeRule.EVEN | SizeRule.CEIL:
            return Division(rule, count=draw(st.integers(1, 6)))
        case SizeRule.CHUNK:
            return Division(rule, chunk=draw(st.integers(1, 6)))


def every_size(lo: int, hi: int, division: Division) -> list[int]:
    return [size for size in range(lo, hi + 1) if find_violation(division, size) is None]


def bounds(found: Dim | None) -> tuple[int, int | None]:
    assert found is not None
    return (found, found) if isinstance(found, int) else (found.lo, found.hi)


def assert_tight(found: Dim | None, values: list[int]) -> None:
    assert bounds(found) == (min(values), max(values))
    assert isinstance(found, int) == (min(values) == max(values))


@settings(max_examples=2 * settings.default.max_examples)
@given(divisions(), st.integers(0, 25), st.integers(0, 25))
def test_bounded_axes(division: Division, lo: int, width: int) -> None:
    size = make_dim(lo, lo + width)
    fits = every_size(lo, lo + width, division)
    if not fits:
        assert find_valid_sizes(division, size) is None
        return
    assert_tight(find_valid_sizes(division, size), fits)
    assert_tight(bound_count(division, size), [count_parts(division, at) for at in fits])
    for index in range(min(count_parts(division, at) for at in fits)):
        assert_tight(
            bound_part(division, size, index), [compute_part_size(division, at, index) for at in fits]
        )


FAR = 150


@settings(max_examples=2 * settings.default.max_examples)
@given(divisions(), st.integers(0, 25))
def test_axes_without_an_upper_bound(division: Division, lo: int) -> None:
    """Beyond what is tried here each quantity stays as it is, or goes on growing for ever."""
    fits = every_size(lo, FAR, division)
    if not fits:
        assert find_valid_sizes(division, Range(lo)) is None
        return
    near = [at for at in fits if at <= FAR // 2]

    def check(found: Dim | None, values: list[int], nearer: list[int]) -> None:
        grows = not nearer or max(values) > max(nearer)
        assert bounds(found) == (min(values), None if grows else max(values))

    check(find_valid_sizes(division, Range(lo)), fits, near)
    counts = [count_parts(division, at) for at in fits]
    check(bound_count(division, Range(lo)), counts, counts[: len(near)])
    for index in range(min(counts)):
        sizes = [compute_part_size(division, at, index) for at in fits]
        check(bound_part(division, Range(lo), index), sizes, sizes[: len(near)])


@given(st.integers(1, 6), st.integers(0, 25), st.one_of(st.none(), st.integers(0, 25)))
def test_any_chunk_of_an_axis(chunk: int, lo: int, width: int | None) -> None:
    division = Division(SizeRule.CHUNK, chunk=chunk)
    size = Range(lo) if width is None else make_dim(lo, lo + width)
    axes = every_size(lo, FAR if width is None else lo + width, division)
    chunks = [compute_part_size(division, at, i) for at in axes for i in range(count_parts(division, at))]
    found = bound_chunk(division, size)
    if chunks:
        assert_tight(found, chunks)
    else:
        assert found is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, None),
        (1, 1),
        (3, 3),
        (8, 4),
        (9, Range(1, 4)),
        (Range(0, 1), 1),
        (Range(0, 2), Range(1, 2)),
        (Range(2, 3), Range(2, 3)),
        (Range(9, 11), Range(1, 4)),
        (Range(), Range(1, 4)),
    ],
)
def test_chunks_of_four(size: Dim, expected: Dim | None) -> None:
    assert bound_chunk(Division(SizeRule.CHUNK, chunk=4), size) == expected


def test_parts_that_are_all_empty_fit_no_other_axis() -> None:
    assert find_valid_sizes(Division(SizeRule.EXPLICIT, lengths=(0,)), Range()) == 0
    assert find_valid_sizes(Division(SizeRule.EXPLICIT), Range(1)) is None
    assert find_valid_sizes(Division(SizeRule.REMAINDER, lengths=(-1,)), Range()) == Range()


def test_a_part_that_only_a_long_axis_has() -> None:
    assert bound_part(Division(SizeRule.CHUNK, chunk=4), Range(), 7) == Range(0, 4)


@given(st.lists(st.one_of(st.none(), st.integers(-1, 5)), max_size=5).map(tuple))
def test_free_lengths_share_what_the_known_ones_leave(partial: tuple[int | None, ...]) -> None:
    known = sum(length for length in partial if length is not None and length > 0)
    division = merge_unknown_lengths(partial)
    assert (division.rule, division.lengths[-1], division.lengths.count(-1)) == (SizeRule.REMAINDER, -1, 1)
    assert len(division.lengths) == sum(length is not None and length >= 0 for length in partial) + 1
    for size in range(30):
        assert (find_violation(division, size) is None) == (size >= known)
        if size >= known:
            assert compute_part_size(division, size, len(division.lengths) - 1) == size - known


dims = st.one_of(
    st.integers(0, 9),
    st.builds(
        lambda lo, width, name: Range(lo, None if width is None else lo + width, name),
        st.integers(0, 9),
        st.one_of(st.none(), st.integers(1, 5)),
        st.sampled_from([None, "N", "M"]),
    ),
)


@given(st.lists(st.one_of(st.none(), dims), max_size=4))
def test_a_hull_is_the_least_range_of_all(found: list[Dim | None]) -> None:
    known = [dim for dim in found if dim is not None]
    made = hull(*found)
    if not known:
        assert made is None
        return
    ends = [bounds(dim) for dim in known]
    highs = [hi for _, hi in ends if hi is not None]
    lo, hi = min(lo for lo, _ in ends), max(highs) if len(highs) == len(ends) else None
    assert bounds(made) == (lo, hi)
    names = {dim.name if isinstance(dim, Range) else None for dim in known}
    if isinstance(made, Range):
        assert made.name == (names.pop() if len(names) == 1 else None)


def test_a_hull_of_one_and_the_same_keeps_its_name() -> None:
    assert hull(Range(2, 5, "N"), None, Range(2, 5, "N")) == Range(2, 5, "N")
    assert hull(Range(2, 5, "N"), Range(1, 4, "N")) == Range(1, 5, "N")
    assert hull(Range(2, 5, "N"), Range(2, 5, "M")) == Range(2, 5)
    assert hull(3, Range(3, 4, "N")) == hull(Range(3, 4, "N"), 3) == Range(3, 4)
    assert hull(3, 3) == 3


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (UNKNOWN, "?"),
        (Range(2), "2.."),
        (Range(0, 3), "0..3"),
        (Range(2, 3), "2..3"),
        (Range(2, 3, "N"), "N"),
        (Range(name="N"), "N"),
    ],
)
def test_a_range_is_written(dim: Range, text: str) -> None:
    assert str(dim) == text


def test_a_dimension_of_one_size_is_exact() -> None:
    assert make_dim(2, 2, "N") == 2
    assert make_dim(2, 3, "N") == Range(2, 3, "N")
    assert make_dim(0, None) == UNKNOWN


def test_entries() -> None:
    for value in ([2, "N"], (2, "N")):
        assert to_entries(value) == (2, "N")
    assert to_entries(np.array([2, 3])) == (2, 3)
    for value in ("N", b"N", {2: 3}, iter([2]), 2, np.array(2)):
        assert to_entries(value) is None


def test_exact_integers() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    for value in (5, np.int8(5), np.uint64(5)):
        assert to_integer(value) == 5
        assert type(to_integer(value)) is int
    assert to_integer(Index()) == 7
    for value in (True, np.True_, 5.0, np.float64(5), "5", None, [5]):
        assert to_integer(value) is None
