"""The copy engine: executes extents with bounded memory.

- Runs of at least 64 KiB are copied one by one through a single buffer, except single runs as below.
- Shorter runs from the same rows of a file are read together, one block of rows at a time, and are written
  together. So a split into 4096 columns reads its source once.
- Single runs below 1 MiB that are adjacent in a target, such as small tensors, are written together.

The bytes are moved by :mod:`splitops.native.files`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from splitops.files.extents import Column, Extent, Extents, Table, concat_ranges, merge_adjacent
from splitops.native.files import copy_extents

TASK_BYTES: Final = 256 << 20
"""Approximate size of a task: the unit that is flushed to disk, journalled and sent to a worker."""
THREADS: Final = 2
"""Maximum number of threads that copy. Without the native core, there is one."""
_BLOCK: Final = 1 << 20
"""Bytes that a thread reads at a time: large blocks need fewer system calls, small ones fit in the caches."""
_LONG_RUN: Final = 64 << 10
"""Minimum bytes of a long run, for which the cost of its own system call is small compared to the copy."""
_PIECE: Final = 64 << 10
"""Bytes that each file of a batch should get at a time: a compromise, as for :data:`_BLOCK`."""
_NARROW: Final = 8 << 10
"""Minimum bytes to which wide rows of a source are cut. Shorter reads would cost more than they save."""
_MAX_GAP: Final = 16 << 10
"""Maximum gap in bytes between two runs that are read together."""


@dataclass(frozen=True, slots=True)
class ExtentBatches:
    """Extents in batches. Those of one batch are copied together and have the same number of runs.

    Attributes:
        extents: the extents of all batches, batch by batch, each batch ordered by target.
        sizes: number of extents of each batch.
        block_rows: number of runs per extent that a thread copies at a time, for each batch.
    """

    extents: Extents
    sizes: Table
    block_rows: Table

    @property
    def firsts(self) -> Table:
        """Index of the first extent of each batch."""
        found: Table = np.cumsum(self.sizes) - self.sizes
        return found

    @property
    def counts(self) -> Table:
        """Number of runs of each extent, for each batch."""
        found: Table = self.extents.table[self.firsts, Column.RUNS]
        return found

    @property
    def row_bytes(self) -> Table:
        """Sum of the run lengths of all extents, for each batch."""
        run = self.extents.table[:, Column.RUN]
        found: Table = np.add.reduceat(run, self.firsts) if len(self.sizes) else self.sizes
        return found

    def select_runs(self, passes: Table, first: Table, end: Table) -> ExtentBatches:
        """Return the batches numbered ``passes``, each cut to its runs ``first`` to ``end`` (exclusive)."""
        sizes = self.sizes[passes]
        table = self.extents.table[concat_ranges(self.firsts[passes], sizes)]
        skipped = np.repeat(first, sizes)
        table[:, Column.OFFSET] += skipped * table[:, Column.STRIDE]
        table[:, Column.TARGET_OFFSET] += skipped * table[:, Column.TARGET_STRIDE]
        table[:, Column.RUNS] = np.repeat(end - first, sizes)
        return ExtentBatches(Extents(table), sizes, self.block_rows[passes])


class CopyError(Exception):
    """A file could not be read or, if ``writing`` is set, written. ``file`` is its index among the sources or
    the targets. ``offset`` is -1 if it is unknown. ``error`` is an errno, or 0 if the file ended early.
    """

    def __init__(self, writing: bool, file: int, offset: int, error: int) -> None:
        self.writing, self.file, self.offset, self.error = writing, file, offset, error
        super().__init__(os.strerror(error) if error else "it ended early")

    def __reduce__(self) -> tuple[type[CopyError], tuple[bool, int, int, int]]:
        return CopyError, (self.writing, self.file, self.offset, self.error)


# Planning -----------------------------------------------------------------------------------------------


_Batches = tuple[Table, Table, Table]
"""Extents, the batch number of each (ascending), and the number of runs that each batch copies at a time."""


def batch_extents(extents: Iterable[Extent], memory: int) -> ExtentBatches:
    """Group extents into batches, so that each byte of the sources is read about once.

    Args:
        extents: extents that do not write a byte twice.
        memory: maximum bytes for the buffers of one thread, at least 2 MiB.
    """
    found = merge_adjacent(extents).table
    block = max(1, min(_BLOCK, memory // 4))
    run, one = found[:, Column.RUN], found[:, Column.RUNS] == 1
    small, short = one & (run < block), ~one & (run < _LONG_RUN)
    whole, ends = _split_into_blocks(found[one & ~small], block)
    some = [
        _batch_each(np.concatenate([whole, _split_into_columns(found[~one & ~short])])),
        _batch_short_runs(found[short], memory),
        _batch_targets(np.concatenate([found[small], ends]), block),
    ]
    table = np.concatenate([each[0] for each in some])
    sizes = np.concatenate([np.bincount(number, minlength=len(rows)) for _, number, rows in some])
    block_rows = np.concatenate([rows for _, _, rows in some])
    made = ExtentBatches(Extents(table), sizes, block_rows)
    first = table[made.firsts]
    order = np.lexsort((first[:, Column.OFFSET], first[:, Column.SOURCE]))
    return made.select_runs(order, np.zeros_like(order), made.counts[order])


def _split_into_blocks(found: Table, block: int) -> tuple[Table, Table]:
    """Split each single run into an extent of whole blocks and, if bytes remain, an extent of these."""
    whole, ends = found.copy(), found.copy()
    size = found[:, Column.RUN] % block
    lengths = [Column.STRIDE, Column.TARGET_STRIDE, Column.RUN]
    whole[:, lengths], whole[:, Column.RUNS] = block, found[:, Column.RUN] // block
    ends[:, [Column.OFFSET, Column.TARGET_OFFSET]] += (found[:, Column.RUN] - size)[:, None]
    ends[:, lengths] = size[:, None]
    return whole, ends[size > 0]


def _split_into_columns(found: Table) -> Table:
    """Split extents whose runs are longer than a block into adjacent extents with shorter runs."""
    counts = -(-found[:, Column.RUN] // _BLOCK)
    begin = concat_ranges(np.zeros_like(counts), counts) * _BLOCK
    columns = np.repeat(found, counts, axis=0)
    columns[:, [Column.OFFSET, Column.TARGET_OFFSET]] += begin[:, None]
    columns[:, Column.RUN] = np.minimum(_BLOCK, columns[:, Column.RUN] - begin)
    return columns


def _batch_each(found: Table) -> _Batches:
    return found, np.arange(len(found)), np.clip(_BLOCK // found[:, Column.RUN], 1, found[:, Column.RUNS])


def _batch_targets(found: Table, block: int) -> _Batches:
    """Batch single runs of less than a block with neighbours in the target: writes cost more than reads."""
    found = found[np.lexsort((found[:, Column.TARGET_OFFSET], found[:, Column.TARGET]))]
    blocks = (np.cumsum(found[:, Column.RUN]) - found[:, Column.RUN]) // block
    number = _number_groups((np.diff(found[:, Column.TARGET]) != 0) | (np.diff(blocks) != 0), len(found))
    return found, number, np.ones(len(np.unique(number)), np.int64)


def _number_groups(new: npt.NDArray[np.bool_], count: int) -> Table:
    """Number ``count`` entries by group. ``new[i]`` is whether entry ``i + 1`` begins a new group."""
    return np.cumsum(np.concatenate(([0], new)))[:count]


def _batch_short_runs(extents: Table, memory: int) -> _Batches:
    """Batch extents of short runs with those that share rows of a source or of a target."""
    if not len(extents):
        return _batch_each(extents)
    group = _find_groups(extents, memory)
    order = np.lexsort((extents[:, Column.TARGET_OFFSET], extents[:, Column.TARGET], group))
    extents, group = extents[order], group[order]
    (reading, _), (writing, _) = (
        _find_strided_runs(extents, group, _MAX_GAP),
        _find_strided_runs(_invert(extents), group, 0),
    )
    used, stride = reading[:, 3], reading[:, 4]
    groups = group[-1] + 1
    read = np.bincount(reading[:, 0], np.where(used * 2 >= stride, stride, used), groups).astype(np.int64)
    write = np.bincount(writing[:, 0], writing[:, 3], groups).astype(np.int64)
    row = read + write
    sources, targets = np.bincount(reading[:, 0]), np.bincount(writing[:, 0])
    # With few sources, the core reads larger pieces. It buffers everything that it writes.
    held = np.maximum(np.maximum(_BLOCK, sources * _PIECE), read)
    wanted = 2 * np.maximum(_BLOCK, np.maximum(sources, targets) * _PIECE) // row
    most = np.maximum(1, np.minimum(wanted, np.maximum(memory // row, (memory - held) // write)))
    wide = (row > memory)[group]  # the rows do not fit in memory: one batch per extent
    number = _number_groups((np.diff(group) != 0) | wide[1:], len(group))
    first = np.unique(number, return_index=True)[1]
    counts, most = extents[first, Column.RUNS], most[group[first]]
    alone = np.minimum(counts, memory // (2 * extents[first, Column.STRIDE]))
    even = -(-counts // -(-counts // most))  # equal blocks: a small last one would need as many calls
    return extents, number, np.maximum(1, np.where(wide[first], alone, even))


def _find_groups(extents: Table, memory: int) -> Table:
    """Number the groups of extents that share rows of a source or of a target.

    Groups are small enough for each file to get :data:`_PIECE` bytes at a time, unless that would make the
    rows short.
    """
    shortest = int(extents[:, Column.RUN].min())
    reading, writing = (
        min(memory // 4, max(least, shortest * (memory // _PIECE) // of))
        for least, of in ((_NARROW, 1), (_MAX_GAP, 2))
    )
    one = np.zeros(len(extents), np.int64)
    sides = [
        _find_strided_runs(found, one, gap, widest)[1]
        for found, gap, widest in ((extents, _MAX_GAP, reading), (_invert(extents), 0, writing))
    ]
    orders = [(np.argsort(lane, kind="stable"), lane) for lane in sides]
    starts = [np.flatnonzero(np.concatenate(([True], np.diff(lane[order]) != 0))) for order, lane in orders]
    least, before = np.arange(len(extents)), np.empty(0, np.int64)
    while not np.array_equal(least, before):  # `least` is the first extent of each group, as far as known
        before = least
        for (order, lane), start in zip(orders, starts, strict=True):
            least = np.minimum.reduceat(least[order], start)[lane]
        least = least[least]
    return np.unique(least, return_inverse=True)[1]


def _invert(extents: Table) -> Table:
    return Extents(extents).invert().table


def _find_strided_runs(
    extents: Table, number: Table, gap: int, widest: int | None = None
) -> tuple[Table, Table]:
    """Find the strided runs that cover the source side of the extents.

    Return their table, as :mod:`splitops.native.files` expects it and ordered by batch ``number``, and the
    index of the strided run of each extent. Rows may have gaps of up to ``gap`` bytes; 0 is for writing,
    which must not touch other bytes. A row has more than ``widest`` bytes only if a single extent does.
    """
    keys = np.column_stack((number, extents[:, [Column.SOURCE, Column.RUNS, Column.STRIDE]]))
    order = np.lexsort((extents[:, Column.OFFSET], *keys.T[::-1]))
    keys, offset = keys[order], extents[order, Column.OFFSET]
    end = offset + extents[order, Column.RUN]
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


def _find_single_runs(extents: Table, number: Table, gap: int) -> tuple[Table, Table]:
    """Find single runs, without gaps, as :func:`_find_strided_runs` does.

    Overlaps are merged, too, unless ``gap`` is 0.
    """
    order = np.lexsort((extents[:, 1], extents[:, 0], number))
    columns = [Column.SOURCE, Column.OFFSET, Column.RUN]
    of, file, offset, size = number[order], *extents[order][:, columns].T
    end = offset + size
    new = (np.diff(of) != 0) | (np.diff(file) != 0)
    new |= offset[1:] > end[:-1] if gap else offset[1:] != end[:-1]
    first = np.flatnonzero(np.concatenate(([True], new)))
    used = np.maximum.reduceat(end, first) - offset[first]
    lane = np.empty(len(order), np.int64)
    lane[order] = np.cumsum(np.concatenate(([0], new)))
    return np.stack((of[first], file[first], offset[first], used, used), 1), lane


def split_into_tasks(found: ExtentBatches, size: int = TASK_BYTES) -> list[ExtentBatches]:
    """Split batches into independent, repeatable tasks of about ``size`` bytes."""
    made: list[list[tuple[int, int, int]]] = [[]]
    left = size
    columns = (found.counts.tolist(), found.row_bytes.tolist(), found.block_rows.tolist())
    for number, (count, row_bytes, block_rows) in enumerate(zip(*columns, strict=True)):
        first = 0
        while first < count:
            if left <= 0:
                made.append([])
                left = size
            # A task has whole blocks: a cut inside a block would make two small ones.
            blocks = max(1, left // (row_bytes * block_rows))
            end = min(count, first + blocks * block_rows)
            made[-1].append((number, first, end))
            left -= (end - first) * row_bytes
            first = end
    return [found.select_runs(*np.array(task, np.int64).T) for task in made if task]


# Copying ------------------------------------------------------------------------------------------------


def copy(
    task: ExtentBatches,
    sources: Mapping[int, int],
    targets: Mapping[int, int],
    *,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Copy a task between open files, and return the CRC-32 of each extent, in order.

    ``sources`` and ``targets`` map file indices to descriptors. ``tick`` is called repeatedly with the number
    of bytes that are done. An exception that it raises stops the copy.

    Raises:
        CopyError: a file cannot be read or written, or a source ended early.
    """
    return _run(task, sources, targets, tick)


