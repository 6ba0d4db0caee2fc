"""Static facts of splits, and the decisions of rewrites that depend only on sizes.

On every input that matches the declared types and shapes, a simplified model must return the same outputs
and fail if the original fails. A split that could fail, such as a split of a dynamic axis by fixed lengths,
must therefore not be removed: see :func:`is_always_valid`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.arithmetic import Division, compute_part_sizes, count_parts, find_violation
from splitops.spec.sizes.dims import UNKNOWN, Dim
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding
from splitops.splitting.inference import infer_binding

MAX_OUTPUTS: Final = 1 << 12
"""Maximum number of parts that a rewrite adds as outputs, puts into a sequence or slices dynamically."""


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """The properties of a split that are known without running the model.

    Attributes:
        axis: split axis, in [0, rank).
        rank: rank of the data.
        size: size of the axis.
        division: size rule with its lengths, count or chunk.
        parts: size of each output, or of each element of a sequence; empty if their number is unknown or too
            large.
        squeeze: whether the axis is removed from the parts.
    """

    axis: int
    rank: int
    size: Dim
    division: Division
    parts: tuple[Dim, ...]
    squeeze: bool = False

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the parts, or None if one is unknown. Empty if ``parts`` is empty."""
        found = tuple(part for part in self.parts if isinstance(part, int))
        return found if len(found) == len(self.parts) else None

    @property
    def elements(self) -> tuple[int, ...] | None:
        """The sizes of the elements of a sequence, or None if their number is unknown or too large."""
        none = self.size == 0 or self.division.rule is SizeRule.EXPLICIT
        return self.sizes if self.parts or none else None

    @property
    def complete(self) -> bool:
        """Whether the parts certainly cover the axis, although a node may have fewer outputs than parts."""
        if self.division.rule not in (SizeRule.EVEN, SizeRule.CEIL) or self.division.count == len(self.parts):
            return True
        return self.sizes is not None and sum(self.sizes) == self.size

    @property
    def removable(self) -> bool:
        """Whether the split is valid for every possible size of the axis: removing it hides no error."""
        return is_always_valid(self.division, self.size)


def read_split_facts(binding: Binding) -> SplitFacts | None:
    """Return the facts of a valid split, or None if its axis, rank, division or ``squeeze`` is unknown."""
    shape, axis, division = binding.data.shape, binding.axis, binding.division
    if shape is None or axis is None or division is None or binding.squeeze is None:
        return None
    parts: tuple[Dim, ...] = ()
    size = shape[axis]
    if binding.schema.gives_sequence:
        # If the size of the axis is unknown, only lengths determine the number of elements.
        if isinstance(size, int) and division.rule is SizeRule.CHUNK:
            count = count_parts(division, size)
            parts = compute_part_sizes(division, size, count) if count <= MAX_OUTPUTS else ()
        elif division.rule is SizeRule.EXPLICIT:
            parts = division.lengths
    else:
        shapes = infer_binding(binding).parts or ()
        parts = tuple(UNKNOWN if shape is None else shape[axis] for shape in shapes)
    return SplitFacts(axis, len(shape), size, division, parts, binding.squeeze)


def is_always_valid(division: Division, size: Dim) -> bool:
    """Return whether a division is valid for every value in the range of ``size``.

    Examples:
        >>> is_always_valid(Division(SizeRule.CEIL, count=2), UNKNOWN)
        True
        >>> is_always_valid(Division(SizeRule.EXPLICIT, lengths=(2, 3)), UNKNOWN)
        False
        >>> is_always_valid(Division(SizeRule.EXPLICIT, lengths=(2, 3)), 5)
        True
    """
    if isinstance(size, int):
        return find_violation(division, size) is None
    match division.rule:
        case SizeRule.CEIL | SizeRule.CHUNK:
            return True
        case SizeRule.EVEN:
            return division.count == 1
        case SizeRule.REMAINDER:  # a larger size is valid if the smallest is
            return find_violation(division, size.lo) is None
        case SizeRule.EXPLICIT:
            return False


