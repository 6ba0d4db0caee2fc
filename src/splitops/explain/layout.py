"""The bytes and runs of the parts of a row-major tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import overload

from splitops.native import SplitPlan
from splitops.spec.elements.packing import packed_size
from splitops.spec.elements.types import ElementType


@dataclass(frozen=True, slots=True)
class PartLayout:
    """One part, as it lies in the memory of the row-major data.

    Attributes:
        index: its position among the parts.
        offset: where it begins on the split axis.
        size: its size on the split axis.
        shape: its shape.
        elements: how many elements it has.
        bytes: how many bytes it takes as a tensor of its own, packed where elements are less than a byte;
            None where the element type is not known or, as of strings, has no fixed width.
        runs: the number of unbroken blocks of the data that it is made of; 0 where it is empty.
        run_elements: the elements in each of them.
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
        """Whether a view of it is one unbroken block."""
        return self.runs <= 1


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive parts of the same size: all of ``first`` but for index and offset."""

    first: PartLayout
    count: int

    @property
    def label(self) -> str:
        """The index of the part, or those of the first and the last one."""
        return indices(self.first.index, self.count)


def indices(first: int, count: int) -> str:
    """Write consecutive indices.

    Examples:
        >>> indices(2, 1), indices(2, 3)
        ('2', '2-4')
    """
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def axes(first: int, count: int) -> str:
    """Write consecutive axes."""
    return f"{'axis' if count == 1 else 'axes'} {indices(first, count)}"


@dataclass(frozen=True, slots=True)
class Explanation(Sequence[PartLayout]):
    """The parts of a plan, computed as they are asked for: a plan may have millions.

    Attributes:
        plan: the plan.
        element_type: the element type; None is unknown.
    """

    plan: SplitPlan
    element_type: ElementType | None = None

    @property
    def outer(self) -> int:
        """Product of the dimensions before the split axis: how often the parts alternate in memory."""
        return math.prod(self.plan.shape[: self.plan.axis])

    @property
    def inner(self) -> int:
        """Product of the dimensions after the split axis: the elements of one step along it."""
        return math.prod(self.plan.shape[self.plan.axis + 1 :])

    @property
    def size(self) -> int:
        """Size of the split axis."""
        return self.plan.shape[self.plan.axis]

    @property
    def bytes(self) -> int | None:
        """Bytes of the data; None where the element type has no fixed width or is unknown."""
        return self._bytes(math.prod(self.plan.shape))

    @property
    def contiguous(self) -> bool:
        """Whether every part is one unbroken block."""
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
        if size == self.size:  # the runs of the whole data follow one another without a gap
            run, runs = run * runs, 1
        if run * runs == 0:
            run = runs = 0
        elements = run * runs
        return PartLayout(index, plan.offsets[index], size, shape, elements, self._bytes(elements), runs, run)

    def groups(self) -> Iterator[Group]:
        """Yield the runs of consecutive parts that have the same size."""
        index = 0
        for _, same in groupby(self.plan.sizes):
            count = sum(1 for _ in same)
            yield Group(self[index], count)
            index += count

    def _bytes(self, elements: int) -> int | None:
        if self.element_type is None or self.element_type.bits == 0:
            return None
        return packed_size(self.element_type, elements)


def explain(plan: SplitPlan, element_type: ElementType | None = None) -> Explanation:
    """Return what a plan means for the memory of row-major data.

    Args:
        plan: where each part begins and how long it is.
        element_type: the element type of the data, for the bytes; None leaves them unknown.

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
