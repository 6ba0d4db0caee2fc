"""Inference of the outputs of one split from partly known inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, make_dim
from splitops.spec.sizes.ranges import (
    bound_chunk,
    bound_count,
    bound_part,
    find_valid_sizes,
    hull,
    merge_unknown_lengths,
)
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding
from splitops.splitting.planning import MAX_PARTS, make_parts_error


@dataclass(frozen=True, slots=True)
class Inference:
    """Inferred outputs of a split, and the shape that it implies for its input.

    Attributes:
        data: shape of the data; if only one axis can be split, that axis is narrowed to valid sizes. None if
            the rank is unknown.
        parts: shape of each part, in order, with None for unknown ranks; None if the number of parts is
            unknown, or the operator returns a sequence.
        element: common shape of all parts of a sequence; None if its rank is unknown, or the operator does
            not return a sequence.
        count: number of parts.
    """

    data: Shape | None
    parts: tuple[Shape | None, ...] | None
    element: Shape | None
    count: Dim


def infer_binding(binding: Binding) -> Inference:
    """Infer the number and the shapes of the parts of a valid split, some of whose properties may be unknown.

    The shapes contain every possible result. Raise PartsError for more than :data:`MAX_PARTS` outputs.
    """
    axes = _find_axes(binding)
    shape, sequence = binding.data.shape, binding.schema.gives_sequence
    count = _count(binding, axes)
    if isinstance(count, int) and count > MAX_PARTS and not sequence:
        raise make_parts_error(binding.schema, f"{count} parts are requested", count, binding.where)
    parts: tuple[Shape | None, ...] | None = None
    if not sequence and isinstance(count, int):
        parts = (None,) * count
        if shape is not None:
            columns = [_infer_parts(binding, shape, axis, count) for axis in axes]
            parts = columns[0] if len(columns) == 1 else tuple(map(_join, zip(*columns, strict=True)))
    element = None
    if sequence and shape is not None and binding.squeeze is not None:
        element = _join(_infer_element(binding, shape, axis) for axis in axes)
    return Inference(_tighten(binding, axes), parts, element, count)


def join_shapes(shapes: Iterable[Shape | None]) -> Shape | None:
    """Return the smallest shape that contains all shapes, or None if there are none or ranks may differ.

    Examples:
        >>> join_shapes([(2, 3), (4, 3)])
        (Range(lo=2, hi=4, name=None), 3)
    """
    found = list(shapes)
    if not found or any(shape is None or len(shape) != len(found[0] or ()) for shape in found):
        return None
    return _join(shape for shape in found if shape is not None)


def _join(shapes: Iterable[Shape]) -> Shape:
    columns = zip(*shapes, strict=True)
    return tuple(dim if (dim := hull(*column)) is not None else UNKNOWN for column in columns)


def _find_axes(binding: Binding) -> tuple[int, ...]:
    """Return the possible split axes: the known one, or all of a valid size; empty if the rank is unknown."""
    shape = binding.data.shape
    if shape is None:
        return ()
    if binding.axis is not None:
        return (binding.axis,)
    least = _find_min_division(binding)
    return tuple(
        i for i, dim in enumerate(shape) if least is None or find_valid_sizes(least, dim) is not None
    )


def _find_min_division(binding: Binding) -> Division | None:
    """Return a division that accepts every valid size of the axis, or None if the lengths are unknown."""
    if binding.division is not None or binding.lengths is None:
        return binding.division
    return merge_unknown_lengths(binding.lengths)


def _tighten(binding: Binding, axes: tuple[int, ...]) -> Shape | None:
    """Return the shape of the data. If only one axis may be split, that axis is narrowed to valid sizes."""
    shape, least = binding.data.shape, _find_min_division(binding)
    if shape is None or least is None or len(axes) != 1:
        return shape
    dim = shape[axes[0]]
    found = find_valid_sizes(least, dim)
    assert found is not None
    if isinstance(found, Range) and isinstance(dim, Range):
        found = Range(found.lo, found.hi, dim.name)
    return (*shape[: axes[0]], found, *shape[axes[0] + 1 :])


# Single parts of a known axis


def _infer_parts(binding: Binding, shape: Shape, axis: int, count: int) -> tuple[Shape, ...]:
    before, after = shape[:axis], shape[axis + 1 :]
    return tuple((*before, size, *after) for size in _infer_part_sizes(binding, shape[axis], count))


def _infer_part_sizes(binding: Binding, size: Dim, count: int) -> tuple[Dim, ...]:
    """Infer the sizes of the first ``count`` parts of an axis."""
    division, lengths = binding.division, binding.lengths
    if division is None:
        if lengths is None:
            return (_make_bounded(size),) * count
        least = merge_unknown_lengths(lengths)
        free = _infer_part_size(least, size, len(least.lengths) - 1)
        if sum(length is None or length < 0 for length in lengths) > 1:
            free = _make_bounded(free)
        return _fill(lengths, free)
    if isinstance(size, int):
        return compute_part_sizes(division, size, count)
    match division.rule:
        case SizeRule.EXPLICIT:
            return division.lengths
        case SizeRule.REMAINDER:
            return _fill(division.lengths, _infer_part_size(division, size, division.lengths.index(-1)))
        case SizeRule.EVEN:
            return (_infer_part_size(division, size, 0),) * count
        case _:
            return tuple(_infer_part_size(division, size, index) for index in range(count))


def _fill(lengths: Iterable[int | None], free: Dim) -> tuple[Dim, ...]:
    return tuple(free if length is None or length < 0 else length for length in lengths)


def _infer_part_size(division: Division, size: Dim, index: int) -> Dim:
    return _add_name(bound_part(division, size, index), make_part_name(division, size, index))


def _make_bounded(size: Dim) -> Dim:
    return make_dim(0, size if isinstance(size, int) else size.hi)


def _add_name(found: Dim, name: str | int | None) -> Dim:
    if isinstance(found, int) or not isinstance(name, str):
        return found
    return Range(found.lo, found.hi, name)


def make_part_name(division: Division, size: Dim, index: int) -> str | int | None:
    """Return the size of a part as an expression with the symbol of the axis, or None if there is none."""
    name = size.name if isinstance(size, Range) else None
    if name is None:
        return None
    match division.rule:
        case SizeRule.REMAINDER:
            return symbols.subtract(name, sum(division.lengths) + 1) if division.lengths[index] < 0 else None
        case SizeRule.EVEN:
            return symbols.divide(name, division.count)
        case SizeRule.CEIL if index == 0:
            return symbols.divide_up(name, division.count)
        case SizeRule.CEIL if division.count == 2:
            first = symbols.divide_up(name, 2)
            return None if first is None else symbols.subtract(name, first)
        case _:
            return None


# All parts of a known axis, and their number


def _infer_element(binding: Binding, shape: Shape, axis: int) -> Shape:
    before, after = shape[:axis], shape[axis + 1 :]
    return before + after if binding.squeeze else (*before, _infer_element_size(binding, shape[axis]), *after)


def _infer_element_size(binding: Binding, size: Dim) -> Dim:
    """Infer a dimension that contains all part sizes. Without any parts, it is the chunk size or unknown."""
    division, lengths = binding.division, binding.lengths
    if division is not None and division.rule is SizeRule.CHUNK:
        found = bound_chunk(division, size)
        return division.chunk if found is None else found
    known = lengths if division is None else division.lengths
    if known is not None:
        found = hull(*_infer_part_sizes(binding, size, len(known)))
        return UNKNOWN if found is None else found
    if binding.lengths_shape == ():
        positive = make_dim(1, size) if isinstance(size, int) else make_dim(1, size.hi)
        return UNKNOWN if isinstance(positive, Range) and positive.hi == 0 else positive
    return _make_bounded(size)


def _count(binding: Binding, axes: tuple[int, ...]) -> Dim:
    outputs = None if binding.schema.gives_sequence else binding.outputs
    if outputs is not None:
        return outputs
    division, shape = binding.division, binding.data.shape
    if division is None:
        if binding.lengths is not None:
            return len(binding.lengths)
        sizes = [UNKNOWN] if shape is None else [shape[axis] for axis in axes]
        size = hull(*sizes)
        return _infer_count(binding, UNKNOWN if size is None else size)
    if division.rule is not SizeRule.CHUNK:
        return count_parts(division, 0)  # the number does not depend on the size
    if shape is None:
        return UNKNOWN
    counts = [
        _add_name(
            bound_count(division, shape[axis]),
            symbols.divide_up(name, division.chunk) if (name := _name(shape[axis])) else None,
        )
        for axis in axes
    ]
    found = hull(*counts)
    return UNKNOWN if found is None else found


def _infer_count(binding: Binding, size: Dim) -> Dim:
    """Infer the number of parts if the number of lengths is unknown."""
    shape = binding.lengths_shape
    lo, hi = (size, size) if isinstance(size, int) else (size.lo, size.hi)
    if shape == ():
        return make_dim(min(lo, 1), hi)
    if shape is not None and len(shape) == 1 and not isinstance(shape[0], int):
        return make_dim(max(shape[0].lo, min(lo, 1)), shape[0].hi)
    return make_dim(min(lo, 1), None)


def _name(size: Dim) -> str | None:
    return size.name if isinstance(size, Range) else None