def is_same_size(left: Dim, right: Dim) -> bool:
    """Return whether two sizes are certainly equal: the same number or the same symbol."""
    if isinstance(left, int) or isinstance(right, int):
        return left == right
    return left.name is not None and left.name == right.name


# Parts


def find_whole_part(parts: Sequence[Dim]) -> int | None:
    """Return the index of the only part, or of the only part that may be non-empty. Return None otherwise.

    Examples:
        >>> [find_whole_part(parts) for parts in ([0, 6, 0], [3, 3], [UNKNOWN], [0, UNKNOWN])]
        [1, None, 0, 1]
    """
    if len(parts) == 1:
        return 0
    needed = find_nonempty_parts(parts)
    return needed[0] if len(needed) == 1 else None


def find_nonempty_parts(parts: Sequence[Dim]) -> list[int]:
    """Return the indices of the parts that may be non-empty."""
    return [index for index, part in enumerate(parts) if part != 0]


def is_whole(parts: Sequence[Dim], order: Sequence[int], needed: Sequence[int]) -> bool:
    """Return whether the parts with indices ``order``, in this order, make up the whole axis.

    ``order`` must increase, even for empty parts, which may be missing. ``needed`` is the result of
    :func:`find_nonempty_parts`. It is passed to avoid computing it again for thousands of parts.

    Examples:
        >>> is_whole([2, 0, 3], [0, 2], [0, 2]), is_whole([2, 3], [1, 0], [0, 1])
        (True, False)
        >>> is_whole([2, 3], [0], [0, 1])
        False
    """
    given = [index for index in order if parts[index] != 0]
    return given == needed and list(order) == sorted(set(order))


Group = range
"""Indices of neighbouring parts, pieces or items that belong together."""


def group_parts(sizes: Sequence[int], used: Sequence[bool]) -> list[Group]:
    """Merge neighbouring unused parts. Return the resulting groups, in which each used part is alone.

    Groups of unused parts that are all empty are left out.

    Examples:
        >>> group_parts([2, 3, 0, 4], [True, False, False, True])
        [range(0, 1), range(1, 3), range(3, 4)]
        >>> group_parts([2, 0, 4], [True, False, True])
        [range(0, 1), range(2, 3)]
    """
    groups: list[Group] = []
    for index, is_used in enumerate(used):
        if is_used or not groups or used[index - 1]:
            groups.append(range(index, index + 1))
        else:
            groups[-1] = range(groups[-1].start, index + 1)
    return [group for group in groups if used[group.start] or any(sizes[index] for index in group)]


def sum_groups(sizes: Sequence[int], groups: Sequence[Group]) -> tuple[int, ...]:
    """Return the size of each group: the sum of the sizes of its parts.

    Examples:
        >>> sum_groups([1, 2, 3], [range(0, 2), range(2, 3)])
        (3, 3)
    """
    return tuple(sum(sizes[index] for index in group) for group in groups)


def find_runs(items: Sequence[tuple[Hashable, int] | None]) -> list[Group]:
    """Return the ranges of two or more items that are consecutive parts of one split.

    An item is the split and the index of the part, or None for values that are not parts.

    Examples:
        >>> find_runs([("s", 0), ("s", 1), None, ("s", 2), ("t", 3)])
        [range(0, 2)]
    """
    runs: list[Group] = []
    begin = 0
    for end in range(1, len(items) + 1):
        before, item = items[end - 1], items[end] if end < len(items) else None
        if before is not None and item is not None and item == (before[0], before[1] + 1):
            continue
        if end - begin > 1:
            runs.append(range(begin, end))
        begin = end
    return runs


def group_pieces(pieces: Sequence[int], parts: Sequence[int]) -> list[Group] | None:
    """Return the range of pieces that makes up each part.

    Return None if a part ends inside a piece, if a size is 0, or if the sums of the sizes differ.

    Examples:
        >>> group_pieces([2, 1, 3], [3, 3])
        [range(0, 2), range(2, 3)]
        >>> group_pieces([2, 4], [3, 3]) is None
        True
    """
    positions = {end: index + 1 for index, end in enumerate(accumulate(pieces))}
    if 0 in (*pieces, *parts) or sum(pieces) != sum(parts):
        return None
    stops = [positions.get(end) for end in accumulate(parts)]
    groups, begin = [], 0
    for stop in stops:
        if stop is None:
            return None
        groups.append(range(begin, stop))
        begin = stop
    return groups


