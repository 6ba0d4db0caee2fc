"""Dimensions: exact sizes and ranges of sizes.

A dimension is a Python int when it is known exactly, otherwise a :class:`Range`. An unknown dimension is
the range of every size, and a symbol (ONNX ``dim_param``) is such a range with a name.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes from ``lo`` to ``hi``, both included; ``hi`` None is unbounded."""

    lo: int = 0
    hi: int | None = None
    name: str | None = None
    """Equal names in one model stand for equal sizes."""

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if (self.lo, self.hi) == (0, None):
            return "?"
        return f"{self.lo}..{'' if self.hi is None else self.hi}"


UNKNOWN = Range()
"""The dimension of which nothing is known."""

Dim = int | Range
Shape = tuple[Dim, ...]


def dimension(lo: int, hi: int | None, name: str | None = None) -> Dim:
    """Return the dimension of sizes from ``lo`` to ``hi``: an integer where they are the same.

    Examples:
        >>> dimension(2, 2, "N"), dimension(0, None) == UNKNOWN
        (2, True)
    """
    return lo if lo == hi else Range(lo, hi, name)


def exact_integer(value: Any) -> int | None:
    """Return an exact integer, NumPy's included, or None for anything else; a boolean is not one."""
    if type(value) is int:  # nearly always, and every call asks
        return value
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def entries(value: Any) -> tuple[Any, ...] | None:
    """Return the entries of a sequence or array; None for texts and what has no entries to list.

    Examples:
        >>> entries([2, "N"]), entries("N"), entries(np.array(2))
        ((2, 'N'), None, None)
    """
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str | bytes):
        return None
    try:
        return tuple(value)
    except (TypeError, NotImplementedError):  # of rank 0, or a buffer of a rank that Python does not index
        return None