def compute_checksums(
    task: ExtentBatches,
    files: Mapping[int, int],
    *,
    written: bool = True,
    tick: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Return the checksums that :func:`copy` returns, read from the targets (``written``) or the sources.

    Raises:
        CopyError: a file cannot be read or ended early. Its ``writing`` is False, even for targets.
    """
    if written:
        task = ExtentBatches(task.extents.invert(), task.sizes, task.block_rows)
    return _run(task, files, None, tick)


def _run(
    task: ExtentBatches,
    sources: Mapping[int, int],
    targets: Mapping[int, int] | None,
    tick: Callable[[int], object],
) -> list[int]:
    source_files, target_files = list(sources), list(targets or ())
    passes, read, written, moves, positions = _make_core_tables(task)
    found, failure = copy_extents(
        passes,
        _number_files(read, source_files),
        _number_files(written, target_files),
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


def _make_core_tables(task: ExtentBatches) -> list[Table]:
    """Build the tables of :mod:`splitops.native.files`, and a last one: the index of each move's extent."""
    made = [[np.empty((0, width), np.int64)] for width in (2, 5, 5, 5)] + [[np.empty(0, np.int64)]]
    lone = task.counts == 1
    for some, lanes in ((lone, _find_single_runs), (~lone, _find_strided_runs)):
        if not some.any():
            continue
        passes, sources, targets = (sum(map(len, tables)) for tables in made[:3])
        position = np.flatnonzero(np.repeat(some, task.sizes))
        number = passes + np.repeat(np.arange(some.sum()), task.sizes[some])
        table = task.extents.table[position]
        (read, of), (written, to) = lanes(table, number, _MAX_GAP), lanes(_invert(table), number, 0)
        order = np.lexsort((table[:, Column.TARGET_OFFSET], to))
        table, of, to = table[order], of[order], to[order]
        column = table[:, Column.OFFSET] - read[of, 2]
        target_column = table[:, Column.TARGET_OFFSET] - written[to, 2]
        moves = np.stack((sources + of, column, targets + to, target_column, table[:, Column.RUN]), 1)
        counts = np.column_stack((task.counts, task.block_rows))[some]
        for tables, more in zip(made, (counts, read, written, moves, position[order]), strict=True):
            tables.append(more)
    return [np.concatenate(tables) for tables in made]


def _number_files(lanes: Table, files: Sequence[int]) -> Table:
    """Replace file indices of strided runs in place with positions in ``files``, unless it is empty."""
    if files:
        order = np.argsort(files)
        lanes[:, 1] = order[np.searchsorted(np.array(files)[order], lanes[:, 1])]
    return lanes
