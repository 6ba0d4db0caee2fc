"""Extents: which bytes of which files go where. Integers only, knowing no format and no tensor.

A split of a file, a merge, a task of a cluster: all are lists of extents. An extent can be inverted
(:func:`inverse`), two lists that meet in files between them are one without these files (:func:`compose`),
and a list can be cut anywhere between rows (:func:`rows`) without losing or repeating a byte.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]
"""Extents as rows, with a column for each field."""


class Extent(NamedTuple):
    """``runs`` runs of ``run`` bytes, equally spaced in the source and, perhaps otherwise, in the target.

    Run r is read at ``offset + r * stride`` of the source and written at
    ``target_offset + r * target_stride`` of the target; runs never overlap: ``run <= stride``.

    Attributes:
        source: the source's position in a list of files.
        offset: of the first run in the source.
        stride: bytes from one run to the next in the source.
        target: the target's position in a list of files.
        target_offset: of the first run in the target.
        target_stride: bytes from one run to the next in the target.
        run: bytes of a run, at least 1.
        runs: how many runs, at least 1.
    """

    source: int
    offset: int
    stride: int
    target: int
    target_offset: int
    target_stride: int
    run: int
    runs: int

    @property
    def bytes(self) -> int:
        """How many bytes are copied."""
        return self.run * self.runs


class Extents(Sequence[Extent]):
    """Extents in a table: as many as 100,000 tensors have, without an object for each.

    Attributes:
        table: a row for each extent.

    Examples:
        >>> Extents.of([contiguous(0, 8, 1, 64, 16)]).table.tolist()
        [[0, 8, 16, 1, 64, 16, 16, 1]]
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    @classmethod
    def of(cls, extents: Iterable[Extent]) -> Extents:
        """Return extents as a table; a table is returned as it is."""
        if isinstance(extents, cls):
            return extents
        return cls(np.fromiter(itertools.chain.from_iterable(extents), np.int64).reshape(-1, 8))

    @classmethod
    def all(cls, tables: Sequence[Extents]) -> Extents:
        """Return the extents of several tables as one."""
        return cls(np.concatenate([np.empty((0, 8), np.int64), *(each.table for each in tables)]))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Extent]:
        return map(Extent._make, self.table.tolist())

    @overload
    def __getitem__(self, index: int) -> Extent: ...
    @overload
    def __getitem__(self, index: slice) -> Extents: ...
    def __getitem__(self, index: int | slice) -> Extent | Extents:
        if isinstance(index, slice):
            return Extents(self.table[index])
        return Extent(*self.table[index].tolist())

    @property
    def sources(self) -> list[int]:
        """The positions of the sources, once each, in their order."""
        found: list[int] = np.unique(self.table[:, 0]).tolist()
        return found

    @property
    def targets(self) -> list[int]:
        """The positions of the targets, once each, in their order."""
        return self.inverse().sources

    @property
    def bytes(self) -> int:
        """How many bytes are copied."""
        return int((self.table[:, 6] * self.table[:, 7]).sum())

    def inverse(self) -> Extents:
        """Return the extents that copy the bytes back."""
        return Extents(self.table[:, [3, 4, 5, 0, 1, 2, 6, 7]])


def contiguous(source: int, offset: int, target: int, target_offset: int, size: int) -> Extent:
    """Return the extent of one stretch of bytes."""
    return Extent(source, offset, size, target, target_offset, size, size, 1)


def numbers_from(first: Table, counts: Table) -> Table:
    """Return so many numbers from each first one on, one after the other.

    Examples:
        >>> numbers_from(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def stretches_to(stretches: npt.ArrayLike, places: npt.ArrayLike, first: int = 0) -> Extents:
    """Return extents of stretches (source, offset, size) to places (target, offset), where they have bytes.

    Examples:
        >>> [list(extent) for extent in stretches_to([(0, 0, 8), (0, 8, 0)], [(1, 64), (1, 72)])]
        [[0, 0, 8, 1, 64, 8, 8, 1]]
    """
    source, offset, size = np.array(stretches, np.int64).reshape(-1, 3).T
    target, target_offset = np.array(places, np.int64).reshape(-1, 2).T
    columns = source, offset, size, target + first, target_offset, size, size, np.ones_like(size)
    table = np.stack(columns, 1)
    return Extents(table[size > 0])


def walked(first: Extent, walks: Sequence[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield the extents that repeat a run along axes: the steps of each, and their bytes on both sides.

    Examples:
        A matrix of 2 rows and 3 columns of 4 bytes, transposed:

        >>> for extent in walked(contiguous(0, 0, 1, 0, 4), [(2, 12, 4), (3, 4, 8)]):
        ...     print(*extent)
        0 0 4 1 0 8 4 3
        0 12 4 1 4 8 4 3
    """
    *others, (count, stride, target_stride) = sorted([(1, 0, 0), *walks])  # the longest walk is the rows
    strides = (stride, target_stride) if count > 1 else (first.run, first.run)
    for index in itertools.product(*(range(steps) for steps, _, _ in others)):
        offset = first.offset + sum(i * walk[1] for i, walk in zip(index, others, strict=True))
        to = first.target_offset + sum(i * walk[2] for i, walk in zip(index, others, strict=True))
        yield Extent(first.source, offset, strides[0], first.target, to, strides[1], first.run, count)


