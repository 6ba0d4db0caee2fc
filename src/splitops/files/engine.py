"""The engine: executes extents with bounded memory.

Runs of 64 KiB and more go from file to file through one buffer. Shorter runs that lie in the same rows of a
file are read together, a block of rows at a time, each to where it is written from, and written together: a
split in 4096 columns reads its source once. Stretches of less than a block that are neighbours in a target,
such as small tensors, are written together. The bytes are moved by :mod:`splitops.native.files`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from splitops.files.extents import Extent, Extents, Table, contiguous, joined
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
_MAX_GAP: Final = 16 << 10
"""So many bytes between two runs are read with them."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Extents of equal counts that are copied together: run r of each, then run r + 1.

    Attributes:
        extents: in the order of their targets.
        block_rows: how many runs of each a thread takes at a time.
    """

    extents: Extents
    block_rows: int

    @property
    def count(self) -> int:
        """How many runs each extent has."""
        return int(self.extents.table[0, 7])

    @property
    def row_bytes(self) -> int:
        """The bytes of one run of each."""
        return int(self.extents.table[:, 6].sum())


class CopyError(Exception):
    """A file could not be read or written.

    Attributes:
        writing: whether it is a target.
        file: its position.
        offset: where.
        error: the errno; 0 where a source ended too early.
    """

    def __init__(self, writing: bool, file: int, offset: int, error: int) -> None:
        self.writing, self.file, self.offset, self.error = writing, file, offset, error
        super().__init__(os.strerror(error) if error else "it ended early")

    def __reduce__(self) -> tuple[type[CopyError], tuple[bool, int, int, int]]:
        return CopyError, (self.writing, self.file, self.offset, self.error)


# What the passes are ------------------------------------------------------------------------------------


def passes(extents: Iterable[Extent], memory: int) -> list[Pass]:
    """Group extents so that each byte of the sources is read about once.

    Args:
        extents: any; no two write the same byte.
        memory: bytes that the buffers of one thread may take, at least 2 MiB.
    """
    found = joined(extents).table
    block = max(1, min(_BLOCK, memory // 4))
    run, one = found[:, 6], found[:, 7] == 1
    small, short = one & (run < block), ~one & (run < _LONG_RUN)
    alone: list[Extent] = []
    ends: list[Extent] = []
    for extent in Extents(found[~small & ~short]):
        if extent.runs > 1:
            alone += _columns(extent)
            continue
        alone.append(_blocks(extent, block))
        if extent.run % block:
            ends.append(_end(extent, extent.run % block))
    made = [Pass(Extents.of([extent]), max(1, min(extent.runs, _BLOCK // extent.run))) for extent in alone]
    made += _grouped(found[short], memory)
    made += _together(np.concatenate([found[small], Extents.of(ends).table]), block)
    made.sort(key=lambda found: found.extents.table[0, :2].tolist())
    return made


def _blocks(extent: Extent, block: int) -> Extent:
    """Return the whole blocks of one stretch as rows."""
    return extent._replace(stride=block, target_stride=block, run=block, runs=extent.run // block)


def _end(extent: Extent, size: int) -> Extent:
    """Return the last bytes of one stretch."""
    done = extent.run - size
    return contiguous(extent.source, extent.offset + done, extent.target, extent.target_offset + done, size)


def _together(found: Table, block: int) -> Iterator[Pass]:
    """Yield stretches of less than a block, neighbours in a target in one pass: it costs more to write."""
    found = found[np.lexsort((found[:, 4], found[:, 3]))]
    blocks = (np.cumsum(found[:, 6]) - found[:, 6]) // block
    new = (np.diff(found[:, 3]) != 0) | (np.diff(blocks) != 0)
    for group in np.split(found, np.flatnonzero(new) + 1) if len(found) else ():
        yield Pass(Extents(group), 1)


def _columns(extent: Extent) -> Iterator[Extent]:
    """Yield an extent of long runs as columns of at most a block."""
    for begin in range(0, extent.run, _BLOCK):
        yield extent._replace(
            offset=extent.offset + begin,
            target_offset=extent.target_offset + begin,
            run=min(_BLOCK, extent.run - begin),
        )


def _grouped(extents: Table, memory: int) -> Iterator[Pass]:
    """Yield rows of short runs, those that share rows of a source or of a target in one pass."""
    if not len(extents):
        return
    group = _groups(extents, memory)
    order = np.lexsort((extents[:, 4], extents[:, 3], group))
    extents, group = extents[order], group[order]
    (reading, _), (writing, _) = _lanes(extents, group, _MAX_GAP), _lanes(_inverse(extents), group, 0)
    used, stride = reading[:, 3], reading[:, 4]
    rows = np.zeros(group[-1] + 1, np.int64)
    np.add.at(rows, reading[:, 0], np.where(used * 2 >= stride, stride, used))  # with small gaps
    np.add.at(rows, writing[:, 0], writing[:, 3])
    files = np.maximum(np.bincount(reading[:, 0]), np.bincount(writing[:, 0]))
    each = np.split(extents, np.flatnonzero(np.diff(group)) + 1)
    for table, row, count in zip(each, rows.tolist(), files.tolist(), strict=True):
        if row > memory:  # files that all meet in rows too wide to hold: each extent by itself
            for extent in Extents(table):
                yield Pass(Extents.of([extent]), max(1, min(extent.runs, memory // (2 * extent.stride))))
        else:
            wanted = 2 * max(_BLOCK, count * _PIECE)
            yield Pass(Extents(table), max(1, min(wanted, memory) // row))


def _groups(extents: Table, memory: int) -> Table:
    """Return the numbers of groups of extents that share rows of a source or of a target.

    A group is so small that each file gets a piece at a time, unless the rows would be short.
    """
    parents = list(range(len(extents)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    widest = min(memory // 4, max(_MAX_GAP, int(extents[:, 6].min()) * (memory // (2 * _PIECE))))
    one = np.zeros(len(extents), np.int64)
    for found, gap in ((extents, _MAX_GAP), (_inverse(extents), 0)):
        first: dict[int, int] = {}
        for index, lane in enumerate(_lanes(found, one, gap, widest)[1].tolist()):
            parents[root(index)] = root(first.setdefault(lane, index))
    return np.unique([root(index) for index in range(len(extents))], return_inverse=True)[1]


def _inverse(extents: Table) -> Table:
    return Extents(extents).inverse().table


def _lanes(extents: Table, number: Table, gap: int, widest: int | None = None) -> tuple[Table, Table]:
    """Return the lanes that extents are read in: rows equally far apart, with gaps of bounded width.

    Without a gap they are those that are written in, where none may have the bytes of another one.

    Args:
        extents: any.
        number: of the pass of each.
        gap: the most bytes between two runs of a lane.
        widest: the most bytes of a row.

    Returns:
        The lanes as the core takes them, in the order of the passes; and the lane of each extent.
    """
    order = np.lexsort((extents[:, 1], extents[:, 2], extents[:, 7], extents[:, 0], number))
    columns = np.column_stack((number, extents[:, [0, 7, 2, 1, 6]]))[order]
    lanes: list[list[int]] = []
    numbers = []
    before, base, end = (-1, -1, -1, -1), 0, 0
    for of, source, runs, stride, offset, run in columns.tolist():
        near = offset <= end + gap if gap else offset == end
        if (
            before != (of, source, runs, stride)
            or not near
            or offset + run - base > min(stride, widest or stride)
        ):
            before, base, end = (of, source, runs, stride), offset, offset
            lanes.append([of, source, base, 0, stride])
        end = max(end, offset + run)
        lanes[-1][3] = end - base
        numbers.append(len(lanes) - 1)
    lane = np.empty(len(order), np.int64)
    lane[order] = numbers
    return np.array(lanes, np.int64).reshape(-1, 5), lane


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


def tasks(found: Iterable[Pass], size: int = TASK_BYTES) -> list[list[Pass]]:
    """Cut passes between rows into tasks of about a size; each can be done without the others, and again."""
    made: list[list[Pass]] = [[]]
    left = size
    for each in found:
        first = 0
        while first < each.count:
            if left <= 0:
                made.append([])
                left = size
            # Whole blocks, so that a cut does not make two small ones.
            blocks = max(1, left // (each.row_bytes * each.block_rows))
            end = min(each.count, first + blocks * each.block_rows)
            piece = each.extents if end - first == each.count else each.extents.rows(first, end)
            made[-1].append(Pass(piece, each.block_rows))
            left -= (end - first) * each.row_bytes
            first = end
    return [task for task in made if task]


# Doing them ---------------------------------------------------------------------------------------------


def copy(
    task: Sequence[Pass],
    sources: Mapping[int, int],
    targets: Mapping[int, int],
    *,
    threads: int = THREADS,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Copy a task's bytes.

    Args:
        task: passes over these files.
        sources: their descriptors by position.
        targets: their descriptors by position.
        threads: how many work.
        tick: called now and then with the bytes that are done; what it raises ends the copy.

    Returns:
        The CRC-32 of each extent's bytes, run after run, in the order of the passes.

    Raises:
        CopyError: a file cannot be read or written, or a source ended early.
    """
    return _run(task, sources, targets, threads, tick)


