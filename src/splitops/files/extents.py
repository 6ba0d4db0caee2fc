"""Extents: which bytes of which files are copied where, as integers, without formats or tensors.

Unless tensors are copied chunk by chunk, a split of a file, a merge and a task of a cluster are all lists of
extents. An extent can be inverted (:func:`invert`) and cut between any two runs (:func:`slice_runs`). Two
copies, one after the other, can be combined into one that skips the files between them (:func:`compose`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]
"""Array of integers, usually extents: one row per extent, one :class:`Column` per field."""


class Extent(NamedTuple):
    """``runs`` runs of ``run`` bytes each, equally spaced in the source and equally spaced in the target.

    Run r is read at ``offset + r * stride`` of the source and written at ``target_offset + r *
    target_stride`` of the target. Runs never overlap: ``run <= stride``.

    Attributes:
        source: index of the source in a list of files.
        offset: offset of the first run in the source.
        stride: distance in bytes between the starts of two runs in the source.
        target: index of the target in a list of files.
        target_offset: offset of the first run in the target.
        target_stride: distance in bytes between the starts of two runs in the target.
        run: bytes per run, at least 1.
        runs: number of runs, at least 1.
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
        """Number of bytes that are copied."""
        return self.run * self.runs


class Column(IntEnum):
    """Column of a table of extents: the position of the field in :class:`Extent`."""

    SOURCE = 0
    OFFSET = 1
    STRIDE = 2
    TARGET = 3
    TARGET_OFFSET = 4
    TARGET_STRIDE = 5
    RUN = 6
    RUNS = 7


class Extents(Sequence[Extent]):
    """Sequence of extents, stored in one array because a file may have 100,000 tensors.

    Attributes:
        table: one row per extent.

    Examples:
        >>> Extents.from_extents([make_contiguous(0, 8, 1, 64, 16)]).table.tolist()
        [[0, 8, 16, 1, 64, 16, 16, 1]]
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    @classmethod
    def from_extents(cls, extents: Iterable[Extent]) -> Extents:
        """Build a table from extents. An ``Extents`` object is returned unchanged."""
        if isinstance(extents, cls):
            return extents
        return cls(np.fromiter(itertools.chain.from_iterable(extents), np.int64).reshape(-1, 8))

    @classmethod
    def concatenate(cls, tables: Sequence[Extents]) -> Extents:
        """Return one table with the extents of all ``tables``, in order."""
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
        """Indices of the sources, sorted and without duplicates."""
        found: list[int] = np.unique(self.table[:, Column.SOURCE]).tolist()
        return found

    @property
    def targets(self) -> list[int]:
        """Indices of the targets, sorted and without duplicates."""
        return self.invert().sources

    @property
    def bytes(self) -> int:
        """Number of bytes that are copied."""
        return int((self.table[:, Column.RUN] * self.table[:, Column.RUNS]).sum())

    @property
    def target_ends(self) -> Table:
        """Offset just past the last byte in the target, for each extent."""
        offset, stride, run, runs = self.table[:, Column.TARGET_OFFSET :].T
        ends: Table = offset + (runs - 1) * stride + run
        return ends

    def invert(self) -> Extents:
        """Swap sources and targets: the result copies the bytes back."""
        source, target, counts = np.split(self.table, [Column.TARGET, Column.RUN], axis=1)
        return Extents(np.concatenate([target, source, counts], 1))


def make_contiguous(source: int, offset: int, target: int, target_offset: int, size: int) -> Extent:
    """Make the extent of one contiguous range of ``size`` bytes."""
    return Extent(source, offset, size, target, target_offset, size, size, 1)


def concat_ranges(first: Table, counts: Table) -> Table:
    """Concatenate the ranges ``first[i], first[i] + 1, ...``, each of length ``counts[i]``.

    Examples:
        >>> concat_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def extents_from_ranges(stretches: npt.ArrayLike, places: npt.ArrayLike, first: int = 0) -> Extents:
    """Make one extent for each non-empty byte range in ``stretches``, given as (source, offset, size).

    ``places`` has the (target, offset) of each range. ``first`` is added to every target index.

    Examples:
        >>> [list(extent) for extent in extents_from_ranges([(0, 0, 8), (0, 8, 0)], [(1, 64), (1, 72)])]
        [[0, 0, 8, 1, 64, 8, 8, 1]]
    """
    source, offset, size = np.array(stretches, np.int64).reshape(-1, 3).T
    target, target_offset = np.array(places, np.int64).reshape(-1, 2).T
    columns = source, offset, size, target + first, target_offset, size, size, np.ones_like(size)
    table = np.stack(columns, 1)
    return Extents(table[size > 0])


