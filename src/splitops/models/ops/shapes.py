"""Shape arithmetic with partly known sizes, shared by all operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Final, TypeVar

from splitops.common.integers import INT32_MAX, INT64_MAX
from splitops.models.abstract_values import MAX_ELEMENTS, AbstractSequence, Entry, meet_shapes
from splitops.models.ops.integer_math import add, multiply, subtract
from splitops.models.ops.operator import Operands, Unknown
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, make_dim

D = TypeVar("D", int, Dim)


def normalise_axis(axis: int, rank: int) -> int:
    """Return an axis as a non-negative index. Raise Unknown if a tensor of rank ``rank`` does not have it.

    Examples:
        >>> normalise_axis(-1, 3)
        2
    """
    if not -rank <= axis < rank:
        raise Unknown(f"axis {axis} is not an axis of rank {rank}")
    return axis % rank


def read_axes(operands: Operands, rank: int, default: Sequence[int] | None = None) -> list[int]:
    """Return the operand ``axes`` as non-negative indices. It is ``default`` or all axes if it is absent."""
    axes = operands.get_integers("axes", range(rank) if default is None else default)
    return [normalise_axis(axis, rank) for axis in axes]


def unsqueeze(shape: Sequence[D], axes: Sequence[int]) -> tuple[D | int, ...]:
    """Insert axes of size 1 into a shape. ``axes`` are counted in the result.

    Examples:
        >>> unsqueeze((4, 5), [0, -1])
        (1, 4, 5, 1)
    """
    rank = len(shape) + len(axes)
    added = {normalise_axis(axis, rank) for axis in axes}
    if len(added) < len(axes):
        raise Unknown(f"axes = {list(axes)} repeat one another")
    sizes = iter(shape)
    return tuple(1 if axis in added else next(sizes) for axis in range(rank))


def gather(shape: Sequence[D], axis: int, positions: Sequence[D]) -> tuple[D, ...]:
    """Return the shape of a Gather: the shape ``positions`` replaces the size of the non-negative ``axis``.

    Examples:
        >>> gather((4, 5, 6), 1, (2, 3))
        (4, 2, 3, 6)
    """
    return tuple(chain(shape[:axis], positions, shape[axis + 1 :]))


def concatenate(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of a concatenation. Symbolic sizes are added: ``N - 2`` and 2 become ``N``.

    Examples:
        >>> concatenate([(Range(name="N - 2"), 4), (2, Range())], 0)
        (Range(lo=2, hi=None, name='N'), 4)
    """
    axis = normalise_axis(axis, len(shapes[0]))
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise Unknown("the ranks differ")
    dims: list[Dim] = []
    for index, column in enumerate(zip(*shapes, strict=True)):
        if index == axis:
            dims.append(to_size(reduce(add, column)))
            continue
        known: Dim = column[0]
        for dim in column[1:]:
            if dim != known:
                known = (meet_shapes((known,), (dim,)) or (known,))[0]
        dims.append(known)
    return tuple(dims)


def join_sequence(sequence: AbstractSequence, axis: int, *, stacked: bool) -> Shape:
    """Return the shape of a sequence concatenated along ``axis``, which is a new axis if ``stacked`` is set.

    Examples:
        >>> from splitops.models.abstract_values import AbstractTensor
        >>> parts = AbstractSequence(AbstractTensor(shape=(Range(0, 2), 5)), axis=0, total=Range(name="N"))
        >>> join_sequence(parts, 0, stacked=False)
        (Range(lo=0, hi=None, name='N'), 5)
    """
    shape = sequence.element.shape
    if shape is None:
        raise Unknown("the elements are unknown")
    axis = normalise_axis(axis, len(shape) + stacked)
    if stacked:
        return (*shape[:axis], sequence.length, *shape[axis:])
    size = sequence.total if axis == sequence.axis else to_size(multiply(sequence.length, shape[axis]))
    return (*shape[:axis], size, *shape[axis + 1 :])


