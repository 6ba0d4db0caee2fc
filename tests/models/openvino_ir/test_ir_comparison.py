"""The comparison of the differential tests can fail."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ir_helpers import assert_same


def test_equal_arrays_pass() -> None:
    assert_same(np.array([1.0, np.nan, -0.0]), np.array([1.0, -np.nan, -0.0]))
    assert_same(np.array(["a", ""], object), np.array(["a", ""], object))
    assert_same(np.empty((0, 3), np.int8), np.empty((0, 3), np.int8))


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([np.nan]), np.array([1.0])),
        (np.array([1.0]), np.array([np.nextafter(1.0, 2.0)])),
        (np.array([1], np.int32), np.array([1], np.int64)),
        (np.zeros((2, 1)), np.zeros((1, 2))),
        (np.empty((0, 3)), np.empty((3, 0))),
        (np.array(["a"], object), np.array(["b"], object)),
        (np.array([1], ml_dtypes.bfloat16), np.array([2], ml_dtypes.bfloat16)),
        (np.array([True]), np.array([False])),
    ],
    ids=["value", "sign", "nan", "last bit", "dtype", "shape", "empty shape", "string", "bfloat16", "bool"],
)
def test_any_difference_fails(got: np.ndarray, expected: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        assert_same(got, expected)
