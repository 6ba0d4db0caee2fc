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
    for group in _groups(found[short], memory):
        made += _grouped(group, memory)
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


def _grouped(group: Table, memory: int) -> Iterator[Pass]:
    (reading, _), (writing, _) = _lanes(group, _MAX_GAP), _lanes(_inverse(group), 0)
    used, stride = reading[:, 2], reading[:, 3]
    row = int(np.where(used * 2 >= stride, stride, used).sum() + writing[:, 2].sum())  # with small gaps
    if row > memory:  # files that all meet in rows too wide to hold: each extent by itself
        for extent in Extents(group):
            yield Pass(Extents.of([extent]), max(1, min(extent.runs, memory // (2 * extent.stride))))
        return
    wanted = 2 * max(_BLOCK, len(writing) * _PIECE, len(reading) * _PIECE)
    extents = Extents(group[np.lexsort((group[:, 4], group[:, 3]))])
    yield Pass(extents, max(1, min(wanted, memory) // row))


def _groups(extents: Table, memory: int) -> list[Table]:
    """Return extents that share rows of a source or of a target together.

    They are so few that each file gets a piece at a time, unless the rows would be short.
    """
    if not len(extents):
        return []
    parents = list(range(len(extents)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    widest = min(memory // 4, max(_MAX_GAP, int(extents[:, 6].min()) * (memory // (2 * _PIECE))))
    for _, lane in (_lanes(extents, _MAX_GAP, widest), _lanes(_inverse(extents), 0, widest)):
        first: dict[int, int] = {}
        for index, number in enumerate(lane.tolist()):
            parents[root(index)] = root(first.setdefault(number, index))
    roots = np.array([root(index) for index in range(len(extents))])
    order = np.argsort(roots, kind="stable")
    return np.split(extents[order], np.flatnonzero(np.diff(roots[order])) + 1)


def _inverse(extents: Table) -> Table:
    return Extents(extents).inverse().table


def _lanes(extents: Table, gap: int, widest: int | None = None) -> tuple[Table, Table]:
    """Return the lanes that extents are read in: rows equally far apart, with gaps of bounded width.

    Without a gap they are those that are written in, where none may have the bytes of another one. A lane is
    a row of its file, the first byte, how many of a row are used, and the stride. With them comes the lane of
    each extent.
    """
    order = np.lexsort((extents[:, 1], extents[:, 2], extents[:, 7], extents[:, 0]))
    lanes: list[list[int]] = []
    numbers = []
    before, base, end = (-1, -1, -1), 0, 0
    for source, offset, stride, run, runs in extents[order][:, [0, 1, 2, 6, 7]].tolist():
        near = offset <= end + gap if gap else offset == end
        if (
            before != (source, runs, stride)
            or not near
            or offset + run - base > min(stride, widest or stride)
        ):
            before, base, end = (source, runs, stride), offset, offset
            lanes.append([source, base, 0, stride])
        end = max(end, offset + run)
        lanes[-1][2] = end - base
        numbers.append(len(lanes) - 1)
    lane = np.empty(len(order), np.int64)
    lane[order] = numbers
    return np.array(lanes, np.int64).reshape(-1, 4), lane


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


def _stretches(
    number: Table, file: Table, offset: Table, size: Table, *, overlapping: bool
) -> tuple[Table, Table]:
    """Return the lanes of single runs, in their order: of those that go on one; and the lane of each run.

    Args:
        number: the pass of each run.
        file: its file.
        offset: where it begins.
        size: how many bytes it has.
        overlapping: whether a run that begins inside of the one before it goes on, too.
    """
    end = offset + size
    new = (np.diff(number) != 0) | (np.diff(file) != 0)
    new |= offset[1:] > end[:-1] if overlapping else offset[1:] != end[:-1]
    first = np.flatnonzero(np.concatenate(([True], new)))
    used = np.maximum.reduceat(end, first) - offset[first]
    lanes = np.stack((number[first], file[first], offset[first], used, used), 1)
    return lanes, np.cumsum(np.concatenate(([0], new)))


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
        if lone:
            self._add_stretches([task[at].extents.table for at in lone], [firsts[at] for at in lone])
        lanes = sum(map(len, self._sources)), sum(map(len, self._targets))
        for first, each in zip(firsts, task, strict=False):
            if each.count > 1:
                lanes = self._add(each, first, *lanes)

    def _add_stretches(self, tables: list[Table], firsts: list[int]) -> None:
        """Add passes of one row: of each the extents, and the position of the first one in the task."""
        self._passes += [(1, 1)] * len(tables)
        number = np.repeat(np.arange(len(tables)), [len(each) for each in tables])
        table = np.concatenate(tables)
        position = [np.arange(first, first + len(each)) for first, each in zip(firsts, tables, strict=True)]
        order = np.lexsort((table[:, 4], table[:, 3], number))
        self._positions.append(np.concatenate(position)[order])
        number, (source, offset, _, target, target_offset, _, size, _) = number[order], table[order].T
        written, to = _stretches(number, target, target_offset, size, overlapping=False)
        order = np.lexsort((offset, source, number))
        read, lane = _stretches(number[order], source[order], offset[order], size[order], overlapping=True)
        of = np.empty_like(lane)
        of[order] = lane
        moves = (of, offset - read[of, 2], to, target_offset - written[to, 2], size)
        self._moves.append(np.stack(moves, 1))
        self._sources.append(read)
        self._targets.append(written)

    def _add(self, found: Pass, first: int, sources: int, targets: int) -> tuple[int, int]:
        """Add a pass of several rows behind so many lanes; return how many there are then."""
        table, number = found.extents.table, len(self._passes)
        self._passes.append((found.count, found.block_rows))
        (read, of), (written, to) = _lanes(table, _MAX_GAP), _lanes(_inverse(table), 0)
        order = np.lexsort((table[:, 4], to))
        table, of, to = table[order], of[order], to[order]
        columns = table[:, 1] - read[of, 1], table[:, 4] - written[to, 1]
        self._moves.append(np.stack((sources + of, columns[0], targets + to, columns[1], table[:, 6]), 1))
        self._sources.append(np.insert(read, 0, number, 1))
        self._targets.append(np.insert(written, 0, number, 1))
        self._positions.append(first + order)
        return sources + len(read), targets + len(written)

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