def iter_extents(first: Extent, walks: Sequence[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield the extents that repeat the single run ``first`` along several axes.

    For each axis, ``walks`` has the number of steps, then the bytes per step in the source and in the target.

    Examples:
        A matrix of 2 rows and 3 columns of 4 bytes, transposed:

        >>> for extent in iter_extents(make_contiguous(0, 0, 1, 0, 4), [(2, 12, 4), (3, 4, 8)]):
        ...     print(*extent)
        0 0 4 1 0 8 4 3
        0 12 4 1 4 8 4 3
    """
    *others, (count, stride, target_stride) = sorted(
        [(1, 0, 0), *walks]
    )  # the axis with the most steps becomes the runs
    strides = (stride, target_stride) if count > 1 else (first.run, first.run)
    for index in itertools.product(*(range(steps) for steps, _, _ in others)):
        offset = first.offset + sum(i * walk[1] for i, walk in zip(index, others, strict=True))
        to = first.target_offset + sum(i * walk[2] for i, walk in zip(index, others, strict=True))
        yield Extent(first.source, offset, strides[0], first.target, to, strides[1], first.run, count)


def compute_strides(shape: Sequence[int]) -> list[int]:
    """Return the number of elements between neighbours along each axis, in row-major order.

    Examples:
        >>> compute_strides((2, 3, 4))
        [12, 4, 1]
    """
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def coalesce_axes(walks: Iterable[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int]], int]:
    """Merge the axes of a box if possible. Return the remaining axes, and the elements per contiguous run.

    Each axis is a tuple: its size, its stride in the array and its stride in the box, all in elements.

    Examples:
        The last two of four columns of 5 elements, in each of 3 rows:

        >>> coalesce_axes([(3, 20, 10), (2, 5, 5), (5, 1, 1)])
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


def cover_byte_ranges(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """Return sorted byte ranges with all bytes that the extents read.

    At most half of each range is unused, unless different extents read the same bytes. All extents must have
    the same source.

    Examples:
        >>> strided = [Extent(0, 0, 8, 0, 0, 4, run=4, runs=3), Extent(0, 100, 64, 1, 0, 8, run=8, runs=2)]
        >>> cover_byte_ranges(strided)
        [(0, 20), (100, 108), (164, 172)]
    """

    def find_end(extent: Extent) -> int:
        return extent.offset + (extent.runs - 1) * extent.stride + extent.run

    groups: list[list[Extent]] = []
    reached = -1
    # Several targets may read the same bytes, which count once.
    places = {extent._replace(target=0, target_offset=0, target_stride=0) for extent in extents}
    for extent in sorted(places, key=lambda extent: extent.offset):
        if extent.offset > reached:
            groups.append([])
        groups[-1].append(extent)
        reached = max(reached, find_end(extent))
    found: list[tuple[int, int]] = []
    for group in groups:
        whole = group[0].offset, max(find_end(extent) for extent in group)
        if whole[1] - whole[0] <= 2 * sum(extent.bytes for extent in group):
            found.append(whole)
            continue
        runs = (slice_runs(extent, row, row + 1) for extent in group for row in range(extent.runs))
        for begin, size in sorted((run.offset, run.run) for run in runs):
            if found and begin <= found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], begin + size)
            else:
                found.append((begin, begin + size))
    return found


def invert(extent: Extent) -> Extent:
    """Swap source and target: the result copies the bytes back.

    Examples:
        >>> invert(Extent(0, 128, 24, 1, 0, 8, run=8, runs=3))
        Extent(source=1, offset=0, stride=8, target=0, target_offset=128, target_stride=24, run=8, runs=3)
    """
    source, offset, stride, target, target_offset, target_stride, run, runs = extent
    return Extent(target, target_offset, target_stride, source, offset, stride, run, runs)


def slice_runs(extent: Extent, first: int, end: int) -> Extent:
    """Return the runs ``first`` to ``end`` (exclusive) of an extent."""
    return extent._replace(
        offset=extent.offset + first * extent.stride,
        target_offset=extent.target_offset + first * extent.target_stride,
        runs=end - first,
    )


def merge_adjacent(extents: Iterable[Extent]) -> Extents:
    """Merge consecutive contiguous extents if the second continues the first in the source and the target.

    Examples:
        >>> list(merge_adjacent([make_contiguous(0, 0, 1, 64, 8), make_contiguous(0, 8, 1, 72, 8)]))
        [Extent(source=0, offset=0, stride=16, target=1, target_offset=64, target_stride=16, run=16, runs=1)]
    """
    table = Extents.from_extents(extents).table
    source, offset, stride, target, target_offset, target_stride, run, runs = table.T
    one = (runs == 1) | ((stride == run) & (target_stride == run))
    sizes = run * runs
    goes_on = one[:-1] & one[1:] & (source[:-1] == source[1:]) & (target[:-1] == target[1:])
    goes_on &= offset[:-1] + sizes[:-1] == offset[1:]
    goes_on &= target_offset[:-1] + sizes[:-1] == target_offset[1:]
    first = np.flatnonzero(np.concatenate(([True], ~goes_on))[: len(table)])
    sizes = np.add.reduceat(sizes, first) if len(table) else sizes
    table, one = table[first], one[first]
    table[one, Column.RUNS] = 1
    for column in (Column.STRIDE, Column.TARGET_STRIDE, Column.RUN):
        table[one, column] = sizes[one]
    return Extents(table)


def _normalise(extent: Extent) -> Extent:
    """Turn an extent without gaps into a single run. The strides of a single run become its length."""
    if extent.runs == 1 and extent.stride == extent.run == extent.target_stride:
        return extent
    if extent.runs == 1 or extent.stride == extent.run == extent.target_stride:
        return make_contiguous(*extent[:2], *extent[3:5], extent.bytes)
    return extent


def compose(first: Sequence[Extent], second: Sequence[Extent]) -> list[Extent]:
    """Combine two copies, one after the other, into one that skips the files between them.

    The extents of ``first`` must not write a byte twice. Its targets are the sources of ``second``.

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
        into.setdefault(extent.target, []).append(_normalise(extent))
    made: list[Extent] = []
    for extent in second:
        after = _normalise(extent)
        for before in into.get(after.source, ()):
            made += _intersect(before, after)
    made.sort(key=lambda extent: (extent.target, extent.target_offset))
    return made


def _intersect(before: Extent, after: Extent) -> Iterator[Extent]:
    """Yield the extents that copy the bytes that ``before`` writes and ``after`` reads."""
    start = max(before.target_offset, after.offset)
    end = min(
        before.target_offset + (before.runs - 1) * before.target_stride + before.run,
        after.offset + (after.runs - 1) * after.stride + after.run,
    )
    if start >= end:
        return
    if before.runs > 1 and after.runs > 1 and before.target_stride == after.stride:
        yield from _intersect_equal_strides(before, after)
    elif after.runs == 1 or (before.runs > 1 and before.target_stride < after.stride):
        for index in range(after.runs):
            yield from _clip_to_run(before, slice_runs(after, index, index + 1))
    else:
        # As above, with the two extents swapped: each run of `before` contains runs of `after`.
        for index in range(before.runs):
            for found in _clip_to_run(invert(after), invert(slice_runs(before, index, index + 1))):
                yield invert(found)


def _intersect_equal_strides(before: Extent, after: Extent) -> Iterator[Extent]:
    """Yield the intersection of extents with the same stride: the same columns of every row."""
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


def _clip_to_run(before: Extent, stretch: Extent) -> Iterator[Extent]:
    """Yield the part of ``before`` that the single run ``stretch`` reads. Runs at its ends may be cut."""
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
            yield make_contiguous(
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
