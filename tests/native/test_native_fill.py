"""`fill` writes only where it proves that nothing is shared; it must never be wrong, and mostly succeed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops import native

needs_core = pytest.mark.skipif(not native.available, reason="nothing is proved without the compiled core")
HALVES = (0, (0, 2), (2, 2), False)


def filled(data: np.ndarray, out: Any) -> bool:
    """Whether the halves of the data were written, and then they are right; else nothing was."""
    parts = [data[:2].copy(), data[2:].copy()]
    before = [np.array(buffer) for buffer in out]
    done = native.Plan(data.shape, *HALVES).fill(data, out)
    for buffer, expected in zip(out, before if done is None else parts, strict=True):
        np.testing.assert_array_equal(buffer, expected)
    return done is not None


def window(draw: st.DrawFn, base: np.ndarray, rows: int) -> np.ndarray:
    """Rows by 2 out of a base of 8 by 8, by ordinary slices."""
    step, stride = draw(st.sampled_from([1, 2, -1, -2])), draw(st.sampled_from([1, 2, 3, -1, -3]))
    first, column = draw(st.integers(0, 8 - rows * abs(step))), draw(st.integers(0, 7 - abs(stride)))
    cut = base[first:][:: abs(step)][:rows, column::][:, :: abs(stride)][:, :2]
    return cut[:: 1 if step > 0 else -1, :: 1 if stride > 0 else -1]


@st.composite
def arrays(draw: st.DrawFn) -> list[np.ndarray]:
    bases = [np.arange(64, dtype=np.int32).reshape(8, 8) + 100 * i for i in range(3)]
    return [window(draw, draw(st.sampled_from(bases)), rows) for rows in (4, 2, 2)]


@settings(deadline=None, max_examples=300)
@given(arrays())
def test_a_proof_is_never_wrong(given_arrays: list[np.ndarray]) -> None:
    data, *out = given_arrays
    if filled(data, out):
        assert not np.shares_memory(data, out[0])
        assert not np.shares_memory(data, out[1])
        assert not np.shares_memory(out[0], out[1])


@needs_core
def test_what_is_plainly_apart_is_proved() -> None:
    data = np.arange(24.0).reshape(4, 6)
    assert filled(data, [np.zeros((2, 6)), np.zeros((6, 2)).T])
    buffer = np.zeros((8, 6))
    assert filled(data, [buffer[:2], buffer[2:4][::-1]])
    assert filled(data, [buffer[6:], buffer[4:6]])
    assert filled(np.broadcast_to(data[0], (4, 6)), list(np.zeros((2, 2, 6))))
    around = np.zeros((12, 6))
    around[4:8] = data
    assert filled(around[4:8], [around[2:4], around[8:10]])


@needs_core
def test_buffers_without_elements_may_lie_anywhere() -> None:
    data = np.arange(12.0).reshape(4, 3)
    out = [data[:0], np.zeros((4, 3)), data[2:2]]
    assert native.Plan(data.shape, 0, (0, 0, 4), (0, 4, 0), False).fill(data, out) is not None
    np.testing.assert_array_equal(out[1], data)


def test_what_overlaps_is_not_proved() -> None:
    data = np.arange(24.0).reshape(4, 6)
    apart = np.zeros(24)
    for out in (
        [data[:2], apart[:12].reshape(2, 6)],
        [apart[:12].reshape(2, 6), data[2:]],
        [data[2:], data[:2]],
        [apart[:12].reshape(2, 6)] * 2,
        [apart[:12].reshape(2, 6), apart[11:23].reshape(2, 6)],
        [apart[11:23].reshape(2, 6), apart[:12].reshape(2, 6)],
        [np.zeros((2, 6)), np.lib.stride_tricks.as_strided(apart, (2, 6), (8, 8))],
        [np.zeros((2, 6)), np.lib.stride_tricks.as_strided(apart, (2, 6), (0, 8))],
    ):
        assert not filled(data, out)


@needs_core
def test_many_buffers_in_any_order() -> None:
    """Thousands are proved by stretches of neighbours; where these cross, one by one."""
    count = 3000
    data = np.arange(count * 4, dtype="i4").reshape(count, 4)
    cut = (0, tuple(range(count)), (1,) * count, False)
    shuffled = list(range(count))
    random.Random(0).shuffle(shuffled)
    for space in (1, 2, 9, 300):
        memory = np.zeros((count, space, 4), "i4")
        for order in (
            range(count),
            reversed(range(count)),
            [*range(0, count, 2), *range(1, count, 2)],
            shuffled,
        ):
            memory[...] = -1
            out = [memory[i, :1] for i in order]
            assert native.Plan(data.shape, *cut).fill(data, out) is not None
            np.testing.assert_array_equal(np.concatenate(out), data)
            assert (memory[:, 1:] == -1).all()
            for i, j in ((0, 1), (7, 2000), (count - 1, 0)):
                twice = list(out)
                twice[i] = twice[j]
                memory[...] = -1
                assert native.Plan(data.shape, *cut).fill(data, twice) is None
                assert (memory == -1).all()


@needs_core
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("squeeze", [False, True])
def test_neighbours_in_both_memories_are_copied_together(step: int, squeeze: bool) -> None:
    """The rows of one array into those of another, with a part left out, one repeated, and one elsewhere."""
    data = np.arange(80, dtype="i4").reshape(20, 4)[::step]
    offsets = (0, 1, 2, 4, 5, 5, 6, 7)
    target = np.full((9, 4), -1, "i4")
    out = [target[i] if squeeze else target[i : i + 1] for i in range(8)]
    out[6] = np.full((4,) if squeeze else (1, 4), -1, "i4")
    assert native.Plan(data.shape, 0, offsets, (1,) * 8, squeeze).fill(data, out) is not None
    np.testing.assert_array_equal(np.stack(out).reshape(8, 4), data[list(offsets)])
    assert (target[[6, 8]] == -1).all()
    copies = native.Plan(data.shape, 0, offsets, (1,) * 8, squeeze).copies(data)
    np.testing.assert_array_equal(np.stack(copies).reshape(8, 4), data[list(offsets)])
    wide = np.arange(16 * 12, dtype="i4").reshape(12, 16)[::step]  # copied parts of whole lines of 64 bytes
    copies = native.Plan(wide.shape, 0, (0, 1, 3, 4), (1, 1, 1, 1), squeeze).copies(wide)
    np.testing.assert_array_equal(np.stack(copies).reshape(4, 16), wide[[0, 1, 3, 4]])
