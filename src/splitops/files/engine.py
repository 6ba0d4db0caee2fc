"""The engine: executes extents with bounded memory.

Runs of 64 KiB and more go from file to file through one buffer. Shorter runs that lie in the same rows of a
file are read together, a block of rows at a time, each to where it is written from, and written together: a
split in 4096 columns reads its source once. The bytes are moved by :mod:`splitops.native.files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from splitops.files.extents import Extent, contiguous, inverse, joined, rows
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

    extents: tuple[Extent, ...]
    block_rows: int

    @property
    def count(self) -> int:
        """How many runs each extent has."""
        return self.extents[0].runs

    @property
    def row_bytes(self) -> int:
        """The bytes of one run of each."""
        return sum(extent.run for extent in self.extents)


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


@dataclass(frozen=True, slots=True)
class _Lane:
    """Neighbouring columns of rows in one file, with the extents that begin in each."""

    file: int
    base: int
    stride: int
    used: int
    extents: tuple[int, ...]

    @property
    def read_bytes(self) -> int:
        """The bytes of a row that may be read: with the gap behind it, where that is small."""
        return self.stride if self.used * 2 >= self.stride else self.used


# What the passes are ------------------------------------------------------------------------------------


def passes(extents: Iterable[Extent], memory: int) -> list[Pass]:
    """Group extents so that each byte of the sources is read about once.

    Args:
        extents: any; no two write the same byte.
        memory: bytes that the buffers of one thread may take, at least 2 MiB.
    """
    alone: list[Extent] = []
    short: list[Extent] = []
    for extent in joined(extents):
        if extent.runs == 1 or extent.stride == extent.run == extent.target_stride:
            alone += _blocks(extent.offset, extent.target_offset, extent.bytes, extent)
        elif extent.run >= _LONG_RUN:
            alone += _columns(extent)
        else:
            short.append(extent)
    made = [Pass((extent,), max(1, min(extent.runs, _BLOCK // extent.run))) for extent in alone]
    for group in _groups(short, memory // 4):
        made += _grouped(group, memory)
    made.sort(key=lambda found: (found.extents[0].source, found.extents[0].offset))
    return made


def _blocks(offset: int, target_offset: int, size: int, extent: Extent) -> Iterator[Extent]:
    """Yield one stretch as rows of a block, and what is left."""
    whole = size // _BLOCK
    if whole:
        source, target = extent.source, extent.target
        yield Extent(source, offset, _BLOCK, target, target_offset, _BLOCK, _BLOCK, whole)
    if size % _BLOCK:
        done = whole * _BLOCK
        yield contiguous(extent.source, offset + done, extent.target, target_offset + done, size - done)


def _columns(extent: Extent) -> Iterator[Extent]:
    """Yield an extent of long runs as columns of at most a block."""
    for begin in range(0, extent.run, _BLOCK):
        yield extent._replace(
            offset=extent.offset + begin,
            target_offset=extent.target_offset + begin,
            run=min(_BLOCK, extent.run - begin),
        )


def _grouped(group: list[Extent], memory: int) -> Iterator[Pass]:
    reading, writing = _lanes(group, _MAX_GAP), _lanes([inverse(extent) for extent in group], 0)
    row = sum(lane.read_bytes for lane in reading) + sum(lane.used for lane in writing)
    if row > memory:  # files that all meet in rows too wide to hold: each extent by itself
        for extent in group:
            yield Pass((extent,), max(1, min(extent.runs, memory // (2 * extent.stride))))
        return
    group.sort(key=lambda extent: (extent.target, extent.target_offset))
    wanted = 2 * max(_BLOCK, len(writing) * _PIECE, len(reading) * _PIECE)
    yield Pass(tuple(group), max(1, min(wanted, memory) // row))


def _groups(extents: Sequence[Extent], widest: int) -> list[list[Extent]]:
    """Return extents that share rows of a source or of a target together."""
    parents = list(range(len(extents)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    backwards = [inverse(extent) for extent in extents]
    for lane in (*_lanes(extents, _MAX_GAP, widest), *_lanes(backwards, 0, widest)):
        for index in lane.extents[1:]:
            parents[root(index)] = root(lane.extents[0])
    groups: dict[int, list[Extent]] = {}
    for index, extent in enumerate(extents):
        groups.setdefault(root(index), []).append(extent)
    return list(groups.values())


def _lanes(extents: Sequence[Extent], gap: int, widest: int | None = None) -> list[_Lane]:
    """Return the lanes that extents are read in: rows equally far apart, with gaps of bounded width."""
    order = sorted(
        range(len(extents)),
        key=lambda i: (extents[i].source, extents[i].runs, extents[i].stride, extents[i].offset),
    )
    lanes: list[_Lane] = []
    members: list[int] = []
    base = end = 0
    before: Extent | None = None
    for index in order:
        extent = extents[index]
        if before is not None and not (
            (extent.source, extent.runs, extent.stride) == (before.source, before.runs, before.stride)
            and extent.offset <= end + gap
            and extent.offset + extent.run - base <= min(extent.stride, widest or extent.stride)
        ):
            lanes.append(_Lane(before.source, base, before.stride, end - base, tuple(members)))
            before = None
        if before is None:
            before, base, members = extent, extent.offset, []
        end = max(end, extent.offset + extent.run) if members else extent.offset + extent.run
        members.append(index)
    if before is not None:
        lanes.append(_Lane(before.source, base, before.stride, end - base, tuple(members)))
    return lanes


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
            piece = (
                each.extents
                if end - first == each.count
                else tuple(rows(e, first, end) for e in each.extents)
            )
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
        task = [Pass(tuple(inverse(extent) for extent in each.extents), each.block_rows) for each in task]
    return _run(task, files, None, threads, tick)


def _run(
    task: Sequence[Pass],
    sources: Mapping[int, int],
    targets: Mapping[int, int] | None,
    threads: int,
    tick: Callable[[int], object],
) -> list[int]:
    tables = _Tables()
    for each in task:
        tables.add(each)
    source_files, target_files = list(sources), list(targets or ())
    found, failure = copy_extents(
        tables.passes(),
        tables.lanes(tables.sources, source_files),
        tables.lanes(tables.targets, target_files if targets is not None else None),
        tables.moves(),
        list(sources.values()),
        list(targets.values()) if targets is not None else None,
        threads,
        tick,
    )
    if failure is not None:
        writing, file, offset, error = failure
        raise CopyError(writing, (target_files if writing else source_files)[file], offset, error)
    result = [0] * len(found)
    for position, checksum in zip(tables.positions, found, strict=True):
        result[position] = checksum
    return result


class _Tables:
    """A task as :mod:`splitops.native.files` takes it."""

    def __init__(self) -> None:
        self._passes: list[tuple[int, int]] = []
        self._moves: list[tuple[int, int, int, int, int]] = []
        self.sources: list[tuple[int, int, int, int, int]] = []
        self.targets: list[tuple[int, int, int, int, int]] = []
        self.positions: list[int] = []
        """Of each move, the position of its extent in the task."""

    def add(self, found: Pass) -> None:
        extents, number, first = found.extents, len(self._passes), len(self.positions)
        self._passes.append((found.count, found.block_rows))
        if len(extents) == 1:
            source, offset, stride, target, target_offset, target_stride, run, _ = extents[0]
            self._moves.append((len(self.sources), 0, len(self.targets), 0, run))
            self.positions.append(first)
            self.sources.append((number, source, offset, run, stride))
            self.targets.append((number, target, target_offset, run, target_stride))
            return
        backwards = [inverse(extent) for extent in extents]
        reading, writing = _lanes(extents, _MAX_GAP), _lanes(backwards, 0)
        source_of = {
            index: at for at, lane in enumerate(reading, len(self.sources)) for index in lane.extents
        }
        columns = {index: extents[index].offset - lane.base for lane in reading for index in lane.extents}
        self.sources += [(number, lane.file, lane.base, lane.used, lane.stride) for lane in reading]
        for lane in writing:
            for index in lane.extents:
                column = backwards[index].offset - lane.base
                move = (source_of[index], columns[index], len(self.targets), column, extents[index].run)
                self._moves.append(move)
                self.positions.append(first + index)
            self.targets.append((number, lane.file, lane.base, lane.used, lane.stride))

    def passes(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(self._passes, np.int64).reshape(-1, 2)

    def moves(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(self._moves, np.int64).reshape(-1, 5)

    def lanes(
        self, lanes: list[tuple[int, int, int, int, int]], files: Sequence[int] | None
    ) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        table = np.array(lanes, np.int64).reshape(-1, 5)
        if files is not None:
            position = {file: at for at, file in enumerate(files)}
            table[:, 1] = [position[file] for file in table[:, 1].tolist()]
        return table
