"""Shapes that are computed from shapes and numbers, over partly known ones: no operator has its own rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Final, TypeVar

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractSequence, Entry, meet_shapes
from splitops.models.ops.integer_math import ARITHMETIC
from splitops.models.ops.operator import Unknown
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, make_dim

D = TypeVar("D", int, Dim)


def axis_within(axis: int, rank: int) -> int:
    """Return an axis counted from the first.

    Examples:
        >>> axis_within(-1, 3)
        2
    """
    if not -rank <= axis < rank:
        raise Unknown(f"axis {axis} is not an axis of rank {rank}")
    return axis % rank


def unsqueezed(shape: Sequence[D], axes: Sequence[int]) -> tuple[D | int, ...]:
    """Return a shape with axes of size 1 put in, counted in the result.

    Examples:
        >>> unsqueezed((4, 5), [0, -1])
        (1, 4, 5, 1)
    """
    rank = len(shape) + len(axes)
    added = {axis_within(axis, rank) for axis in axes}
    if len(added) < len(axes):
        raise Unknown(f"axes = {list(axes)} repeat one another")
    sizes = iter(shape)
    return tuple(1 if axis in added else next(sizes) for axis in range(rank))


def gathered(shape: Sequence[D], axis: int, positions: Sequence[D]) -> tuple[D, ...]:
    """Return the shape of what is gathered from an axis, counted from the first, by positions of a shape.

    Examples:
        >>> gathered((4, 5, 6), 1, (2, 3))
        (4, 2, 3, 6)
    """
    return tuple(chain(shape[:axis], positions, shape[axis + 1 :]))


def concatenated(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of a concatenation; symbols that splits have taken apart come together again.

    Examples:
        >>> concatenated([(Range(name="N - 2"), 4), (2, Range())], 0)
        (Range(lo=2, hi=None, name='N'), 4)
    """
    axis = axis_within(axis, len(shapes[0]))
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise Unknown("the ranks differ")
    dims: list[Dim] = []
    for index, column in enumerate(zip(*shapes, strict=True)):
        if index == axis:
            dims.append(size_of(reduce(_PLUS, column)))
            continue
        known: Dim = column[0]
        for dim in column[1:]:
            if dim != known:
                known = (meet_shapes((known,), (dim,)) or (known,))[0]
        dims.append(known)
    return tuple(dims)


def joined(sequence: AbstractSequence, axis: int, *, stacked: bool) -> Shape:
    """Return the shape of the tensors of a sequence put together, on an axis that they have or on a new one.

    Examples:
        >>> from splitops.models.abstract_values import AbstractTensor
        >>> parts = AbstractSequence(AbstractTensor(shape=(Range(0, 2), 5)), axis=0, total=Range(name="N"))
        >>> joined(parts, 0, stacked=False)
        (Range(lo=0, hi=None, name='N'), 5)
    """
    shape = sequence.element.shape
    if shape is None:
        raise Unknown("the elements are unknown")
    axis = axis_within(axis, len(shape) + stacked)
    if stacked:
        return (*shape[:axis], sequence.length, *shape[axis:])
    size = sequence.total if axis == sequence.axis else size_of(_TIMES(sequence.length, shape[axis]))
    return (*shape[:axis], size, *shape[axis + 1 :])


def reshaped(shape: Shape | None, entries: Sequence[Entry], *, copies_zero: bool) -> Shape:
    """Return the shape that a reshape gives.

    Args:
        shape: the shape of the data.
        entries: the target: sizes, 0 and -1, as far as they are known. A symbol that was computed from shapes
            is taken as that size, also where 0 would mean another one.
        copies_zero: whether 0 takes the size of the data in its place.

    Raises:
        Unknown: a 0 has no size to copy.

    Examples:
        >>> reshaped((Range(name="N"), 768), [0, 12, -1], copies_zero=True)
        (Range(lo=0, hi=None, name='N'), 12, 64)
    """
    dims: list[Dim] = []
    for index, entry in enumerate(entries):
        if entry == 0 and copies_zero:
            if shape is not None and index >= len(shape):
                raise Unknown(f"there is no axis {index} to copy")
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
        UNKNOWN if hi is not None and hi < lo else make_dim(lo, hi, name if isinstance(name, str) else None)
    )


