"""Where Reshapes and Transposes move data, decided on sizes alone: axes as products of factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitops.models.split_nodes.static_facts import same_size
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A factor of the size of an axis: what a Reshape may take apart, and a Transpose move."""

    size: Dim


Axis = list[Factor]
"""The factors of an axis, the outermost first; an axis of size 1 has none."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """A Reshape; in its pattern, 0 keeps the axis of the same position, -1 is what is left."""

    pattern: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class Permute:
    """A Transpose: the axis of the data that each axis of the result is."""

    order: tuple[int, ...]


Move = Regroup | Permute


class Factored:
    """A tensor behind Reshapes and Transposes, as the factors of its source in another order."""

    def __init__(self, shape: Shape) -> None:
        self.source: list[Axis] = [[] if size == 1 else [Factor(size)] for size in shape]
        self.axes: list[Axis] = [list(axis) for axis in self.source]

    def permute(self, order: Sequence[int]) -> bool:
        """Go through a Transpose; return whether there are such axes."""
        if sorted(order) != list(range(len(self.axes))):
            return False
        self.axes = [self.axes[axis] for axis in order]
        return True

    def regroup(self, shape: Shape) -> bool:
        """Go through a Reshape to some shape; return whether its boundaries lie between factors.

        Examples:
            >>> factored = Factored((4, 6))
            >>> factored.regroup((2, 2, 6)), factored.permute([1, 0, 2]), factored.regroup((2, 12))
            (True, True, True)
            >>> [[factor.size for factor in axis] for axis in factored.axes], factored.regroup((5, 5))
            ([[2], [2, 6]], False)
        """
        left = [factor for axis in self.axes for factor in axis]
        axes: list[Axis] = []
        for size in shape:
            taken = self._taken(left, size)
            if taken is None:
                return False
            axes.append(taken)
        if left:
            return False
        self.axes = axes
        return True

    def _taken(self, left: list[Factor], size: Dim) -> Axis | None:
        """Take the first factors that make a size, the last one divided where need be; None: none do."""
        if not isinstance(size, int):
            return [left.pop(0)] if left and same_size(left[0].size, size) else None
        taken: Axis = []
        while size != 1:
            first = left.pop(0) if left else Factor(0)
            exact = first.size
            if not isinstance(exact, int) or not size or not exact or (size % exact and exact % size):
                return None
            if exact > size:
                first, rest = self._divided(first, size)
                left.insert(0, rest)
            taken.append(first)
            size //= min(exact, size)
        return taken

    def leading(self, axis: int, size: int) -> Factor | None:
        """Return the outermost factor of an axis, of some size, if it is that of a source axis too."""
        factors = self.axes[axis]
        first = factors[0] if factors else None
        if first is None or not isinstance(first.size, int) or size < 2 or first.size % size:
            return None
        if first.size > size:
            first, _ = self._divided(first, size)
        return first if any(source[:1] == [first] for source in self.source) else None

    def part(self, factor: Factor, size: int, without: int | None = None) -> Factored:
        """Return the factors of a part: with another size of a factor, and perhaps without an axis of it."""
        own = [] if size == 1 else [Factor(size)]
        found = Factored(())
        found.source = [_with(axis, factor, own) for axis in self.source]
        found.axes = [_with(axis, factor, own) for index, axis in enumerate(self.axes) if index != without]
        return found

    def _divided(self, factor: Factor, outer: int) -> tuple[Factor, Factor]:
        """Divide a factor into two wherever it is."""
        assert isinstance(factor.size, int)
        pair = [Factor(outer), Factor(factor.size // outer)]
        self.source = [_with(axis, factor, pair) for axis in self.source]
        self.axes = [_with(axis, factor, pair) for axis in self.axes]
        return pair[0], pair[1]


def _with(axis: Axis, factor: Factor, others: Sequence[Factor]) -> Axis:
    return [new for one in axis for new in (others if one is factor else [one])]


def moves(source: Sequence[Axis], target: Sequence[Axis]) -> list[Move] | None:
    """Return few Reshapes and Transposes from one order of factors to another; None: no Reshape declares it.

    Examples:
        >>> factored = Factored((5, 24))
        >>> factored.regroup((5, 2, 12)), factored.permute((1, 0, 2)), factored.regroup((2, 5, 3, 4))
        (True, True, True)
        >>> for move in moves(factored.source, factored.axes):
        ...     print(move)
        Regroup(pattern=(5, 2, 3, 4), shape=(5, 2, 3, 4))
        Permute(order=(1, 0, 2, 3))
    """
    order = [factor for axis in source for factor in axis]
    wanted = [factor for axis in target for factor in axis]
    if order == wanted:
        return _regrouped(source, target)
    behind_source = front_of_target = None
    if all(_is_run(axis, wanted) for axis in source):
        permuted, found = _permuted(source, target, wanted)
        behind = _regrouped(permuted, target)
        behind_source = None if behind is None else [found, *behind]
    if all(_is_run(axis, order) for axis in target):
        between = sorted(target, key=lambda axis: order.index(axis[0]) if axis else -1)
        front = _regrouped(source, between)
        front_of_target = None if front is None else [*front, _permuted(between, target, wanted)[1]]
    # Runtimes see a Transpose better where it is the last one: many multiply matrices that are turned.
    found_two = [one for one in (front_of_target, behind_source) if one is not None]
    if found_two:
        return min(found_two, key=len)
    blocks: list[Axis] = []
    for factor in order:
        if blocks and wanted.index(factor) == wanted.index(blocks[-1][-1]) + 1:
            blocks[-1].append(factor)
        else:
            blocks.append([factor])
    permuted, found = _permuted(blocks, target, wanted)
    front, behind = _regrouped(source, blocks), _regrouped(permuted, target)
    return None if front is None or behind is None else [*front, found, *behind]


def _is_run(axis: Axis, order: Sequence[Factor]) -> bool:
    """Return whether the factors of an axis stand one behind the other in some order."""
    places = [order.index(factor) for factor in axis]
    return places == list(range(places[0], places[0] + len(places))) if places else True


def _permuted(
    source: Sequence[Axis], target: Sequence[Axis], wanted: Sequence[Factor]
) -> tuple[list[Axis], Permute]:
    """Return axes in the order in which factors are wanted, those of size 1 where the target has them."""
    filled = sorted(
        (index for index, axis in enumerate(source) if axis), key=lambda index: wanted.index(source[index][0])
    )
    ones = [index for index, axis in enumerate(source) if not axis]
    order: list[int] = []
    for axis in target:
        line = filled if axis else ones
        if line:
            order.append(line.pop(0))
    order += filled + ones
    return [source[index] for index in order], Permute(tuple(order))


def _regrouped(source: Sequence[Axis], target: Sequence[Axis]) -> list[Move] | None:
    """Return the Reshape between two groupings of the same factors; nothing where they are the same."""
    if list(source) == list(target):
        return []
    pattern: list[int] = []
    shape: list[Dim] = []
    for index, axis in enumerate(target):
        size = _size(axis)
        kept = index < len(source) and source[index] == axis
        pattern.append(size if isinstance(size, int) else 0 if kept else -1)
        shape.append(size)
    # What is left can be told only where nothing else may be empty, and 0 is not a size in a pattern.
    if 0 in shape or (-1 in pattern and (pattern.count(-1) > 1 or 0 in pattern)):
        return None
    return [Regroup(tuple(pattern), tuple(shape))]


def _size(axis: Axis) -> Dim:
    exact = [factor.size for factor in axis if isinstance(factor.size, int)]
    if len(exact) == len(axis):
        return math.prod(exact)
    return axis[0].size if len(axis) == 1 else UNKNOWN
