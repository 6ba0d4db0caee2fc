"""`disjoint` proves that arrays share no memory; what it says must never be wrong, and mostly be said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops import native


def view(draw: st.DrawFn, base: np.ndarray) -> np.ndarray:
    rows, columns = (
        slice(draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(st.sampled_from([1, 2, -1, -2])))
        for _ in "xy"
    )
    return base[rows, columns]


@st.composite
def arrays(draw: st.DrawFn) -> list[np.ndarray]:
    bases = [np.zeros((6, 6), np.int32) for _ in range(2)]
    return [view(draw, draw(st.sampled_from(bases))) for _ in range(draw(st.integers(1, 5)))]


@settings(deadline=None, max_examples=300)
@given(arrays())
def test_a_proof_is_never_wrong(given_arrays: list[np.ndarray]) -> None:
    data, *out = given_arrays
    if native.disjoint(data, out):
        everything = [data, *out]
        assert not any(
            np.shares_memory(first, second)
            for i, first in enumerate(everything)
            for second in everything[i + 1 :]
        )


@pytest.mark.skipif(not native.available, reason="nothing is proved without the compiled core")
def test_what_is_plainly_apart_is_proved() -> None:
    data = np.zeros((4, 6))
    assert native.disjoint(data, [np.zeros((4, 2)), np.zeros((6, 4)).T, np.zeros((0, 3)), data[:0]])
    buffer = np.zeros((8, 6))
    assert native.disjoint(data, [buffer[:4], buffer[4:][::-1]])
    assert native.disjoint(np.broadcast_to(data[0], (9, 6)), [np.zeros(3)])


def test_what_overlaps_is_not_proved() -> None:
    data = np.zeros((4, 6))
    apart = np.zeros(6)
    for out in (
        [data[1:2]],
        [apart, apart],
        [apart[:4], apart[3:]],
        [np.lib.stride_tricks.as_strided(apart, (4, 3), (8, 8))],
        [np.lib.stride_tricks.as_strided(apart, (4, 2), (0, 8))],
    ):
        assert not native.disjoint(data, out)


def test_only_exact_arrays_are_taken() -> None:
    if native.available:
        with pytest.raises(TypeError):
            native.disjoint(np.zeros(2), [np.ma.zeros(2)])
        with pytest.raises(TypeError):
            native.disjoint(np.zeros(2), [[1.0]])
