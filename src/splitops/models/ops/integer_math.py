"""Arithmetic on the numbers that a model computes from shapes: integers, partly known sizes, unknowns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.models.abstract_values import Entry
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import Range, make_dim


def apply(operation: Callable[[Entry, Entry], Entry], left: Any, right: Any) -> npt.NDArray[Any]:
    """Apply an operation of :data:`ARITHMETIC` to two values, with broadcasting."""
    found = np.frompyfunc(operation, 2, 1)(_objects(left), _objects(right))
    result = np.empty(np.shape(found), object)
    result[...] = found
    return result


def _objects(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Python's integers in the place of NumPy's: exact, however large.
    objects = np.empty(value.shape, object)
    objects[...] = value.astype(object) if value.dtype != object else value
    return objects


def _in_range(value: Entry) -> Entry:
    """Return a result, unknown where 64 bits do not hold it: it would have wrapped around."""
    return value if not isinstance(value, int) or -(1 << 63) <= value < 1 << 63 else None


def _plus(left: Entry, right: Entry) -> Entry:
    if isinstance(left, int) and isinstance(right, int):
        return _in_range(left + right)
    a, b = _range(left), _range(right)
    if a is None or b is None:
        return None
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return _computed(a.lo + b.lo, hi, symbols.add(*names) if (names := _names(left, right)) else None)


def _minus(left: Entry, right: Entry) -> Entry:
    if isinstance(left, int) and isinstance(right, int):
        return _in_range(left - right)
    a, b = _range(left), _range(right)
    if a is None or b is None:
        return None
    name = symbols.subtract(*names) if (names := _names(left, right)) else None
    if isinstance(name, int):
        return name
    if b.hi is None:
        return None
    return _computed(a.lo - b.hi, None if a.hi is None else a.hi - b.lo, name)


def _times(left: Entry, right: Entry) -> Entry:
    if isinstance(left, int) and isinstance(right, int):
        return _in_range(left * right)
    if isinstance(left, int):
        left, right = right, left
    a, b = _range(left), _range(right)
    if a is None or b is None or a.lo < 0 or b.lo < 0:
        return None
    name = symbols.multiply(a.name, right) if a.name is not None and isinstance(right, int) else None
    if 0 in (a.hi, b.hi):
        return 0
    return _computed(a.lo * b.lo, None if a.hi is None or b.hi is None else a.hi * b.hi, name)


def _divided(left: Entry, right: Entry) -> Entry:
    """Divide as integers are divided in both formats where nothing is negative: rounding down."""
    if not isinstance(right, int) or right < 1:
        return None
    if isinstance(left, int):
        return left // right if left >= 0 else None
    a = _range(left)
    if a is None or a.lo < 0:
        return None
    name = symbols.divide_down(a.name, right) if a.name is not None else None
    return _computed(a.lo // right, None if a.hi is None else a.hi // right, name)


def _modulo(left: Entry, right: Entry) -> Entry:
    """Return a remainder where nothing is negative, so that both formats have one."""
    if not isinstance(right, int) or right < 1 or _lowest(left) < 0:
        return None
    return int(left) % right if isinstance(left, int) else Range(0, right - 1)


def _lowest(entry: Entry) -> int:
    return -1 if entry is None else entry.lo if isinstance(entry, Range) else int(entry)


def _chosen(choose: Callable[[int, int], int], left: Entry, right: Entry) -> Entry:
    return choose(left, right) if isinstance(left, int) and isinstance(right, int) else None


def equal(left: Entry, right: Entry) -> Entry:
    """Compare two numbers; a size that is not known is at least no number outside its range."""
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


def _range(entry: Entry) -> Range | None:
    if isinstance(entry, Range):
        return entry
    return Range(entry, entry) if isinstance(entry, int) else None


def _names(left: Entry, right: Entry) -> tuple[str | int, str | int] | None:
    names = [entry.name if isinstance(entry, Range) else entry for entry in (left, right)]
    first, second = names
    if isinstance(first, str | int) and isinstance(second, str | int):
        return first, second
    return None


def _computed(lo: int, hi: int | None, name: str | int | None) -> Entry:
    if isinstance(name, int):
        return name
    return make_dim(lo, hi, name)


ARITHMETIC: dict[str, Callable[[Entry, Entry], Entry]] = {
    "Add": _plus,
    "Sub": _minus,
    "Mul": _times,
    "Div": _divided,
    "Min": partial(_chosen, min),
    "Max": partial(_chosen, max),
    "Mod": _modulo,
}
"""Operations on entries by the ONNX operator that does them."""
