"""The engine: executes extents with bounded memory.

Runs of 64 KiB and more go from file to file through one buffer. Shorter runs that lie in the same rows of a
file are read together, a block of rows at a time, each to where it is written from, and written together: a
split in 4096 columns reads its source once. Stretches of less than a block that are neighbours in a target,
such as small tensors, are written together. The bytes are moved by :mod:`splitops.native.files`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from splitops.files.extents import Extent, Extents, Table, joined, numbers_from
from splitops.native.files import copy_extents

TASK_BYTES: Final = 256 << 20
"""About how much a task copies: what is made durable, journalled and sent to a worker at a time."""
THREADS: Final = 2
"""How many copy."""
_BLOCK: Final = 1 << 20
"""Bytes that a thread reads at a time: longer writes cost the system less, shorter ones the caches."""
_LONG_RUN: Final = 64 << 10
"""From here on a call of the system for each run costs little beside its bytes."""
_PIECE: Final = 64 << 10
"""What each file of a pass is to get at a time: less costs the system work for each, more the caches."""
_NARROW: Final = 8 << 10
"""Rows of a source are not cut into less: reading costs the system less than writing, but not nothing."""
_MAX_GAP: Final = 16 << 10
"""So many bytes between two runs are read with them."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Extents in passes: those of a pass have equal counts, and are copied together, run after run of each.

    Attributes:
        extents: pass after pass, those of one in the order of their targets.
        sizes: of each pass, how many extents it has.
        block_rows: of each, how many runs of each extent a thread takes at a time.
    """

    extents: Extents
    sizes: Table
    block_rows: Table

    @property
    def firsts(self) -> Table:
        """The position of the first extent of each pass."""
        found: Table = np.cumsum(self.sizes) - self.sizes
        return found

    @property
    def counts(self) -> Table:
        """How many runs each extent of a pass has."""
        found: Table = self.extents.table[self.firsts, 7]
        return found

    @property
    def row_bytes(self) -> Table:
        """Of each pass, the bytes of one run of each extent."""
        run = self.extents.table[:, 6]
        found: Table = np.add.reduceat(run, self.firsts) if len(self.sizes) else self.sizes
        return found

    def rows(self, passes: Table, first: Table, end: Table) -> Passes:
        """Return the runs ``first`` to ``end`` of some passes."""
        sizes = self.sizes[passes]
        table = self.extents.table[numbers_from(self.firsts[passes], sizes)]
        skipped = np.repeat(first, sizes)
        table[:, 1] += skipped * table[:, 2]
        table[:, 4] += skipped * table[:, 5]
        table[:, 7] = np.repeat(end - first, sizes)
        return Passes(Extents(table), sizes, self.block_rows[passes])


class CopyError(Exception):
    """A file, by its position, cannot be read or written; errno 0 is that of a source that ended early."""

    def __init__(self, writing: bool, file: int, offset: int, error: int) -> None:
        self.writing, self.file, self.offset, self.error = writing, file, offset, error
        super().__init__(os.strerror(error) if error else "it ended early")

    def __reduce__(self) -> tuple[type[CopyError], tuple[bool, int, int, int]]:
        return CopyError, (self.writing, self.file, self.offset, self.error)


# What the passes are ------------------------------------------------------------------------------------


_Some = tuple[Table, Table, Table]
"""Extents, the number of the pass of each, in order, and how many runs each pass takes at a time."""


def passes(extents: Iterable[Extent], memory: int) -> Passes:
    """Group extents that write different bytes so that each byte of the sources is read about once.

    The buffers of one thread may take so much memory, at least 2 MiB.
    """
    found = joined(extents).table
    block = max(1, min(_BLOCK, memory // 4))
    run, one = found[:, 6], found[:, 7] == 1
    small, short = one & (run < block), ~one & (run < _LONG_RUN)
    whole, ends = _blocks(found[one & ~small], block)
    some = [
        _alone(np.concatenate([whole, _columns(found[~one & ~short])])),
        _grouped(found[short], memory),
        _together(np.concatenate([found[small], ends]), block),
    ]
    table = np.concatenate([each[0] for each in some])
    sizes = np.concatenate([np.bincount(number, minlength=len(rows)) for _, number, rows in some])
    block_rows = np.concatenate([rows for _, _, rows in some])
    made = Passes(Extents(table), sizes, block_rows)
    first = table[made.firsts]
    order = np.lexsort((first[:, 1], first[:, 0]))
    return made.rows(order, np.zeros_like(order), made.counts[order])


def _blocks(found: Table, block: int) -> tuple[Table, Table]:
    """Return the whole blocks of stretches as rows, and what is behind them."""
    whole, ends = found.copy(), found.copy()
    size = found[:, 6] % block
    whole[:, [2, 5, 6]], whole[:, 7] = block, found[:, 6] // block
    ends[:, [1, 4]] += (found[:, 6] - size)[:, None]
    ends[:, [2, 5, 6]] = size[:, None]
    return whole, ends[size > 0]


def _columns(found: Table) -> Table:
    """Return extents of long runs as columns of at most a block."""
    counts = -(-found[:, 6] // _BLOCK)
    begin = numbers_from(np.zeros_like(counts), counts) * _BLOCK
    columns = np.repeat(found, counts, axis=0)
    columns[:, [1, 4]] += begin[:, None]
    columns[:, 6] = np.minimum(_BLOCK, columns[:, 6] - begin)
    return columns


def _alone(found: Table) -> _Some:
    """Return a pass for each extent."""
    return found, np.arange(len(found)), np.clip(_BLOCK // found[:, 6], 1, found[:, 7])


def _together(found: Table, block: int) -> _Some:
    """Return stretches of less than a block, neighbours in a target in one pass: it costs more to write."""
    found = found[np.lexsort((found[:, 4], found[:, 3]))]
    blocks = (np.cumsum(found[:, 6]) - found[:, 6]) // block
    number = _counted_up((np.diff(found[:, 3]) != 0) | (np.diff(blocks) != 0), len(found))
    return found, number, np.ones(len(np.unique(number)), np.int64)


def _counted_up(new: npt.NDArray[np.bool_], count: int) -> Table:
    """Return the numbers of runs of so many things, of which all but the first say whether a run begins."""
    return np.cumsum(np.concatenate(([0], new)))[:count]


def _grouped(extents: Table, memory: int) -> _Some:
    """Return rows of short runs, those that share rows of a source or of a target in one pass."""
    if not len(extents):
        return _alone(extents)
    group = _groups(extents, memory)
    order = np.lexsort((extents[:, 4], extents[:, 3], group))
    extents, group = extents[order], group[order]
    (reading, _), (writing, _) = _lanes(extents, group, _MAX_GAP), _lanes(_inverse(extents), group, 0)
    used, stride = reading[:, 3], reading[:, 4]
    groups = group[-1] + 1
    read = np.bincount(reading[:, 0], np.where(used * 2 >= stride, stride, used), groups).astype(np.int64)
    write = np.bincount(writing[:, 0], writing[:, 3], groups).astype(np.int64)
    row = read + write
    sources, targets = np.bincount(reading[:, 0]), np.bincount(writing[:, 0])
    # Of few sources the core reads so much at a time; it holds all that it writes.
    held = np.maximum(np.maximum(_BLOCK, sources * _PIECE), read)
    wanted = 2 * np.maximum(_BLOCK, np.maximum(sources, targets) * _PIECE) // row
    most = np.maximum(1, np.minimum(wanted, np.maximum(memory // row, (memory - held) // write)))
    wide = (row > memory)[group]  # files that all meet in rows too wide to hold: each extent by itself
    number = _counted_up((np.diff(group) != 0) | wide[1:], len(group))
    first = np.unique(number, return_index=True)[1]
    counts, most = extents[first, 7], most[group[first]]
    alone = np.minimum(counts, memory // (2 * extents[first, 2]))
    even = -(-counts // -(-counts // most))  # blocks of one size: a small one at the end costs as many calls
    return extents, number, np.maximum(1, np.where(wide[first], alone, even))


def _groups(extents: Table, memory: int) -> Table:
    """Return the numbers of groups of extents that share rows of a source or of a target.

    A group is so small that each file gets a piece at a time, unless the rows would be short.
    """
    shortest = int(extents[:, 6].min())
    reading, writing = (
        min(memory // 4, max(least, shortest * (memory // _PIECE) // of))
        for least, of in ((_NARROW, 1), (_MAX_GAP, 2))
    )
    one = np.zeros(len(extents), np.int64)
    sides = [
        _lanes(found, one, gap, widest)[1]
        for found, gap, widest in ((extents, _MAX_GAP, reading), (_inverse(extents), 0, writing))
    ]
    orders = [(np.argsort(lane, kind="stable"), lane) for lane in sides]
    starts = [np.flatnonzero(np.concatenate(([True], np.diff(lane[order]) != 0))) for order, lane in orders]
    least, before = np.arange(len(extents)), np.empty(0, np.int64)
    while not np.array_equal(least, before):  # of each extent the first one that it is known to go with
        before = least
        for (order, lane), start in zip(orders, starts, strict=True):
            least = np.minimum.reduceat(least[order], start)[lane]
        least = least[least]
    return np.unique(least, return_inverse=True)[1]


def _inverse(extents: Table) -> Table:
    return Extents(extents).inverse().table


def _lanes(extents: Table, number: Table, gap: int, widest: int | None = None) -> tuple[Table, Table]:
    """Return the lanes of extents as the core takes them, in the order of the passes, and the lane of each.

    A lane is rows equally far apart, with gaps of at most so many bytes. Without a gap it is one that is
    written, where no byte may be of another extent.
    """
    order = np.lexsort((extents[:, 1], extents[:, 2], extents[:, 7], extents[:, 0], number))
    keys = np.column_stack((number, extents[:, [0, 7, 2]]))[order]
    offset, end = extents[order, 1], extents[order, 1] + extents[order, 6]
    new = (np.diff(keys, axis=0) != 0).any(1)
    new |= offset[1:] > end[:-1] + gap if gap else offset[1:] != end[:-1]
    first = np.flatnonzero(np.concatenate(([True], new)))[: len(order)]
    most = np.minimum(keys[:, 3], widest or keys[:, 3])[first]
    wide = np.maximum.reduceat(end, first) - offset[first] > most if len(order) else most > 0
    behind = np.append(first[1:], len(order))
    more = [first]
    for begin, stop, width in zip(
        first[wide].tolist(), behind[wide].tolist(), most[wide].tolist(), strict=True
    ):
        reached = np.maximum.accumulate(end[begin:stop]).tolist()
        at = begin
        while (at := begin + bisect_right(reached, int(offset[at]) + width, at + 1 - begin)) < stop:
            more.append(np.array([at]))
    first = np.sort(np.concatenate(more))
    counts = np.diff(np.append(first, len(order)))
    used = np.maximum.reduceat(end, first) - offset[first] if len(order) else first
    lane = np.empty(len(order), np.int64)
    lane[order] = np.repeat(np.arange(len(first)), counts)
    return np.column_stack((keys[first][:, :2], offset[first], used, keys[first, 3])), lane


def _stretches(extents: Table, number: Table, gap: int) -> tuple[Table, Table]:
    """Return the lanes of single runs, as :func:`_lanes` does: with a gap, of runs that touch or overlap."""
    order = np.lexsort((extents[:, 1], extents[:, 0], number))
    of, file, offset, size = number[order], *extents[order][:, [0, 1, 6]].T
    end = offset + size
    new = (np.diff(of) != 0) | (np.diff(file) != 0)
    new |= offset[1:] > end[:-1] if gap else offset[1:] != end[:-1]
    first = np.flatnonzero(np.concatenate(([True], new)))
    used = np.maximum.reduceat(end, first) - offset[first]
    lane = np.empty(len(order), np.int64)
    lane[order] = np.cumsum(np.concatenate(([0], new)))
    return np.stack((of[first], file[first], offset[first], used, used), 1), lane


def tasks(found: Passes, size: int = TASK_BYTES) -> list[Passes]:
    """Cut passes between rows into tasks of about a size; each can be done without the others, and again."""
    made: list[list[tuple[int, int, int]]] = [[]]
    left = size
    columns = (found.counts.tolist(), found.row_bytes.tolist(), found.block_rows.tolist())
    for number, (count, row_bytes, block_rows) in enumerate(zip(*columns, strict=True)):
        first = 0
        while first < count:
            if left <= 0:
                made.append([])
                left = size
            # Whole blocks, so that a cut does not make two small ones.
            blocks = max(1, left // (row_bytes * block_rows))
            end = min(count, first + blocks * block_rows)
            made[-1].append((number, first, end))
            left -= (end - first) * row_bytes
            first = end
    return [found.rows(*np.array(task, np.int64).T) for task in made if task]


# Doing them ---------------------------------------------------------------------------------------------


def copy(
    task: Passes,
    sources: Mapping[int, int],
    targets: Mapping[int, int],
    *,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Copy a task between descriptors by position; return the CRC-32 of the bytes of each extent, in order.

    ``tick`` is called now and then with the bytes that are done; what it raises ends the copy.

    Raises:
        CopyError: a file cannot be read or written, or a source ended early.
    """
    return _run(task, sources, targets, tick)