def resolve_reshape(shape: Shape | None, entries: Sequence[Entry], *, copies_zero: bool) -> Shape:
    """Return the shape of the result of a Reshape.

    Args:
        shape: shape of the data, or None if its rank is unknown.
        entries: elements of the input ``shape``: sizes, 0, -1 and unknown ones. A named size is
            used unchanged, even if it might be a 0 that copies a size.
        copies_zero: whether a 0 copies the size of the data at its position.

    Raises:
        Unknown: the data has no axis from which a 0 could copy its size.

    Examples:
        >>> resolve_reshape((Range(name="N"), 768), [0, 12, -1], copies_zero=True)
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
        dims[at] = _divide_sizes(shape, [*dims[:at], *dims[at + 1 :]])
    return tuple(dims)


def _divide_sizes(dims: Sequence[Dim], divisors: Sequence[Dim]) -> Dim:
    """Divide the product of ``dims`` by that of ``divisors``, after cancelling common symbols."""
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


def to_size(entry: Entry) -> Dim:
    """Convert an entry to a size, or UNKNOWN if it is not one. A range that may be negative loses its name.

    Examples:
        >>> to_size(3), to_size(None) == UNKNOWN, to_size(Range(-1, 5, "N - 1"))
        (3, True, Range(lo=0, hi=5, name=None))
    """
    if isinstance(entry, int) and entry >= 0:
        return int(entry)
    if not isinstance(entry, Range) or (entry.hi is not None and entry.hi < 0):
        return UNKNOWN
    return entry if entry.lo >= 0 else make_dim(0, entry.hi)


def clamp_negative(entry: Entry) -> Entry:
    """Remove negative numbers, for which a node would fail, from an entry. Return None if nothing is left.

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
    """Return the shape to which two shapes are broadcast, as in NumPy.

    Examples:
        >>> broadcast((1, 5), (Range(name="N"), 1, 1))
        (Range(lo=0, hi=None, name='N'), 1, 5)
    """
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)]
    return tuple(_broadcast_size(a, b) for a, b in zip(*padded, strict=True))


def _broadcast_size(left: Dim, right: Dim) -> Dim:
    if left == 1 or (left == right and (isinstance(left, int) or left.name is not None)):
        return right
    if right == 1:
        return left
    if isinstance(left, int) or isinstance(right, int):
        if isinstance(left, int) and isinstance(right, int):
            raise Unknown("the sizes exclude one another")
        return left if isinstance(left, int) else right  # the other size is this one or 1
    if left.lo > 1 and right.lo > 1:  # neither is 1, so they are equal
        return (meet_shapes((left,), (right,)) or (UNKNOWN,))[0]
    if left.lo > 1 or right.lo > 1:
        return left if left.lo > 1 else right  # the other size is this one or 1
    hi = None if left.hi is None or right.hi is None else max(left.hi, right.hi)
    return make_dim(min(left.lo, right.lo), hi)


def count_elements(shape: Shape) -> Entry:
    """Return the product of the sizes of a shape.

    Examples:
        >>> count_elements((Range(name="N"), 2)), count_elements(())
        (Range(lo=0, hi=None, name='2*N'), 1)
    """
    if len(shape) > MAX_ELEMENTS:
        raise Unknown("too many sizes")
    sizes: list[Entry] = [1, *(None if dim == UNKNOWN else dim for dim in shape)]
    return reduce(multiply, sizes)


