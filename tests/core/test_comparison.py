"""The comparisons of the other tests can fail."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from comparison import assert_restores, assert_same_array, assert_same_parts, cut, ramp

DATA = np.arange(6, dtype="<i4")


@pytest.mark.parametrize(
    "other",
    [DATA[:5], DATA.reshape(2, 3), DATA.astype("<i8"), DATA.astype(">i4"), DATA + 1, DATA[::-1]],
    ids=["shape", "rank", "dtype", "byte order", "values", "order"],
)
def test_another_array_is_not_the_same(other: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        assert_same_array(other, DATA)


def test_the_sign_of_zero_and_the_bits_of_nan_count() -> None:
    with pytest.raises(AssertionError):
        assert_same_array(np.array([-0.0]), np.array([0.0]))
    assert_same_array(np.array([np.nan]), np.array([np.nan]))


def test_other_strings_are_not_the_same() -> None:
    with pytest.raises(AssertionError):
        assert_same_array(np.array(["a"], object), np.array(["b"], object))


def test_another_number_of_parts_is_not_the_same() -> None:
    with pytest.raises(AssertionError):
        assert_same_parts([DATA], [DATA, DATA])


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3), (6, 1), ()])
def test_parts_that_lack_or_repeat_elements_do_not_restore(sizes: tuple[int, ...]) -> None:
    parts = [DATA[:3], DATA[2:6]] if sizes == (6, 1) else cut(DATA, 0, sizes)
    with pytest.raises(AssertionError):
        assert_restores(parts, DATA, 0)


def test_parts_in_another_order_do_not_restore() -> None:
    with pytest.raises(AssertionError):
        assert_restores([DATA[3:], DATA[:3]], DATA, 0)


def test_parts_of_a_squeezed_axis_restore_by_stacking() -> None:
    data = ramp((2, 3), np.dtype("f4"))
    assert_restores(cut(data, 1, (1, 1, 1), squeeze=True), data, 1, squeeze=True)
    with pytest.raises(AssertionError):
        assert_restores(cut(data, 1, (1, 1), squeeze=True), data, 1, squeeze=True)


@pytest.mark.parametrize("dtype", ["i8", "f8", "u8", "f4", "U9", "O", "c8", "?"])
def test_neighbours_in_a_ramp_differ(dtype: str) -> None:
    data = ramp((5,), np.dtype(dtype)).tolist()
    assert all(one != next_one for one, next_one in pairwise(data))


def test_a_ramp_of_int64_is_lost_in_float64() -> None:
    data = ramp((4,), np.dtype("i8"))
    assert (data.astype("f8").astype("i8") != data).any()