def checksums(
    task: Passes,
    files: Mapping[int, int],
    *,
    written: bool = True,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Return the checksums as :func:`copy` does, of what the task has written or of what it reads.

    Raises:
        CopyError: a file cannot be read, or has lost its end; ``writing`` is False for targets, too.
    """
    if written:
        task = Passes(task.extents.inverse(), task.sizes, task.block_rows)
    return _run(task, files, None, tick)


def _run(
    task: Passes,
    sources: Mapping[int, int],
    targets: Mapping[int, int] | None,
    tick: Callable[[int], object],
) -> list[int]:
    source_files, target_files = list(sources), list(targets or ())
    passes, read, written, moves, positions = _tables(task)
    found, failure = copy_extents(
        passes,
        _counted(read, source_files),
        _counted(written, target_files),
        moves,
        list(sources.values()),
        None if targets is None else list(targets.values()),
        THREADS,
        tick,
    )
    if failure is not None:
        writing, file, offset, error = failure
        raise CopyError(writing, (target_files if writing else source_files)[file], offset, error)
    in_order = np.empty(len(found), np.int64)
    in_order[positions] = found
    made: list[int] = in_order.tolist()
    return made


def _tables(task: Passes) -> list[Table]:
    """Return the tables of :mod:`splitops.native.files`, and of each move the position of its extent."""
    made = [[np.empty((0, width), np.int64)] for width in (2, 5, 5, 5)] + [[np.empty(0, np.int64)]]
    lone = task.counts == 1
    for some, lanes in ((lone, _stretches), (~lone, _lanes)):
        if not some.any():
            continue
        passes, sources, targets = (sum(map(len, tables)) for tables in made[:3])
        position = np.flatnonzero(np.repeat(some, task.sizes))
        number = passes + np.repeat(np.arange(some.sum()), task.sizes[some])
        table = task.extents.table[position]
        (read, of), (written, to) = lanes(table, number, _MAX_GAP), lanes(_inverse(table), number, 0)
        order = np.lexsort((table[:, 4], to))
        table, of, to = table[order], of[order], to[order]
        column, target_column = table[:, 1] - read[of, 2], table[:, 4] - written[to, 2]
        moves = np.stack((sources + of, column, targets + to, target_column, table[:, 6]), 1)
        counts = np.column_stack((task.counts, task.block_rows))[some]
        for tables, more in zip(made, (counts, read, written, moves, position[order]), strict=True):
            tables.append(more)
    return [np.concatenate(tables) for tables in made]


def _counted(lanes: Table, files: Sequence[int]) -> Table:
    """Let the files of lanes count in a list; where nothing is written there is none."""
    if files:
        order = np.argsort(files)
        lanes[:, 1] = order[np.searchsorted(np.array(files)[order], lanes[:, 1])]
    return lanes