def size_of(entry: Entry) -> Dim:
    """Return the size that a number stands for.

    Examples:
        >>> size_of(3), size_of(None) == UNKNOWN, size_of(Range(-1, 5, "N - 1"))
        (3, True, Range(lo=0, hi=5, name=None))
    """
    if isinstance(entry, int) and entry >= 0:
        return int(entry)
    if not isinstance(entry, Range) or (entry.hi is not None and entry.hi < 0):
        return UNKNOWN
    # A name counts only where the number that it stands for cannot be negative.
    return entry if entry.lo >= 0 else make_dim(0, entry.hi)


def clamp_negative(entry: Entry) -> Entry:
    """Return a number that is not negative, or its node fails: a name stays what it is.

    Examples:
        >>> clamp_negative(Range(-2, None, "H - 2")), clamp_negative(-1)
        (Range(lo=0, hi=None, name='H - 2'), None)
    """
    if isinstance(entry, Range):
        return (
            None if entry.hi is not None and entry.hi < 0 else Range(max(0, entry.lo), entry.hi, entry.name)
        )
    return entry if isinstance(entry, int) and entry >= 0 else None


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape of two tensors together, as NumPy broadcasts them.

    Examples:
        >>> broadcast((1, 5), (Range(name="N"), 1, 1))
        (Range(lo=0, hi=None, name='N'), 1, 5)
    """
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)]
    return tuple(_together(a, b) for a, b in zip(*padded, strict=True))


def _together(left: Dim, right: Dim) -> Dim:
    if left == 1 or (left == right and (isinstance(left, int) or left.name is not None)):
        return right
    if right == 1:
        return left
    if isinstance(left, int) or isinstance(right, int):
        if isinstance(left, int) and isinstance(right, int):
            raise Unknown("the sizes exclude one another")
        return left if isinstance(left, int) else right  # the other one is this size or 1
    if left.lo > 1 and right.lo > 1:  # neither is 1, so they are the same
        return (meet_shapes((left,), (right,)) or (UNKNOWN,))[0]
    if left.lo > 1 or right.lo > 1:
        return left if left.lo > 1 else right  # the other one is this size or 1
    hi = None if left.hi is None or right.hi is None else max(left.hi, right.hi)
    return make_dim(min(left.lo, right.lo), hi)


def product(shape: Shape) -> Entry:
    """Return the number of elements of a shape.

    Examples:
        >>> product((Range(name="N"), 2)), product(())
        (Range(lo=0, hi=None, name='2*N'), 1)
    """
    if len(shape) > MAX_ELEMENTS:
        raise Unknown("too many sizes")
    sizes: list[Entry] = [1, *(None if dim == UNKNOWN else dim for dim in shape)]
    return reduce(_TIMES, sizes)


def counted(start: Entry, limit: Entry, step: int) -> Dim:
    """Return how many numbers there are from a start to below a limit.

    Examples:
        >>> counted(0, Range(name="N"), 1), counted(2, 9, 3)
        (Range(lo=0, hi=None, name='N'), 3)
    """
    distance = _MINUS(limit, start)
    if isinstance(distance, int):
        return max(0, -(-distance // step))
    size = size_of(distance)
    if step == 1 or isinstance(size, int):
        return size
    return make_dim(-(-size.lo // step), None if size.hi is None else -(-size.hi // step))


def clamped(size: int, taken: slice) -> slice:
    """Return the slice of Python that takes of an axis what ONNX and OpenVINO take.

    Going back from before the first position they take this one, and Python takes nothing.

    Examples:
        >>> clamped(2, slice(-3, -99, -1)), clamped(2, slice(-1, -99, -1)), clamped(2, slice(-3, 2, 1))
        (slice(-2, -99, -1), slice(-1, -99, -1), slice(-3, 2, 1))
    """
    if taken.step < 0 and taken.start < -size:
        return slice(-size, taken.stop, taken.step)
    return taken


def positions(size: int, taken: slice) -> range:
    """Return the positions that ONNX and OpenVINO take of an axis.

    Examples:
        >>> positions(5, slice(-9, -99, -1)), positions(5, slice(-2, 9, 1))
        (range(0, -1, -1), range(3, 5))
    """
    return range(size)[clamped(size, taken)]


def sliced(size: Dim, start: Entry, end: Entry, step: int = 1) -> Dim:
    """Return the size of a slice.

    Examples:
        >>> sliced(Range(name="N"), 0, (1 << 63) - 1), sliced(Range(2, 9, "N"), 1, -1)
        (Range(lo=0, hi=None, name='N'), Range(lo=0, hi=7, name='N - 2'))
        >>> sliced(512, 0, Range(name="N"))
        Range(lo=0, hi=512, name=None)
        >>> sliced(5, -1, -99, -2), sliced(Range(2, 9), 0, 9, 2)
        (3, Range(lo=1, hi=5, name=None))
        >>> sliced(Range(name="N"), 0, (1 << 31) - 1), sliced(Range(name="N"), -1, -(1 << 63), -1)
        (Range(lo=0, hi=None, name='N'), Range(lo=0, hi=None, name='N'))
        >>> sliced(5, -6, -99, -1), sliced(0, -6, -99, -1)
        (1, 0)
    """
    if isinstance(start, bool | float) or isinstance(end, bool | float) or step == 0:
        return UNKNOWN
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(positions(size, slice(start, end, step)))
    taken = _forward(size, start, end) if step > 0 else _backward(size, start, end)
    return ceil_divided(taken, abs(step))


def _forward(size: Dim, start: int | Range | None, end: int | Range | None) -> Dim:
    """Return how many positions there are from a start to an end, one by one."""
    if _is_endless(end, size):
        if isinstance(start, int) and start < 0:
            return _at_most(-start, size)
        end = _ENDLESS
    distance = _MINUS(_position(size, end), _position(size, start))
    if isinstance(distance, int):
        return max(0, distance)
    found = size_of(distance)
    return found if isinstance(found, Range) and found.name is not None else _at_most(found, size)


def _backward(size: Dim, start: int | Range | None, end: int | Range | None) -> Dim:
    """Return how many positions there are from a start back to an end, or to the first one."""
    if not isinstance(start, int) or not isinstance(end, int) or not _is_before(end, size):
        return _at_most(UNKNOWN, size)
    if start == -1 or _is_endless(start, size):
        return size
    if start >= 0:
        return _at_most(start + 1, size)
    if start < -_lowest(size):  # of a smaller axis it is the first position
        return make_dim(min(_lowest(size), 1), size.hi) if isinstance(size, Range) else UNKNOWN
    return size_of(_PLUS(size, start + 1))


def _is_endless(index: Entry, size: Dim) -> bool:
    """Return whether an index is behind every axis, or is what ONNX recommends for the end of an open one."""
    is_open = isinstance(size, Range) and size.hi is None
    return _lowest(index) >= _highest(size) or (is_open and index == _INT32_MAX)


def _is_before(index: int, size: Dim) -> bool:
    """Return whether an index is before every axis, or is what ONNX recommends for that of an open one."""
    is_open = isinstance(size, Range) and size.hi is None
    return index < -_highest(size) or (is_open and (index in _BEFORE or index <= -_ENDLESS))


def ceil_divided(size: Dim, step: int) -> Dim:
    """Return a size divided by a step, rounded up."""
    if step == 1:
        return size
    if isinstance(size, int):
        return -(-size // step)
    name = None if size.name is None else symbols.divide_up(size.name, step)
    hi = None if size.hi is None else -(-size.hi // step)
    return make_dim(-(-size.lo // step), hi, name if isinstance(name, str) else None)


def _position(size: Dim, index: int | Range | None) -> Entry:
    """Return where on an axis an index of a slice is: from its begin, and inside it."""
    if isinstance(index, int) and index < 0:
        found = _PLUS(size, index)
        return max(0, found) if isinstance(found, int) else found if _lowest(found) >= 0 else size_of(found)
    if index is None or _lowest(index) < 0:
        return _at_most(UNKNOWN, size)
    return _at_most(index, size)


def _at_most(number: Dim, size: Dim) -> Dim:
    """Return the smaller one of two sizes."""
    if number == size or _highest(size) <= _lowest(number) or _lowest(number) >= _ENDLESS:
        return size
    if _highest(number) <= _lowest(size):
        return number
    lo, hi = min(_lowest(number), _lowest(size)), min(_highest(number), _highest(size))
    return make_dim(lo, None if hi >= _ENDLESS else hi)


def _lowest(entry: Entry) -> int:
    return entry.lo if isinstance(entry, Range) else int(entry or 0)


def _highest(size: Dim) -> int:
    return size if isinstance(size, int) else _ENDLESS if size.hi is None else size.hi


_INT32_MAX: Final = (1 << 31) - 1
_BEFORE: Final = (-_INT32_MAX, -_INT32_MAX - 1)
_ENDLESS: Final = (1 << 63) - 1
"""The largest 64-bit integer: no axis reaches it, and slices write it for the end."""
_PLUS: Final = ARITHMETIC["Add"]
_MINUS: Final = ARITHMETIC["Sub"]
_TIMES: Final = ARITHMETIC["Mul"]
