"""What may be simplified, decided on sizes alone: pure functions that ONNX and OpenVINO models share.

The contract of every rewrite: on every input that fits the declared types and shapes, the simplified model
gives what the original gives, and fails where the original fails. So a split that *could* fail (lengths that
a dynamic axis need not have) is never removed: :func:`cannot_fail` says which ones can go.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.spec.elements.types import ElementType
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.arithmetic import Division, part_count, part_sizes, violation
from splitops.spec.sizes.dims import UNKNOWN, Dim
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding
from splitops.splitting.inference import infer_binding


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """One split, as far as it is known before the model runs.

    Attributes:
        axis: the split axis, in [0, rank).
        rank: the rank of the data.
        size: the size of the axis.
        division: how it is divided.
        parts: the size of each output; of a sequence, of each element, where their number is known.
        squeeze: whether the parts lose the axis.
    """

    axis: int
    rank: int
    size: Dim
    division: Division
    parts: tuple[Dim, ...]
    squeeze: bool = False

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the parts where all are known."""
        found = tuple(part for part in self.parts if isinstance(part, int))
        return found if len(found) == len(self.parts) else None

    @property
    def elements(self) -> tuple[int, ...] | None:
        """The sizes of the elements of a sequence; None where their number is not known."""
        none = self.size == 0 or self.division.rule is SizeRule.EXPLICIT
        return self.sizes if self.parts or none else None

    @property
    def complete(self) -> bool:
        """Whether the parts are the whole axis: a Split may declare fewer outputs than it makes parts."""
        if self.division.rule is not SizeRule.CEIL or self.division.count == len(self.parts):
            return True
        return self.sizes is not None and sum(self.sizes) == self.size

    @property
    def removable(self) -> bool:
        """Whether the split succeeds on every axis that the data can have."""
        return cannot_fail(self.division, self.size)


def read_split_facts(binding: Binding) -> SplitFacts | None:
    """Return what a proved split does; None where axis, rank or lengths are known only when it runs."""
    shape, axis, division = binding.data.shape, binding.axis, binding.division
    if shape is None or axis is None or division is None or binding.squeeze is None:
        return None
    parts: tuple[Dim, ...] = ()
    size = shape[axis]
    if binding.schema.gives_sequence:
        # Of an axis of unknown size, only given lengths say how many elements there are.
        if isinstance(size, int) and division.rule is SizeRule.CHUNK:
            count = part_count(division, size)
            parts = part_sizes(division, size, count) if count <= _MAX_PARTS else ()
        elif division.rule is SizeRule.EXPLICIT:
            parts = division.lengths
    else:
        shapes = infer_binding(binding).parts or ()
        parts = tuple(UNKNOWN if shape is None else shape[axis] for shape in shapes)
    return SplitFacts(axis, len(shape), size, division, parts, binding.squeeze)


_MAX_PARTS = 1 << 12
"""A sequence of more elements is not taken apart: nobody wants a Split of so many outputs."""


def cannot_fail(division: Division, size: Dim) -> bool:
    """Return whether every axis of this size can be divided so.

    Examples:
        >>> cannot_fail(Division(SizeRule.CEIL, count=2), UNKNOWN)
        True
        >>> cannot_fail(Division(SizeRule.EXPLICIT, lengths=(2, 3)), UNKNOWN)
        False
        >>> cannot_fail(Division(SizeRule.EXPLICIT, lengths=(2, 3)), 5)
        True
    """
    if isinstance(size, int):
        return violation(division, size) is None
    match division.rule:
        case SizeRule.CEIL | SizeRule.CHUNK:
            return True
        case SizeRule.EVEN:
            return division.count == 1
        case SizeRule.REMAINDER:  # more is never wrong where the least is not
            return violation(division, size.lo) is None
        case SizeRule.EXPLICIT:
            return False


def same_size(left: Dim, right: Dim) -> bool:
    """Return whether two sizes are known to be equal: the same number, or of the same name."""
    if isinstance(left, int) or isinstance(right, int):
        return left == right
    return left.name is not None and left.name == right.name


# Parts


def find_whole_part(parts: Sequence[Dim]) -> int | None:
    """Return the part that is the whole axis: the only one, or the only one that is not empty.

    Examples:
        >>> [find_whole_part(parts) for parts in ([0, 6, 0], [3, 3], [UNKNOWN], [0, UNKNOWN])]
        [1, None, 0, 1]
    """
    if len(parts) == 1:
        return 0
    needed = filled(parts)
    return needed[0] if len(needed) == 1 else None


def filled(parts: Sequence[Dim]) -> list[int]:
    """Return the parts that may have elements."""
    return [index for index, part in enumerate(parts) if part != 0]


def whole(parts: Sequence[Dim], order: Sequence[int], needed: Sequence[int]) -> bool:
    """Return whether some parts, one behind the other, are the whole axis: none is missing but empty ones.

    It takes time linear in ``order``, since thousands of pieces of one split may be asked for; ``needed`` are
    its :func:`filled` parts.

    Examples:
        >>> whole([2, 0, 3], [0, 2], [0, 2]), whole([2, 3], [1, 0], [0, 1]), whole([2, 3], [0], [0, 1])
        (True, False, False)
    """
    given = [index for index in order if parts[index] != 0]
    return given == needed and list(order) == sorted(set(order))