def steps_of(shape: Sequence[int]) -> list[int]:
    """Return how many elements lie from one position of each axis to the next, in row-major order.

    Examples:
        >>> steps_of((2, 3, 4))
        [12, 4, 1]
    """
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def runs_along(walks: Iterable[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int]], int]:
    """Return the fewest walks that reach the elements of a box, and how many neighbours each step takes.

    A walk is of one axis: the positions, and the elements from one to the next in the array and in the box.

    Examples:
        The last two of four columns of 5 elements, in each of 3 rows:

        >>> runs_along([(3, 20, 10), (2, 5, 5), (5, 1, 1)])
        ([(3, 20, 10)], 10)
    """
    apart: list[tuple[int, int, int]] = []
    for count, step, own in walks:
        if count == 1:
            continue
        if apart and apart[-1][1:] == (count * step, count * own):
            apart[-1] = (apart[-1][0] * count, step, own)
        else:
            apart.append((count, step, own))
    run = apart.pop()[0] if apart and apart[-1][1:] == (1, 1) else 1
    return apart, run


def stretches(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """Return where the bytes that extents read begin and end, in as few stretches as twice the bytes allow.

    Examples:
        >>> stretches([Extent(0, 0, 8, 0, 0, 4, run=4, runs=3), Extent(0, 100, 64, 1, 0, 8, run=8, runs=2)])
        [(0, 20), (100, 108), (164, 172)]
    """

    def end(extent: Extent) -> int:
        return extent.offset + (extent.runs - 1) * extent.stride + extent.run

    groups: list[list[Extent]] = []
    reached = -1
    # Targets may share bytes of a source: the same place counts once.
    places = {extent._replace(target=0, target_offset=0, target_stride=0) for extent in extents}
    for extent in sorted(places, key=lambda extent: extent.offset):
        if extent.offset > reached:
            groups.append([])
        groups[-1].append(extent)
        reached = max(reached, end(extent))
    found: list[tuple[int, int]] = []
    for group in groups:
        whole = group[0].offset, max(end(extent) for extent in group)
        if whole[1] - whole[0] <= 2 * sum(extent.bytes for extent in group):
            found.append(whole)
            continue
        runs = (rows(extent, row, row + 1) for extent in group for row in range(extent.runs))
        for begin, size in sorted((run.offset, run.run) for run in runs):
            if found and begin <= found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], begin + size)
            else:
                found.append((begin, begin + size))
    return found


def inverse(extent: Extent) -> Extent:
    """Return the extent that copies the bytes back.

    Examples:
        >>> inverse(Extent(0, 128, 24, 1, 0, 8, run=8, runs=3))
        Extent(source=1, offset=0, stride=8, target=0, target_offset=128, target_stride=24, run=8, runs=3)
    """
    source, offset, stride, target, target_offset, target_stride, run, runs = extent
    return Extent(target, target_offset, target_stride, source, offset, stride, run, runs)


def rows(extent: Extent, first: int, end: int) -> Extent:
    """Return the runs ``first`` to ``end`` of an extent."""
    return extent._replace(
        offset=extent.offset + first * extent.stride,
        target_offset=extent.target_offset + first * extent.target_stride,
        runs=end - first,
    )


def joined(extents: Iterable[Extent]) -> Extents:
    """Return the same bytes in as few extents as neighbours allow: stretches that go on are one stretch.

    Examples:
        >>> list(joined([contiguous(0, 0, 1, 64, 8), contiguous(0, 8, 1, 72, 8)]))
        [Extent(source=0, offset=0, stride=16, target=1, target_offset=64, target_stride=16, run=16, runs=1)]
    """
    table = Extents.of(extents).table
    source, offset, stride, target, target_offset, target_stride, run, runs = table.T
    one = (runs == 1) | ((stride == run) & (target_stride == run))
    sizes = run * runs
    goes_on = one[:-1] & one[1:] & (source[:-1] == source[1:]) & (target[:-1] == target[1:])
    goes_on &= offset[:-1] + sizes[:-1] == offset[1:]
    goes_on &= target_offset[:-1] + sizes[:-1] == target_offset[1:]
    first = np.flatnonzero(np.concatenate(([True], ~goes_on))[: len(table)])
    sizes = np.add.reduceat(sizes, first) if len(table) else sizes
    table, one = table[first], one[first]
    table[one, 7] = 1
    for column in (2, 5, 6):
        table[one, column] = sizes[one]
    return Extents(table)


