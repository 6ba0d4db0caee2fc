"""The effect of Reshapes and Transposes on axes, which are described as products of factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitops.models.split_nodes.static_facts import is_same_size
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape, to_exact


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A factor of the size of an axis. A Reshape regroups factors, a Transpose reorders them."""

    size: Dim


Axis = list[Factor]
"""The factors of an axis, the outermost first; an axis of size 1 has none."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """A Reshape. In its pattern, 0 keeps the axis at the same index, and -1 is the remaining size."""

    pattern: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class Permute:
    """A Transpose: for each axis of the output, its axis in the data."""

    order: tuple[int, ...]


Move = Regroup | Permute


class Factored:
    """A tensor after Reshapes and Transposes: the factors of its source axes, reordered and regrouped."""

    def __init__(self, shape: Shape) -> None:
        self.source: list[Axis] = [[] if size == 1 else [Factor(size)] for size in shape]
        self.axes: list[Axis] = [list(axis) for axis in self.source]

    def permute(self, order: Sequence[int]) -> bool:
        """Apply a Transpose. Return False if ``order`` is not a permutation of the axes."""
        if sorted(order) != list(range(len(self.axes))):
            return False
        self.axes = [self.axes[axis] for axis in order]
        return True

    def reshape(self, shape: Shape) -> bool:
        """Apply a Reshape. Return False if an axis of ``shape`` is not a product of consecutive factors.

        Examples:
            >>> factored = Factored((4, 6))
            >>> factored.reshape((2, 2, 6)), factored.permute([1, 0, 2]), factored.reshape((2, 12))
            (True, True, True)
            >>> [[factor.size for factor in axis] for axis in factored.axes], factored.reshape((5, 5))
            ([[2], [2, 6]], False)
        """
        factors = [factor for axis in self.axes for factor in axis]
        axes: list[Axis] = []
        for size in shape:
            taken = self._pop_factors(factors, size)
            if taken is None:
                return False
            axes.append(taken)
        if factors:
            return False
        self.axes = axes
        return True

    def _pop_factors(self, factors: list[Factor], size: Dim) -> Axis | None:
        """Pop factors with product ``size``, dividing the last if needed. Return None if this fails."""
        if not isinstance(size, int):
            return [factors.pop(0)] if factors and is_same_size(factors[0].size, size) else None
        popped: Axis = []
        while size != 1:
            first = factors.pop(0) if factors else Factor(0)
            exact = first.size
            if not isinstance(exact, int) or not size or not exact or (size % exact and exact % size):
                return None
            if exact > size:
                first, rest = self._split_factor(first, size)
                factors.insert(0, rest)
            popped.append(first)
            size //= min(exact, size)
        return popped

    def find_leading(self, axis: int, size: int) -> Factor | None:
        """Return the outermost factor of an axis, reduced to ``size`` by dividing it.

        Return None if it cannot be divided, or is not the outermost factor of a source axis.
        """
        factors = self.axes[axis]
        first = factors[0] if factors else None
        if first is None or not isinstance(first.size, int) or size < 2 or first.size % size:
            return None
        if first.size > size:
            first, _ = self._split_factor(first, size)
        return first if any(source[:1] == [first] for source in self.source) else None

    def make_part(self, factor: Factor, size: int, without: int | None = None) -> Factored:
        """Return the tensor of a part: ``factor`` has size ``size``, and axis ``without`` is removed."""
        own = [] if size == 1 else [Factor(size)]
        found = Factored(())
        found.source = [_replace(axis, factor, own) for axis in self.source]
        found.axes = [_replace(axis, factor, own) for index, axis in enumerate(self.axes) if index != without]
        return found

    def _split_factor(self, factor: Factor, outer: int) -> tuple[Factor, Factor]:
        """Divide a factor, in all axes, into a factor of size ``outer`` and the rest."""
        assert isinstance(factor.size, int)
        pair = [Factor(outer), Factor(factor.size // outer)]
        self.source = [_replace(axis, factor, pair) for axis in self.source]
        self.axes = [_replace(axis, factor, pair) for axis in self.axes]
        return pair[0], pair[1]


def _replace(axis: Axis, factor: Factor, others: Sequence[Factor]) -> Axis:
    return [new for one in axis for new in (others if one is factor else [one])]


def find_moves(source: Sequence[Axis], target: Sequence[Axis]) -> list[Move] | None:
    """Return a short list of moves from ``source`` to ``target``, or None if a Reshape cannot express one.

    Examples:
        >>> factored = Factored((5, 24))
        >>> factored.reshape((5, 2, 12)), factored.permute((1, 0, 2)), factored.reshape((2, 5, 3, 4))
        (True, True, True)
        >>> for move in find_moves(factored.source, factored.axes):
        ...     print(move)
        Regroup(pattern=(5, 2, 3, 4), shape=(5, 2, 3, 4))
        Permute(order=(1, 0, 2, 3))
    """
    order = [factor for axis in source for factor in axis]
    wanted = [factor for axis in target for factor in axis]
    if order == wanted:
        return _find_reshape(source, target)
    after_source = before_target = None
    if all(_is_run(axis, wanted) for axis in source):
        permuted, transpose = _permute_axes(source, target, wanted)
        after = _find_reshape(permuted, target)
        after_source = None if after is None else [transpose, *after]
    if all(_is_run(axis, order) for axis in target):
        between = sorted(target, key=lambda axis: order.index(axis[0]) if axis else -1)
        first = _find_reshape(source, between)
        before_target = None if first is None else [*first, _permute_axes(between, target, wanted)[1]]
    # A Transpose at the end is best: many runtimes fuse it into a matrix product.
    chains = [one for one in (before_target, after_source) if one is not None]
    if chains:
        return min(chains, key=len)
    blocks: list[Axis] = []
    for factor in order:
        if blocks and wanted.index(factor) == wanted.index(blocks[-1][-1]) + 1:
            blocks[-1].append(factor)
        else:
            blocks.append([factor])
    permuted, transpose = _permute_axes(blocks, target, wanted)
    first, after = _find_reshape(source, blocks), _find_reshape(permuted, target)
    return None if first is None or after is None else [*first, transpose, *after]


def _is_run(axis: Axis, order: Sequence[Factor]) -> bool:
    """Return whether the factors of an axis are consecutive in ``order``."""
    places = [order.index(factor) for factor in axis]
    return places == list(range(places[0], places[0] + len(places))) if places else True


def _permute_axes(
    source: Sequence[Axis], target: Sequence[Axis], wanted: Sequence[Factor]
) -> tuple[list[Axis], Permute]:
    """Return the axes in the order of ``wanted``, with axes of size 1 as in ``target``, and the Transpose."""
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


def _find_reshape(source: Sequence[Axis], target: Sequence[Axis]) -> list[Move] | None:
    """Return the Reshape from one grouping of factors to another, as a list of at most one move.

    The list is empty if the groupings are equal. Return None if no Reshape can express the change.
    """
    if list(source) == list(target):
        return []
    pattern: list[int] = []
    shape: list[Dim] = []
    for index, axis in enumerate(target):
        size = _compute_size(axis)
        kept = index < len(source) and source[index] == axis
        pattern.append(size if isinstance(size, int) else 0 if kept else -1)
        shape.append(size)
    # A -1 is ambiguous if another axis may be empty, and a 0 in a pattern is not a size.
    if 0 in shape or (-1 in pattern and (pattern.count(-1) > 1 or 0 in pattern)):
        return None
    return [Regroup(tuple(pattern), tuple(shape))]


def _compute_size(axis: Axis) -> Dim:
    exact = to_exact([factor.size for factor in axis])
    if exact is not None:
        return math.prod(exact)
    return axis[0].size if len(axis) == 1 else UNKNOWN