def count_range(start: Entry, limit: Entry, step: int) -> Dim:
    """Return the output length of a Range operator from ``start`` to ``limit`` with a positive ``step``.

    Examples:
        >>> count_range(0, Range(name="N"), 2), count_range(2, 9, 3)
        (Range(lo=0, hi=None, name='ceil(N/2)'), 3)
    """
    distance = subtract(limit, start)
    return max(0, -(-distance // step)) if isinstance(distance, int) else divide_up(to_size(distance), step)


def clamp(size: int, bounds: slice) -> slice:
    """Return the Python slice of the positions that ``bounds`` selects in ONNX and OpenVINO.

    There, a backward slice with a start before the first position starts at the first position. In Python,
    that slice is empty.

    Examples:
        >>> clamp(2, slice(-3, -99, -1)), clamp(2, slice(-1, -99, -1)), clamp(2, slice(-3, 2, 1))
        (slice(-2, -99, -1), slice(-1, -99, -1), slice(-3, 2, 1))
    """
    if bounds.step < 0 and bounds.start < -size:
        return slice(-size, bounds.stop, bounds.step)
    return bounds


def list_positions(size: int, bounds: slice) -> range:
    """Return the positions of an axis that a slice selects in ONNX and OpenVINO.

    Examples:
        >>> list_positions(5, slice(-9, -99, -1)), list_positions(5, slice(-2, 9, 1))
        (range(0, -1, -1), range(3, 5))
    """
    return range(size)[clamp(size, bounds)]


def slice_size(size: Dim, start: Entry, end: Entry, step: int = 1) -> Dim:
    """Return the size of a slice of an axis.

    Examples:
        >>> slice_size(Range(name="N"), 0, INT64_MAX), slice_size(Range(2, 9, "N"), 1, -1)
        (Range(lo=0, hi=None, name='N'), Range(lo=0, hi=7, name='N - 2'))
        >>> slice_size(512, 0, Range(name="N"))
        Range(lo=0, hi=512, name=None)
        >>> slice_size(5, -1, -99, -2), slice_size(Range(2, 9), 0, 9, 2)
        (3, Range(lo=1, hi=5, name=None))
        >>> slice_size(Range(name="N"), 0, INT32_MAX), slice_size(Range(name="N"), -1, -(1 << 63), -1)
        (Range(lo=0, hi=None, name='N'), Range(lo=0, hi=None, name='N'))
        >>> slice_size(5, -6, -99, -1), slice_size(0, -6, -99, -1)
        (1, 0)
    """
    if isinstance(start, bool | float) or isinstance(end, bool | float) or step == 0:
        return UNKNOWN
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(list_positions(size, slice(start, end, step)))
    count = _count_forward(size, start, end) if step > 0 else _count_backward(size, start, end)
    return divide_up(count, abs(step))


def _count_forward(size: Dim, start: int | Range | None, end: int | Range | None) -> Dim:
    """Return the number of positions of a slice with step 1."""
    if _is_endless(end, size):
        if isinstance(start, int) and start < 0:
            return _get_smaller(-start, size)
        end = INT64_MAX
    distance = subtract(_normalise_bound(size, end), _normalise_bound(size, start))
    if isinstance(distance, int):
        return max(0, distance)
    count = to_size(distance)
    return count if isinstance(count, Range) and count.name is not None else _get_smaller(count, size)


def _count_backward(size: Dim, start: int | Range | None, end: int | Range | None) -> Dim:
    """Return the number of positions of a slice with step -1."""
    if not isinstance(start, int) or not isinstance(end, int) or not _is_before(end, size):
        return _get_smaller(UNKNOWN, size)
    if start == -1 or _is_endless(start, size):
        return size
    if start >= 0:
        return _get_smaller(start + 1, size)
    if start < -_get_min(size):  # on a smaller axis, it is the first position
        return make_dim(min(_get_min(size), 1), size.hi) if isinstance(size, Range) else UNKNOWN
    return to_size(add(size, start + 1))


def _is_endless(index: Entry, size: Dim) -> bool:
    """Return whether a bound is at or past the end of an axis, or INT_MAX, which ONNX recommends for this."""
    is_open = isinstance(size, Range) and size.hi is None
    return _get_min(index) >= _get_max(size) or (is_open and index == INT32_MAX)


def _is_before(index: int, size: Dim) -> bool:
    """Return whether a bound is before the start of an axis, or INT_MIN, which ONNX recommends for this."""
    is_open = isinstance(size, Range) and size.hi is None
    return index < -_get_max(size) or (is_open and (index in _BEFORE or index <= -INT64_MAX))


def divide_up(size: Dim, step: int) -> Dim:
    """Divide a size by a step and round up."""
    if step == 1:
        return size
    if isinstance(size, int):
        return -(-size // step)
    name = None if size.name is None else symbols.divide_up(size.name, step)
    hi = None if size.hi is None else -(-size.hi // step)
    return make_dim(-(-size.lo // step), hi, name if isinstance(name, str) else None)


def _normalise_bound(size: Dim, index: int | Range | None) -> Entry:
    """Return the bound of a slice as a non-negative position, clamped to the size of the axis."""
    if isinstance(index, int) and index < 0:
        place = add(size, index)
        return max(0, place) if isinstance(place, int) else place if _get_min(place) >= 0 else to_size(place)
    if index is None or _get_min(index) < 0:
        return _get_smaller(UNKNOWN, size)
    return _get_smaller(index, size)


def _get_smaller(number: Dim, size: Dim) -> Dim:
    """Return the smaller of two sizes, as a range if it depends on unknown sizes."""
    if number == size or _get_max(size) <= _get_min(number) or _get_min(number) >= INT64_MAX:
        return size
    if _get_max(number) <= _get_min(size):
        return number
    lo, hi = min(_get_min(number), _get_min(size)), min(_get_max(number), _get_max(size))
    return make_dim(lo, None if hi >= INT64_MAX else hi)


def _get_min(entry: Entry) -> int:
    return entry.lo if isinstance(entry, Range) else int(entry or 0)


def _get_max(size: Dim) -> int:
    return size if isinstance(size, int) else INT64_MAX if size.hi is None else size.hi


_BEFORE: Final = (-INT32_MAX, -INT32_MAX - 1)