def _stretched(extent: Extent) -> Extent:
    """Return an extent without gaps on either side as one run; the strides of a single run are its length."""
    if extent.runs == 1 and extent.stride == extent.run == extent.target_stride:
        return extent
    if extent.runs == 1 or extent.stride == extent.run == extent.target_stride:
        return contiguous(*extent[:2], *extent[3:5], extent.bytes)
    return extent


def compose(first: Sequence[Extent], second: Sequence[Extent]) -> list[Extent]:
    """Return what two copies do one after the other, without the files between them.

    No two extents of the first write the same byte.

    Examples:
        Two files side by side in each row, then the first three columns of the rows:

        >>> merge = [Extent(0, 0, 2, 0, 0, 4, run=2, runs=8), Extent(1, 0, 2, 0, 2, 4, run=2, runs=8)]
        >>> split = [Extent(0, 0, 4, 0, 0, 3, run=3, runs=8)]
        >>> for extent in compose(merge, split):
        ...     print(*extent)
        0 0 2 0 0 3 2 8
        1 0 2 0 2 3 1 8
    """
    into: dict[int, list[Extent]] = {}
    for extent in first:
        into.setdefault(extent.target, []).append(_stretched(extent))
    made: list[Extent] = []
    for extent in second:
        after = _stretched(extent)
        for before in into.get(after.source, ()):
            made += _meeting(before, after)
    made.sort(key=lambda extent: (extent.target, extent.target_offset))
    return made


def _meeting(before: Extent, after: Extent) -> Iterator[Extent]:
    """Yield what goes through both extents."""
    start = max(before.target_offset, after.offset)
    end = min(
        before.target_offset + (before.runs - 1) * before.target_stride + before.run,
        after.offset + (after.runs - 1) * after.stride + after.run,
    )
    if start >= end:
        return
    if before.runs > 1 and after.runs > 1 and before.target_stride == after.stride:
        yield from _in_step(before, after)
    elif after.runs == 1 or (before.runs > 1 and before.target_stride < after.stride):
        for index in range(after.runs):
            yield from _within(before, rows(after, index, index + 1))
    else:
        # The same, seen backwards: each run of `before` is a stretch that rows of `after` lie in.
        for index in range(before.runs):
            for found in _within(inverse(after), inverse(rows(before, index, index + 1))):
                yield inverse(found)


def _in_step(before: Extent, after: Extent) -> Iterator[Extent]:
    """Yield what meets of rows that are equally far apart: the same columns of every row."""
    step = after.stride
    shift = (after.offset - before.target_offset) // step
    for distance in (shift, shift + 1):  # run r of `after` meets run r + distance of `before`
        base = before.target_offset + distance * step
        begin, end = max(base, after.offset), min(base + before.run, after.offset + after.run)
        first, last = max(0, -distance), min(after.runs, before.runs - distance)
        if begin < end and first < last:
            yield Extent(
                before.source,
                before.offset + (first + distance) * before.stride + begin - base,
                before.stride,
                after.target,
                after.target_offset + first * after.target_stride + begin - after.offset,
                after.target_stride,
                end - begin,
                last - first,
            )


def _within(before: Extent, stretch: Extent) -> Iterator[Extent]:
    """Yield what of `before` goes through a single run: whole rows, and a part of one at either end."""
    start, end = stretch.offset, stretch.offset + stretch.run
    base, step = before.target_offset, before.target_stride
    first = max(0, (start - base - before.run) // step + 1)
    last = min(before.runs - 1, (end - base - 1) // step)
    ends = sorted({first, last}) if first <= last else []
    cut = [row for row in ends if base + row * step < start or base + row * step + before.run > end]
    for row in cut:
        begin = max(start, base + row * step)
        size = min(end, base + row * step + before.run) - begin
        if size > 0:
            yield contiguous(
                before.source,
                before.offset + row * before.stride + begin - base - row * step,
                stretch.target,
                stretch.target_offset + begin - start,
                size,
            )
    whole_first, whole_last = first + (first in cut), last - (last in cut)
    if whole_first <= whole_last:
        yield Extent(
            before.source,
            before.offset + whole_first * before.stride,
            before.stride,
            stretch.target,
            stretch.target_offset + base + whole_first * step - start,
            step,
            before.run,
            whole_last - whole_first + 1,
        )
