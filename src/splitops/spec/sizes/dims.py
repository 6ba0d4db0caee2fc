"""Dimensions of shapes: exact sizes, and ranges of sizes.

A dimension is an int if it is exact, otherwise a :class:`Range`. An unknown dimension is the range of all
sizes, and a symbol (ONNX ``dim_param``) is a range with a name.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitops.errors import SplitError, shown


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes from ``lo`` to ``hi``, inclusive; unbounded if ``hi`` is None."""

    lo: int = 0
    hi: int | None = None
    name: str | None = None
    """Name of the size. Equal names in a model mean equal sizes."""

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if (self.lo, self.hi) == (0, None):
            return "?"
        return f"{self.lo}..{'' if self.hi is None else self.hi}"


UNKNOWN = Range()
"""The dimension of an unknown size: the range of all sizes."""

Dim = int | Range
Shape = tuple[Dim, ...]


def make_dim(lo: int, hi: int | None, name: str | None = None) -> Dim:
    """Return the dimension of sizes from ``lo`` to ``hi``: an integer if they are equal.

    Examples:
        >>> make_dim(2, 2, "N"), make_dim(0, None) == UNKNOWN
        (2, True)
    """
    return lo if lo == hi else Range(lo, hi, name)


def to_exact(sizes: Sequence[Dim | None] | None) -> tuple[int, ...] | None:
    """Return sizes if all of them are exact, or None.

    Examples:
        >>> to_exact((2, 3)), to_exact((2, UNKNOWN)), to_exact(None)
        ((2, 3), None, None)
    """
    exact = tuple([size for size in sizes or () if isinstance(size, int)])
    return None if sizes is None or len(exact) < len(sizes) else exact


def to_integer(value: Any) -> int | None:
    """Convert an integer of any library to an int. Return None for other values, including booleans."""
    if type(value) is int:  # fast path of every call
        return value
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def require_integer(
    value: Any, name: str, error: type[SplitError], minimum: int | None = None, maximum: int | None = None
) -> int:
    """Convert the argument ``name`` to an int. Raise ``error`` if it is not an integer or is out of range.

    Examples:
        >>> require_integer(np.int64(2), "ranks", SplitError, 1)
        2
        >>> require_integer(0, "ranks", SplitError, 1)
        Traceback (most recent call last):
            ...
        splitops.errors.SplitError: ranks = 0, but it must be an integer of at least 1
    """
    found = to_integer(value)
    too_small = found is not None and minimum is not None and found < minimum
    too_large = found is not None and maximum is not None and found > maximum
    if found is None or too_small or too_large:
        limits = "" if minimum is None else f" of at least {minimum}"
        limits = limits if maximum is None else f" from {minimum} to {maximum}"
        raise error(f"{name} = {shown(value)}, but it must be an integer{limits}")
    return found


def to_entries(value: Any) -> tuple[Any, ...] | None:
    """Return the entries of a sequence or an array, or None for any other value.

    Strings and arrays of rank 0 have no entries here.

    Examples:
        >>> to_entries([2, "N"]), to_entries("N"), to_entries(np.array(2))
        ((2, 'N'), None, None)
    """
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str | bytes):
        return None
    try:
        return tuple(value)
    except (TypeError, NotImplementedError):  # an array of rank 0, or a buffer that Python cannot index
        return None
