"""The place of each part in the memory of a row-major tensor: its offset, bytes and contiguous runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import overload

from splitops.native import SplitPlan
from splitops.spec.elements.packing import compute_packed_size
from splitops.spec.elements.types import ElementType


@dataclass(frozen=True, slots=True)
class PartLayout:
    """A part, and its place in the memory of row-major data.

    Attributes:
        index: index of the part.
        offset: offset along the split axis.
        size: size along the split axis.
        shape: shape of the part.
        elements: number of elements.
        bytes: bytes of the part as a separate tensor, packed if elements are smaller than a byte. None if the
            element type is unknown, or is string, which has no fixed width.
        runs: number of contiguous blocks of the data that form the part; 0 if it is empty.
        run_elements: number of elements in each block.
    """

    index: int
    offset: int
    size: int
    shape: tuple[int, ...]
    elements: int
    bytes: int | None
    runs: int
    run_elements: int

    @property
    def contiguous(self) -> bool:
        """Whether the part is one contiguous block of the data, or empty."""
        return self.runs <= 1


@dataclass(frozen=True, slots=True)
class PartGroup:
    """Consecutive parts of equal size, which differ only in index and offset. ``first`` is the first part."""

    first: PartLayout
    count: int

    @property
    def label(self) -> str:
        """The index of the part, or the indices of the first and the last part."""
        return format_indices(self.first.index, self.count)


def format_indices(first: int, count: int) -> str:
    """Return consecutive indices as text.

    Examples:
        >>> format_indices(2, 1), format_indices(2, 3)
        ('2', '2-4')
    """
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def format_axes(first: int, count: int) -> str:
    """Return consecutive axes as text, such as "axes 0-2"."""
    return f"{'axis' if count == 1 else 'axes'} {format_indices(first, count)}"


@dataclass(frozen=True, slots=True)
class Explanation(Sequence[PartLayout]):
    """The parts of a plan. They are computed on access, since there may be millions.

    Attributes:
        plan: the plan that is explained.
        element_type: element type of the data, or None if it is unknown.
    """

    plan: SplitPlan
    element_type: ElementType | None = None

    @property
    def outer(self) -> int:
        """How often the sequence of parts occurs in memory: the product of the dimensions before the axis."""
        return math.prod(self.plan.shape[: self.plan.axis])

    @property
    def inner(self) -> int:
        """Product of the dimensions after the split axis: the number of consecutive elements per index."""
        return math.prod(self.plan.shape[self.plan.axis + 1 :])

    @property
    def size(self) -> int:
        """Size of the split axis."""
        return self.plan.shape[self.plan.axis]

    @property
    def bytes(self) -> int | None:
        """Bytes of the data, or None if the element type has no fixed width or is unknown."""
        return self._to_bytes(math.prod(self.plan.shape))

    @property
    def contiguous(self) -> bool:
        """Whether every part is one contiguous block of the data, or empty."""
        return all(group.first.contiguous for group in self.groups())

    def __len__(self) -> int:
        return len(self.plan.sizes)

    @overload
    def __getitem__(self, index: int) -> PartLayout: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PartLayout, ...]: ...
    def __getitem__(self, index: int | slice) -> PartLayout | tuple[PartLayout, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        index = range(len(self))[index]
        plan, size = self.plan, self.plan.sizes[index]
        before, after = plan.shape[: plan.axis], plan.shape[plan.axis + 1 :]
        shape = before + after if plan.squeeze else (*before, size, *after)
        run, runs = size * self.inner, self.outer
        if size == self.size:  # the only part that is not empty: its runs are adjacent
            run, runs = run * runs, 1
        if run * runs == 0:
            run = runs = 0
        elements, offset = run * runs, plan.offsets[index]
        return PartLayout(index, offset, size, shape, elements, self._to_bytes(elements), runs, run)

    def groups(self) -> Iterator[PartGroup]:
        """Yield groups of consecutive parts of equal size."""
        index = 0
        for _, same in groupby(self.plan.sizes):
            count = sum(1 for _ in same)
            yield PartGroup(self[index], count)
            index += count

    def _to_bytes(self, elements: int) -> int | None:
        if self.element_type is None or self.element_type.bits == 0:
            return None
        return compute_packed_size(self.element_type, elements)


def explain(plan: SplitPlan, element_type: ElementType | None = None) -> Explanation:
    """Return the place of each part of a plan in the memory of row-major data.

    Args:
        plan: offsets and sizes of the parts.
        element_type: element type of the data. None leaves the bytes unknown.

    Examples:
        >>> import splitops
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> plan = splitops.plan("Split", shape=(6, 12, 10, 24), axis=1, num_outputs=3)
        >>> part = explain(plan, ELEMENT_TYPES["float32"])[1]
        >>> part.offset, part.shape, part.bytes
        (4, (6, 4, 10, 24), 23040)
        >>> part.contiguous, part.runs, part.run_elements
        (False, 6, 960)
    """
    return Explanation(plan, element_type)