def checksums(
    task: Sequence[Pass],
    files: Mapping[int, int],
    *,
    written: bool = True,
    threads: int = THREADS,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Return the CRC-32 of each extent's bytes, as :func:`copy` returns them; nothing is written.

    Args:
        task: passes over these files.
        files: their descriptors by position.
        written: whether the targets of the task are read, back; else its sources.
        threads: how many work.
        tick: as in :func:`copy`.

    Raises:
        CopyError: a file cannot be read, or has lost its end; ``writing`` is False for targets, too.
    """
    if written:
        task = [Pass(each.extents.inverse(), each.block_rows) for each in task]
    return _run(task, files, None, threads, tick)


def _run(
    task: Sequence[Pass],
    sources: Mapping[int, int],
    targets: Mapping[int, int] | None,
    threads: int,
    tick: Callable[[int], object],
) -> list[int]:
    tables = _Tables(task)
    source_files, target_files = list(sources), list(targets or ())
    found, failure = copy_extents(
        *tables.arguments(source_files, None if targets is None else target_files),
        list(sources.values()),
        list(targets.values()) if targets is not None else None,
        threads,
        tick,
    )
    if failure is not None:
        writing, file, offset, error = failure
        raise CopyError(writing, (target_files if writing else source_files)[file], offset, error)
    return tables.in_order(found)


class _Tables:
    """A task as :mod:`splitops.native.files` takes it."""

    def __init__(self, task: Sequence[Pass]) -> None:
        self._passes: list[tuple[int, int]] = []
        self._moves: list[Table] = []
        self._sources: list[Table] = []
        self._targets: list[Table] = []
        self._positions: list[Table] = []
        """Of each move, the position of its extent in the task."""
        firsts = list(itertools.accumulate((len(each.extents) for each in task), initial=0))
        lone = [at for at, each in enumerate(task) if each.count == 1]
        others = [at for at, each in enumerate(task) if each.count > 1]
        for some, lanes in ((lone, _stretches), (others, _lanes)):
            if some:
                self._add([task[at] for at in some], [firsts[at] for at in some], lanes)

    def _add(
        self,
        passes: Sequence[Pass],
        firsts: Sequence[int],
        lanes: Callable[[Table, Table, int], tuple[Table, Table]],
    ) -> None:
        """Add passes: of each the position of its first extent in the task. Their lanes are made so."""
        tables = [each.extents.table for each in passes]
        number = np.repeat(np.arange(len(tables)) + len(self._passes), [len(table) for table in tables])
        position = [np.arange(first, first + len(each)) for first, each in zip(firsts, tables, strict=True)]
        self._passes += [(each.count, each.block_rows) for each in passes]
        table = np.concatenate(tables)
        (read, of), (written, to) = lanes(table, number, _MAX_GAP), lanes(_inverse(table), number, 0)
        order = np.lexsort((table[:, 4], to))
        table, of, to = table[order], of[order], to[order]
        column, target_column = table[:, 1] - read[of, 2], table[:, 4] - written[to, 2]
        sources, targets = sum(map(len, self._sources)), sum(map(len, self._targets))
        self._moves.append(np.stack((sources + of, column, targets + to, target_column, table[:, 6]), 1))
        self._sources.append(read)
        self._targets.append(written)
        self._positions.append(np.concatenate(position)[order])

    def arguments(
        self, sources: Sequence[int], targets: Sequence[int] | None
    ) -> tuple[Table, Table, Table, Table]:
        """Return the first arguments of ``copy_extents``, whose files count in these lists."""
        return (
            np.array(self._passes, np.int64).reshape(-1, 2),
            _counted(self._sources, sources),
            _counted(self._targets, targets),
            np.concatenate([np.empty((0, 5), np.int64), *self._moves]),
        )

    def in_order(self, checksums: Sequence[int]) -> list[int]:
        """Return the checksums of the moves by the position of their extents in the task."""
        found = np.empty(len(checksums), np.int64)
        found[np.concatenate([np.empty(0, np.int64), *self._positions])] = checksums
        made: list[int] = found.tolist()
        return made


def _counted(lanes: Sequence[Table], files: Sequence[int] | None) -> Table:
    table = np.concatenate([np.empty((0, 5), np.int64), *lanes])
    if files is not None and len(files):
        order = np.argsort(files)
        table[:, 1] = order[np.searchsorted(np.array(files)[order], table[:, 1])]
    return table