Group = range
"""Neighbouring parts that become one."""


def useful_groups(sizes: Sequence[int], used: Sequence[bool]) -> list[Group]:
    """Return which parts are worth an output: each used one alone, unused neighbours together, no empty ones.

    Examples:
        >>> useful_groups([2, 3, 0, 4], [True, False, False, True])
        [range(0, 1), range(1, 3), range(3, 4)]
        >>> useful_groups([2, 0, 4], [True, False, True])
        [range(0, 1), range(2, 3)]
    """
    groups: list[Group] = []
    for index, is_used in enumerate(used):
        if is_used or not groups or used[index - 1]:
            groups.append(range(index, index + 1))
        else:
            groups[-1] = range(groups[-1].start, index + 1)
    return [group for group in groups if used[group.start] or any(sizes[index] for index in group)]


def joined(sizes: Sequence[int], groups: Sequence[Group]) -> tuple[int, ...]:
    """Return the sizes of groups of parts.

    Examples:
        >>> joined([1, 2, 3], [range(0, 2), range(2, 3)])
        (3, 3)
    """
    return tuple(sum(sizes[index] for index in group) for group in groups)


def runs(items: Sequence[tuple[Hashable, int] | None]) -> list[Group]:
    """Return the runs of two and more neighbouring parts of the same split, in the order of a Concat.

    Examples:
        >>> runs([("s", 0), ("s", 1), None, ("s", 2), ("t", 3)])
        [range(0, 2)]
    """
    found: list[Group] = []
    begin = 0
    for end in range(1, len(items) + 1):
        before, item = items[end - 1], items[end] if end < len(items) else None
        if before is not None and item is not None and item == (before[0], before[1] + 1):
            continue
        if end - begin > 1:
            found.append(range(begin, end))
        begin = end
    return found


def grouped(pieces: Sequence[int], parts: Sequence[int]) -> list[Group] | None:
    """Return which neighbouring pieces make up each part; None where a boundary lies in one, or one is empty.

    Examples:
        >>> grouped([2, 1, 3], [3, 3])
        [range(0, 2), range(2, 3)]
        >>> grouped([2, 4], [3, 3]) is None
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
    """Return spans that cover an axis once, one behind the other; None where there are no such ones.

    Examples:
        >>> partition([(2, 6), (0, 2), (1, 3)], 6)
        ((0, 2), (2, 6))
        >>> partition([(0, 2), (3, 6)], 6) is None
        True
    """
    following: dict[int, tuple[int, int]] = {}
    # From the back: a span helps if something covers what lies behind it. The finest cover wins.
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


def shortest(
    schemas: Sequence[OperatorSchema], sizes: Sequence[int], size: Dim
) -> tuple[OperatorSchema, Division]:
    """Return the version, and the division in it, that set these parts in the fewest words.

    An axis whose size is not known exactly must stay proved by lengths, which one of the versions takes. A
    number of parts by the ceil rule is not used where the last part is empty: not every runtime takes it.

    Examples:
        >>> from splitops.spec.operators import schema
        >>> for opset in (13, 18):
        ...     row, division = shortest([schema("Split", opset)], (2, 2, 1), 5)
        ...     print(row, division.rule)
        Split-13 SizeRule.EXPLICIT
        Split-18 SizeRule.CEIL
    """
    for schema in schemas:
        if schema.count_rule is not None and sizes and isinstance(size, int):
            count = Division(schema.count_rule, count=len(sizes))
            if _gives(count, size, sizes) and (schema.count_rule is not SizeRule.CEIL or sizes[-1]):
                return schema, count
    return next(schema for schema in schemas if schema.lengths), Division(
        SizeRule.EXPLICIT, lengths=tuple(sizes)
    )


def _gives(division: Division, size: int, sizes: Sequence[int]) -> bool:
    return violation(division, size) is None and part_sizes(division, size, len(sizes)) == tuple(sizes)


# Constants


def pieces(array: npt.NDArray[Any], axis: int, sizes: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Return copies of the parts of a constant."""
    ends = list(accumulate(sizes))
    index = (slice(None),) * axis
    return [
        np.ascontiguousarray(array[(*index, slice(end - size, end))])
        for size, end in zip(sizes, ends, strict=True)
    ]


def find_byte_ranges(
    shape: Sequence[int], axis: int, sizes: Sequence[int], element_type: ElementType
) -> list[tuple[tuple[int, ...], int, int]] | None:
    """Return shape, offset and bytes of each part; None where one is not one piece of whole bytes.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> kind = ELEMENT_TYPES["float32"]
        >>> lying((4, 3), 0, [1, 3], kind), lying((4, 3), 1, [1, 2], kind)
        ([((1, 3), 0, 12), ((3, 3), 12, 36)], None)
    """
    row_bits = math.prod(shape[axis + 1 :]) * element_type.bits
    if not element_type.bits or math.prod(shape[:axis]) != 1 or any(size * row_bits % 8 for size in sizes):
        return None
    begins = [begin * row_bits // 8 for begin in accumulate(sizes, initial=0)][:-1]
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    return list(zip(shapes, begins, (size * row_bits // 8 for size in sizes), strict=True))
