"""Lengths that a graph computes when it runs, written once for the operators of both dialects.

These are the size rules as arithmetic of tensors. The tests hold what such a graph computes against
:mod:`splitops.sizes.arithmetic` for every size of an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeVar, assert_never

from splitops.sizes.arithmetic import Division
from splitops.sizes.rules import SizeRule

__all__ = ["Arithmetic", "lengths_of_size", "resolved_lengths", "uniform_bounds"]

V = TypeVar("V")


class Arithmetic(Protocol[V]):
    """Integer arithmetic on 1-D int64 tensors, broadcasting, in the operators of one dialect."""

    def integers(self, values: Sequence[int], /) -> V:
        """A constant of shape [number of values]."""

    def add(self, a: V, b: V, /) -> V:
        """The sum."""

    def subtract(self, a: V, b: V, /) -> V:
        """The difference."""

    def multiply(self, a: V, b: V, /) -> V:
        """The product."""

    def divide(self, a: V, b: V, /) -> V:
        """The quotient of numbers >= 0, rounded down."""

    def minimum(self, a: V, b: V, /) -> V:
        """The smaller one."""

    def maximum(self, a: V, b: V, /) -> V:
        """The larger one."""

    def equals(self, a: V, b: V, /) -> V:
        """1 where they are equal, 0 elsewhere."""

    def total(self, a: V, /) -> V:
        """The sum of all entries, of shape [1]."""


def lengths_of_size(division: Division, size: V, graph: Arithmetic[V]) -> V:
    """Compute the lengths of a division from the size of the axis.

    Args:
        division: what is to be computed.
        size: the size of the axis, of shape [1].
        graph: the operators.

    Returns:
        All lengths, of shape [n].
    """
    count = division.count
    match division.rule:
        case SizeRule.CEIL:
            chunk = _ceil_chunk(count, size, graph)
            starts = graph.multiply(chunk, graph.integers(range(count)))
            left = graph.maximum(graph.subtract(size, starts), graph.integers([0]))
            return graph.minimum(left, chunk)
        case SizeRule.EVEN:
            # Where count does not divide the size, the lengths do not add up: still an error.
            return graph.multiply(graph.divide(size, graph.integers([count])), graph.integers([1] * count))
        case SizeRule.REMAINDER:
            given = [max(length, 0) for length in division.lengths]
            marks = graph.integers([int(length < 0) for length in division.lengths])
            rest = graph.subtract(size, graph.integers([sum(given)]))
            return graph.add(graph.integers(given), graph.multiply(marks, rest))
        case SizeRule.EXPLICIT:
            return graph.integers(division.lengths)
        case SizeRule.CHUNK:
            raise NotImplementedError("the number of chunks depends on the size")
        case _:
            assert_never(division.rule)


def resolved_lengths(lengths: V, size: V, graph: Arithmetic[V]) -> V:
    """Compute lengths in which a -1, if there is one, is what the others leave of the size."""
    marks = graph.equals(lengths, graph.integers([-1]))
    # With one -1, the sum of the others is the sum of all + 1.
    return graph.add(lengths, graph.multiply(marks, graph.subtract(size, graph.total(lengths))))


def uniform_bounds(count: int, parts: int, size: V, graph: Arithmetic[V]) -> list[tuple[V, V]]:
    """Compute begin and end of the first parts of the EVEN and CEIL rules; they may lie behind the end."""
    chunk = _ceil_chunk(count, size, graph)
    marks = [graph.multiply(chunk, graph.integers([index])) for index in range(parts + 1)]
    return list(pairwise(marks))


def _ceil_chunk(count: int, size: V, graph: Arithmetic[V]) -> V:
    return graph.divide(graph.add(size, graph.integers([count - 1])), graph.integers([count]))
