"""The shapes of the two operators that put together what splits take apart, over partly known shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from splitops import symbols
from splitops.dims import UNKNOWN, Dim, Range, Shape, dimension
from splitops.models.infer.knowledge import Entry, meet_shapes

__all__ = ["concatenated", "reshaped"]


def concatenated(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of a concatenation; symbols that splits have taken apart come together again.

    Raises:
        ValueError: the ranks differ.
        IndexError: there is no such axis.

    Examples:
        >>> concatenated([(Range(name="N - 2"), 4), (2, Range())], 0)
        (Range(lo=2, hi=None, name='N'), 4)
    """
    axis = range(len(shapes[0]))[axis]
    dims: list[Dim] = []
    for index, column in enumerate(zip(*shapes, strict=True)):
        if index == axis:
            dims.append(_sum(column))
            continue
        known: Dim = column[0]
        for dim in column[1:]:
            known = (meet_shapes((known,), (dim,)) or (known,))[0]
        dims.append(known)
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError("the ranks differ")
    return tuple(dims)


def _sum(dims: Sequence[Dim]) -> Dim:
    lo = sum(dim if isinstance(dim, int) else dim.lo for dim in dims)
    highs = [dim if isinstance(dim, int) else dim.hi for dim in dims]
    names = [dim if isinstance(dim, int) else dim.name for dim in dims]
    bounded = [high for high in highs if high is not None]
    known = [name for name in names if name is not None]
    name = symbols.add(*known) if len(known) == len(names) else None
    if isinstance(name, int):
        return name
    return dimension(lo, sum(bounded) if len(bounded) == len(highs) else None, name)


def reshaped(shape: Shape | None, entries: Sequence[Entry], *, copies_zero: bool) -> Shape:
    """Return the shape that a reshape gives.

    Args:
        shape: the shape of the data.
        entries: the target: sizes, 0 and -1, as far as they are known. A symbol that was computed from shapes
            is taken as that size, also where 0 would mean another one.
        copies_zero: whether 0 takes the size of the data in its place.

    Raises:
        IndexError: a 0 has no size to take.

    Examples:
        >>> reshaped((Range(name="N"), 768), [0, 12, -1], copies_zero=True)
        (Range(lo=0, hi=None, name='N'), 12, 64)
    """
    dims: list[Dim] = []
    for index, entry in enumerate(entries):
        if entry == 0 and copies_zero:
            dims.append(UNKNOWN if shape is None else shape[index])
        elif isinstance(entry, int) and entry >= 0:
            dims.append(entry)
        elif isinstance(entry, Range) and (entry.lo > 0 or entry.name is not None or not copies_zero):
            dims.append(Range(max(0, entry.lo), entry.hi, entry.name))
        else:
            dims.append(UNKNOWN)
    if list(entries).count(-1) == 1 and shape is not None and None not in entries:
        at = list(entries).index(-1)
        dims[at] = _quotient(shape, [*dims[:at], *dims[at + 1 :]])
    return tuple(dims)


def _quotient(dims: Sequence[Dim], divisors: Sequence[Dim]) -> Dim:
    """Return what is left of a product, once the dimensions on both sides have cancelled out."""
    left, right = list(dims), list(divisors)
    for dim in divisors:
        if isinstance(dim, Range) and dim.name is not None and dim in left:
            left.remove(dim)
            right.remove(dim)
    if not all(isinstance(dim, int) for dim in right):
        return UNKNOWN
    divisor = math.prod(dim for dim in right if isinstance(dim, int))
    factor = math.prod(dim for dim in left if isinstance(dim, int))
    ranges = [dim for dim in left if isinstance(dim, Range)]
    if divisor == 0 or factor == 0:
        return UNKNOWN
    if not ranges:
        return factor // divisor if factor % divisor == 0 else UNKNOWN
    if len(ranges) > 1:
        return UNKNOWN
    size = ranges[0]
    multiple = None if size.name is None else symbols.multiply(size.name, factor)
    name = None if multiple is None else symbols.divide(multiple, divisor)
    hi = None if size.hi is None else size.hi * factor // divisor
    lo = -(-size.lo * factor // divisor)
    return (
        UNKNOWN if hi is not None and hi < lo else dimension(lo, hi, name if isinstance(name, str) else None)
    )