# Slices


def partition(spans: Sequence[tuple[int, int]], size: int) -> tuple[tuple[int, int], ...] | None:
    """Choose spans that cover an axis of ``size`` without gaps or overlaps. Return them in order.

    Return None if that is impossible or ``size`` is 0.

    Examples:
        >>> partition([(2, 6), (0, 2), (1, 3)], 6)
        ((0, 2), (2, 6))
        >>> partition([(0, 2), (3, 6)], 6) is None
        True
    """
    following: dict[int, tuple[int, int]] = {}
    # Work from the end: a span is usable if others cover the axis after it. Shorter spans are preferred.
    for begin, end in sorted(set(spans), key=lambda span: (-span[0], -span[1])):
        if begin < end and (end == size or end in following):
            following[begin] = begin, end
    found = []
    position = 0
    while position < size and position in following:
        found.append(following[position])
        position = following[position][1]
    return tuple(found) if found and position == size else None


# Forms


def find_shortest(
    schemas: Sequence[OperatorSchema], sizes: Sequence[int], size: Dim
) -> tuple[OperatorSchema, Division]:
    """Return a version and a division with these part sizes: a number of parts if possible, or else lengths.

    On an axis of unknown size, lengths are used, because they check the size. A number of parts by the ceil
    rule is not used if the last part would be empty, because some runtimes reject that.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> for opset in (13, 18):
        ...     row, division = find_shortest([schema("Split", opset)], (2, 2, 1), 5)
        ...     print(row, division.rule)
        Split-13 SizeRule.EXPLICIT
        Split-18 SizeRule.CEIL
    """
    for schema in schemas:
        if schema.count_rule is not None and sizes and isinstance(size, int):
            count = Division(schema.count_rule, count=len(sizes))
            if _has_sizes(count, size, sizes) and (schema.count_rule is not SizeRule.CEIL or sizes[-1]):
                return schema, count
    return next(schema for schema in schemas if schema.lengths), Division(
        SizeRule.EXPLICIT, lengths=tuple(sizes)
    )


def _has_sizes(division: Division, size: int, sizes: Sequence[int]) -> bool:
    if find_violation(division, size) is not None:
        return False
    return compute_part_sizes(division, size, len(sizes)) == tuple(sizes)


# Constants


def split_array(array: npt.NDArray[Any], axis: int, sizes: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Return the parts of an array as contiguous arrays. They are views of the array if possible."""
    ends = list(accumulate(sizes))
    index = (slice(None),) * axis
    return [
        np.ascontiguousarray(array[(*index, slice(end - size, end))])
        for size, end in zip(sizes, ends, strict=True)
    ]


def find_byte_ranges(
    shape: Sequence[int], axis: int, sizes: Sequence[int], element_type: ElementType
) -> list[tuple[tuple[int, ...], int, int]] | None:
    """Return the shape, byte offset and byte size of each part, if the parts are consecutive runs of bytes.

    Return None if an axis before ``axis`` does not have size 1, a part does not consist of whole bytes, or
    the elements have no fixed size.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> kind = ELEMENT_TYPES["float32"]
        >>> find_byte_ranges((4, 3), 0, [1, 3], kind), find_byte_ranges((4, 3), 1, [1, 2], kind)
        ([((1, 3), 0, 12), ((3, 3), 12, 36)], None)
    """
    row_bits = math.prod(shape[axis + 1 :]) * element_type.bits
    if not element_type.bits or math.prod(shape[:axis]) != 1 or any(size * row_bits % 8 for size in sizes):
        return None
    begins = [begin * row_bits // 8 for begin in accumulate(sizes, initial=0)][:-1]
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    return list(zip(shapes, begins, (size * row_bits // 8 for size in sizes), strict=True))
