"""How the tests make data and compare parts: bit by bit. ``test_comparison`` proves that it can fail."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from splitops.spec import ElementType

Array = np.ndarray[Any, Any]


def ramp(shape: Sequence[int], dtype: np.dtype[Any], bits: int = 64) -> Array:
    """Return data in which neighbours differ, with values that narrower types would lose."""
    count = prod(shape)
    numbers = np.arange(1, count + 1)
    kind = dtype.kind
    if kind in "OUST":
        flat = np.array([f"text {number}" for number in numbers], object).astype(dtype)
    elif dtype.name in ("int64", "uint64"):
        flat = (numbers + (1 << 53)).astype(dtype)
    elif dtype.name == "float64":
        flat = numbers.astype(dtype) / 3
    elif kind == "c":
        flat = numbers - 1j * numbers
    elif kind == "b":
        flat = numbers % 2
    elif kind == "V" and dtype.itemsize == 1 and "float" in dtype.name:
        return (numbers % (1 << bits)).astype("u1").view(dtype).reshape(shape)  # every bit pattern
    else:
        flat = numbers % (1 << min(bits, 7))
    return flat.astype(dtype).reshape(shape)


def ramp_of(shape: Sequence[int], element_type: ElementType) -> Array:
    """Return data of an element type."""
    return ramp(shape, element_type.numpy, element_type.bits or 64)


def assert_same_array(got: Array, expected: Array) -> None:
    """The same shape, dtype, byte order, and every bit."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    assert got.dtype.byteorder == expected.dtype.byteorder
    if got.dtype.kind in "OT":
        assert got.tolist() == expected.tolist()
    else:
        assert got.tobytes() == expected.tobytes()


def assert_same_parts(got: Sequence[Array], expected: Sequence[Array]) -> None:
    """As many parts, and each the same."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert_same_array(one, other)


def assert_restores(parts: Sequence[Array], data: Array, axis: int, *, squeeze: bool = False) -> None:
    """A concatenation of the parts is the data."""
    if not parts:
        assert data.shape[axis] == 0
        return
    join = np.stack if squeeze else np.concatenate
    assert_same_array(join(parts, axis=axis), data)


def cut(data: Array, axis: int, sizes: Sequence[int], *, squeeze: bool = False) -> list[Array]:
    """Split with nothing but NumPy: what the parts must be."""
    parts, start = [], 0
    for size in sizes:
        part = np.take(data, range(start, start + size), axis=axis)
        parts.append(part.squeeze(axis) if squeeze else part)
        start += size
    return parts
