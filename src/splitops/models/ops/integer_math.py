"""Arithmetic on tracked elements: integers, ranges of sizes, and None for unknown elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.models.abstract_values import Entry
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import Range, make_dim


def apply(operation: Callable[[Entry, Entry], Entry], left: Any, right: Any) -> npt.NDArray[Any]:
    """Apply an operation on entries, such as :func:`add`, to two arrays, with broadcasting."""
    entries = np.frompyfunc(operation, 2, 1)(_to_objects(left), _to_objects(right))
    result = np.empty(np.shape(entries), object)
    result[...] = entries
    return result


def _to_objects(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Python integers do not overflow.
    objects = np.empty(value.shape, object)
    objects[...] = value.astype(object) if value.dtype != object else value
    return objects


def _limit_to_int64(value: Entry) -> Entry:
    """Return ``value``, or None if it does not fit into 64 bits, so that runtimes would wrap it around."""
    return value if not isinstance(value, int) or INT64_MIN <= value <= INT64_MAX else None


def add(left: Entry, right: Entry) -> Entry:
    """Return the sum of two entries."""
    if isinstance(left, int) and isinstance(right, int):
        return _limit_to_int64(left + right)
    a, b = _to_range(left), _to_range(right)
    if a is None or b is None:
        return None
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return _make_entry(a.lo + b.lo, hi, symbols.add(*names) if (names := _find_names(left, right)) else None)


def subtract(left: Entry, right: Entry) -> Entry:
    """Return the difference of two entries."""
    if isinstance(left, int) and isinstance(right, int):
        return _limit_to_int64(left - right)
    a, b = _to_range(left), _to_range(right)
    if a is None or b is None:
        return None
    name = symbols.subtract(*names) if (names := _find_names(left, right)) else None
    if isinstance(name, int):
        return name
    if b.hi is None:
        return None
    return _make_entry(a.lo - b.hi, None if a.hi is None else a.hi - b.lo, name)


def multiply(left: Entry, right: Entry) -> Entry:
    """Return the product of two entries. It is unknown for ranges with negative numbers."""
    if isinstance(left, int) and isinstance(right, int):
        return _limit_to_int64(left * right)
    if isinstance(left, int):
        left, right = right, left
    a, b = _to_range(left), _to_range(right)
    if a is None or b is None or a.lo < 0 or b.lo < 0:
        return None
    name = symbols.multiply(a.name, right) if a.name is not None and isinstance(right, int) else None
    if 0 in (a.hi, b.hi):
        return 0
    return _make_entry(a.lo * b.lo, None if a.hi is None or b.hi is None else a.hi * b.hi, name)


def divide(left: Entry, right: Entry) -> Entry:
    """Divide a non-negative entry by a positive integer and round down. Return None for other entries.

    ONNX and OpenVINO round quotients of negative numbers differently.
    """
    if not isinstance(right, int) or right < 1:
        return None
    if isinstance(left, int):
        return left // right if left >= 0 else None
    a = _to_range(left)
    if a is None or a.lo < 0:
        return None
    name = symbols.divide_down(a.name, right) if a.name is not None else None
    return _make_entry(a.lo // right, None if a.hi is None else a.hi // right, name)


def compute_remainder(left: Entry, right: Entry) -> Entry:
    """Return the remainder of a division.

    Return None if ``left`` may be negative, or if ``right`` is not a known positive integer.
    """
    if not isinstance(right, int) or right < 1 or _get_min(left) < 0:
        return None
    return int(left) % right if isinstance(left, int) else Range(0, right - 1)


def _get_min(entry: Entry) -> int:
    return -1 if entry is None else entry.lo if isinstance(entry, Range) else int(entry)


def choose(select: Callable[[int, int], int], left: Entry, right: Entry) -> Entry:
    """Return the result of ``min`` or ``max``, or None unless both entries are known integers."""
    return select(left, right) if isinstance(left, int) and isinstance(right, int) else None


def compare_equal(left: Entry, right: Entry) -> Entry:
    """Return whether two entries are equal, or None if unknown. A range differs from numbers outside it."""
    if left is None or right is None:
        return None
    if isinstance(left, Range) and isinstance(right, Range):
        return True if left.name is not None and left.name == right.name else None
    if isinstance(right, Range):
        left, right = right, left
    if isinstance(left, Range):
        assert not isinstance(right, Range | None)
        return False if right < left.lo or (left.hi is not None and right > left.hi) else None
    return left == right


def _to_range(entry: Entry) -> Range | None:
    if isinstance(entry, Range):
        return entry
    return Range(entry, entry) if isinstance(entry, int) else None


def _find_names(left: Entry, right: Entry) -> tuple[str | int, str | int] | None:
    names = [entry.name if isinstance(entry, Range) else entry for entry in (left, right)]
    first, second = names
    if isinstance(first, str | int) and isinstance(second, str | int):
        return first, second
    return None


def _make_entry(lo: int, hi: int | None, name: str | int | None) -> Entry:
    if isinstance(name, int):
        return name
    return make_dim(lo, hi, name)
