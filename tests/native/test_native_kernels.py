"""Every kernel, by lowering the sizes from which it is chosen; nothing outside of the buffers is touched."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_helpers import Guarded, _core, assert_same, fallback

pytestmark = pytest.mark.skipif(_core is None, reason="the extension module is not built")

U1 = np.dtype("u1")
MODES = {
    "plain": (1 << 62, 1 << 62),
    "threads": (1, 1 << 62),
    "stream": (1 << 62, 1),
    "threads and stream": (1, 1),
}
ROWS = (1, 2, 63, 64, 65, 200, 1100)


@pytest.fixture(params=["default"] if _core is None else _core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    _core.use_instruction_set(request.param)
    yield request.param
    _core.use_instruction_set(_core.instruction_sets()[0])


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.thresholds()
    _core.set_thresholds(*MODES[request.param])
    yield request.param
    _core.set_thresholds(*before)


def check(source: np.ndarray[Any, Any], sizes: list[int], rows: int, at_end: bool) -> None:
    """Copies rows of bytes into buffers at guard pages, with poison in what lies between."""
    offsets = tuple(itertools.accumulate([0, *sizes[:-1]]))
    guards = [Guarded(rows * size) for size in sizes]
    out = [g.array((rows, size), U1, at_end) for g, size in zip(guards, sizes, strict=True)]
    for g in guards:
        g.array((g.size,), U1, False)[...] = 0xA5
    _core.copies_into(source, 1, offsets, tuple(sizes), False, out)
    assert_same(tuple(out), fallback.views(source, 1, offsets, tuple(sizes), False))
    for g, size in zip(guards, sizes, strict=True):
        spare = g.array((g.size,), U1, False)
        rest = spare[: g.size - rows * size] if at_end else spare[rows * size :]
        assert (rest == 0xA5).all()


def source_of(rows: int, width: int, at_end: bool) -> np.ndarray[Any, Any]:
    guard = Guarded(rows * width)
    source = guard.array((rows, width), U1, at_end)
    source[...] = np.random.default_rng(rows * width).integers(0, 256, (rows, width), dtype=np.uint8)
    return source


def check_drawn(sizes: list[int], rows: int, mode: str, at_end: bool, data: Any) -> None:
    """Checks one drawn layout with a drawn instruction set."""
    before = _core.thresholds()
    _core.set_thresholds(*MODES[mode])
    _core.use_instruction_set(data.draw(st.sampled_from(_core.instruction_sets())))
    try:
        check(source_of(rows, sum(sizes), at_end), sizes, rows, at_end)
    finally:
        _core.set_thresholds(*before)
        _core.use_instruction_set(_core.instruction_sets()[0])


@pytest.mark.parametrize("at_end", [True, False])
def test_equal_runs(mode: str, instruction_set: str, at_end: bool) -> None:
    for run in (*range(1, 18), 31, 33, 48, 64, 100, 520, 1030, 2100, 5000):
        for parts in (2, 3, 5, 17):
            for rows in (1, 65, 300) if run > 100 else (65, 700):
                if run * parts * rows < 1 << 21:
                    check(source_of(rows, run * parts, at_end), [run] * parts, rows, at_end)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 40), st.integers(0, 1200)), min_size=1, max_size=24),
    st.sampled_from(ROWS),
    st.sampled_from(sorted(MODES)),
    st.booleans(),
    st.data(),
)
def test_uneven_runs(sizes: list[int], rows: int, mode: str, at_end: bool, data: Any) -> None:
    check_drawn(sizes, rows, mode, at_end, data)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(1, 16), min_size=2, max_size=20),
    st.sampled_from((64, 65, 500, 513, 1600)),
    st.sampled_from(sorted(MODES)),
    st.booleans(),
    st.data(),
)
def test_short_runs(sizes: list[int], rows: int, mode: str, at_end: bool, data: Any) -> None:
    check_drawn(sizes, rows, mode, at_end, data)


@pytest.mark.parametrize("separate", [False, True])
def test_memory_that_is_new_to_the_process(mode: str, separate: bool) -> None:
    for shape, sizes in (
        ((3, 3_000_000), [1_000_000, 1, 1_999_999]),
        ((2000, 4000), [1000, 2500, 500]),
        ((2_000_000, 3), [1, 1, 1]),
        ((900_000, 7), [3, 4]),
    ):
        source = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
        cut = (1, tuple(itertools.accumulate([0, *sizes[:-1]])), tuple(sizes), False)
        _core.release_pool()
        assert_same(_core.copies(source, *cut, separate=separate), fallback.copies(source, *cut))


def test_one_long_run_among_many_short_ones(mode: str, instruction_set: str) -> None:
    for long in (700, 3000, 20_000):
        check(source_of(300, 200 + long, False), [*[1] * 100, long, *[1] * 100], 300, False)


def test_many_parts(mode: str, instruction_set: str) -> None:
    for run, parts, rows in (
        (1, 1000, 300),
        (1, 5000, 1100),
        (3, 700, 200),
        (5, 90, 1100),
        (6, 100, 80),
        (20, 300, 70),
        (600, 70, 40),
    ):
        source = np.random.default_rng(run).integers(0, 256, (rows, run * parts), dtype=np.uint8)
        cut = (1, tuple(range(0, run * parts, run)), (run,) * parts, False)
        assert_same(_core.copies(source, *cut), fallback.copies(source, *cut))


@pytest.mark.parametrize("longest", [1, 7, 300, 5000, 70_000])
def test_many_pieces_of_any_length(longest: int, mode: str, instruction_set: str) -> None:
    """Parts of whole rows, anywhere and in any order, with guards around the buffers."""
    rng = np.random.default_rng(longest)
    sizes = rng.integers(0, longest + 1, 400)
    sizes[7] = longest
    offsets = rng.integers(0, 100_000 - longest, 400)
    source = rng.integers(0, 256, 100_000, dtype=np.uint8)
    memory = np.full(int(sizes.sum()) + 401, 0xA5, np.uint8)
    expected = memory.copy()
    out, at = [], 1
    for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
        out.append(memory[at : at + size])
        expected[at : at + size] = source[offset : offset + size]
        at += size + 1
    order = rng.permutation(400)
    cut = (0, tuple(offsets[order].tolist()), tuple(sizes[order].tolist()), False)
    assert _core.fill(source, *cut, [out[i] for i in order]) is not None
    np.testing.assert_array_equal(memory, expected)
    memory[...] = 0xA5
    _core.copies_into(source, *cut, [out[i] for i in order])
    np.testing.assert_array_equal(memory, expected)
    assert_same(_core.copies(source, *cut), fallback.copies(source, *cut))


def test_rows_that_do_not_follow_each_other(mode: str, instruction_set: str) -> None:
    whole = np.random.default_rng(1).integers(0, 256, (9, 130, 40), dtype=np.uint8)
    for array in (whole[:, ::2], whole[::-1], whole[:, ::-3], whole[:, :, 5:38], whole.transpose(1, 0, 2)):
        for sizes in ([1, 2, 3, 7, 20], [3] * 11, [16, 17]):
            offsets = tuple(itertools.accumulate([0, *sizes[:-1]]))
            cut = (2, offsets, tuple(sizes), False)
            assert_same(_core.copies(array, *cut), fallback.copies(array, *cut))


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "c8", "c16", "S3", "S20"])
def test_other_layouts(mode: str, dtype: str) -> None:
    base = np.random.default_rng(2).integers(1, 120, (37, 70, 3, np.dtype(dtype).itemsize), dtype=np.uint8)
    base = base.view(dtype)[..., 0]
    for array in (
        base.transpose(2, 1, 0),
        np.asfortranarray(base),
        base[::-2, :, ::-1],
        base.transpose(1, 0, 2),
    ):
        for axis in range(3):
            extent = array.shape[axis]
            cut = (axis, (0, extent // 3), (extent // 3, extent - extent // 3), False)
            expected = fallback.copies(array, *cut)
            assert_same(_core.copies(array, *cut), expected)
            out = tuple(np.asfortranarray(np.zeros_like(e)) for e in expected)
            _core.copies_into(array, *cut, out)
            assert_same(out, expected)


def test_an_unknown_instruction_set() -> None:
    with pytest.raises(ValueError, match="does not support the instruction set"):
        _core.use_instruction_set("abacus")
