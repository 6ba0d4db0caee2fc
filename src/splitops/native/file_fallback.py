"""``splitops.native.files`` in Python: the reference that the compiled core is tested against."""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from splitops.common.integers import INT64_MAX
from splitops.native.positioned import read_at, write_at

_Table = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
Failure = tuple[bool, int, int, int]

_LONG_RUN: Final = 64 << 10
_READ: Final = 1 << 20
"""Bytes that are read at a time, so that they are still in the caches when they are copied to the block."""
_TICK: Final = 0.05
_MAX_BYTES: Final = 1 << 60  # a block must fit in memory


@dataclass(slots=True)
class _StridedRun:
    file: int
    base: int
    used: int
    stride: int
    rows: _Bytes = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    """Bytes of the current block."""

    @property
    def reads_gaps(self) -> bool:
        """Whether a block is read as one range of the file, with the gaps between its rows."""
        return self.used == self.stride or (self.used < _LONG_RUN and self.used * 2 >= self.stride)


class _FailedError(Exception):
    def __init__(self, *failure: int) -> None:
        self.failure = failure


def copy_extents(
    passes: _Table,
    sources: _Table,
    targets: _Table,
    moves: _Table,
    source_files: Sequence[int],
    target_files: Sequence[int] | None,
    threads: int,
    tick: Callable[[int], object],
) -> tuple[list[int], Failure | None]:
    """Copy extents with a single thread; see ``splitops.native.files.copy_extents``."""
    _check(passes, sources, targets, moves, len(source_files), target_files)
    checksums = [0] * len(moves)
    reading = [_StridedRun(*row) for row in sources[:, 1:].tolist()]
    writing = [_StridedRun(*row) for row in targets[:, 1:].tolist()]
    done, last = 0, time.monotonic()
    try:
        for number, (rows, block_rows) in enumerate(passes.tolist()):
            its_sources = _find_pass_rows(sources[:, 0], number)
            its_targets = _find_pass_rows(targets[:, 0], number)
            its_moves = _find_pass_rows(sources[moves[:, 0], 0], number)
            for first in range(0, rows, block_rows):
                count = min(block_rows, rows - first)
                for index in its_sources:
                    _read(reading[index], source_files, first, count)
                for index in its_targets:
                    writing[index].rows = np.empty((count, writing[index].used), np.uint8)
                for index in its_moves:
                    source, column, target, target_column, run = moves[index].tolist()
                    data = reading[source].rows[:, column : column + run]
                    checksums[index] = zlib.crc32(np.ascontiguousarray(data).data, checksums[index])
                    writing[target].rows[:, target_column : target_column + run] = data
                    done += run * count
                if target_files is not None:
                    for index in its_targets:
                        _write(writing[index], target_files, first)
                if time.monotonic() - last >= _TICK:
                    tick(done)
                    last = time.monotonic()
    except _FailedError as error:
        kind, index, offset, number = error.failure
        return [], (bool(kind), index, offset, number)
    return checksums, None


def _find_pass_rows(column: _Table, number: int) -> range:
    return range(*np.searchsorted(column, [number, number + 1]).tolist())


def _read(lane: _StridedRun, files: Sequence[int], first: int, count: int) -> None:
    at, file = lane.base + first * lane.stride, files[lane.file]
    if lane.reads_gaps:
        data = np.zeros(count * lane.stride, np.uint8)
        _read_range(lane.file, file, data[: (count - 1) * lane.stride + lane.used], at)
        lane.rows = data.reshape(count, lane.stride)[:, : lane.used]
    else:
        lane.rows = np.empty((count, lane.used), np.uint8)
        for row in range(count):
            _read_range(lane.file, file, lane.rows[row], at + row * lane.stride)


def _read_range(index: int, file: int, data: _Bytes, at: int) -> None:
    while len(data):
        try:
            got = read_at(file, min(len(data), _READ), at)
        except OSError as error:
            raise _FailedError(0, index, at, error.errno or 1) from None
        if not got:
            raise _FailedError(0, index, at, 0)
        data[: len(got)] = np.frombuffer(got, np.uint8)
        data, at = data[len(got) :], at + len(got)


def _write(lane: _StridedRun, files: Sequence[int], first: int) -> None:
    at = lane.base + first * lane.stride
    whole = lane.used == lane.stride
    for row, data in enumerate([lane.rows.reshape(-1)] if whole else lane.rows):
        rest, offset = data, at + row * lane.stride
        while len(rest):
            try:
                put = write_at(files[lane.file], rest.data, offset)
            except OSError as error:
                raise _FailedError(1, lane.file, offset, error.errno or 1) from None
            rest, offset = rest[put:], offset + put


def _check(
    passes: _Table,
    sources: _Table,
    targets: _Table,
    moves: _Table,
    source_files: int,
    target_files: Sequence[int] | None,
) -> None:
    for table, columns in ((passes, 2), (sources, 5), (targets, 5), (moves, 5)):
        if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != columns:
            raise ValueError("a table has the wrong number of columns")
    if (passes < 1).any():
        raise ValueError("a pass has no rows")
    _check_lanes(sources, passes, source_files)
    _check_lanes(targets, passes, INT64_MAX if target_files is None else len(target_files))
    rows = [min(pair) for pair in passes.tolist()]
    block = sum(rows[number] * stride for number, *_, stride in (*sources.tolist(), *targets.tolist()))
    if max(block, sum(-(-total // of_block) for total, of_block in passes.tolist())) > _MAX_BYTES:
        raise ValueError("a block is larger than any memory")
    filled = [0] * len(targets)
    before = 0
    for source, column, target, target_column, run in moves.tolist():
        if not (0 <= source < len(sources) and 0 <= target < len(targets)):
            raise ValueError("a move has no lane")
        number = int(sources[source, 0])
        if number != targets[target, 0] or number < before:
            raise ValueError("the moves are not in the order of the passes")
        used, target_used = int(sources[source, 3]), int(targets[target, 3])
        if run < 1 or not (0 <= column <= used - run and 0 <= target_column <= target_used - run):
            raise ValueError("a move is outside of its lanes")
        if target_column != filled[target]:
            raise ValueError("the moves of a target leave a gap")
        filled[target] += run
        before = number
    if filled != targets[:, 3].tolist():
        raise ValueError("the moves of a target leave a gap")
    for lanes in (sources, targets):
        if set(lanes[:, 0].tolist()) != set(range(len(passes))):
            raise ValueError("a pass has no lanes")


def _check_lanes(lanes: _Table, passes: _Table, files: int) -> None:
    numbers = lanes[:, 0].tolist()
    if any(a > b for a, b in itertools.pairwise([0, *numbers, len(passes) - 1])):
        raise ValueError("the lanes are not in the order of the passes")
    for number, file, base, used, stride in lanes.tolist():
        if not 0 <= file < files:
            raise ValueError("a lane has no file")
        last = base + int(passes[number, 0]) * stride + used
        if base < 0 or used < 1 or stride < used or last > INT64_MAX:
            raise ValueError("a lane is outside of any file")


def crc32(data: _Bytes, before: int = 0) -> int:
    """Return the CRC-32 of ``data``, continuing ``before``, the checksum of the preceding bytes."""
    return zlib.crc32(data.data, before)


def read_header(text: bytes, bits: dict[str, int], start: int) -> None:
    """Return None for every header, so that the caller parses it in Python."""


def sync_files(files: Sequence[int]) -> int:
    """Flush descriptors to disk. Return 0, or the errno of the first failure."""
    try:
        for file in files:
            os.fsync(file)
    except OSError as error:
        return error.errno or 1
    return 0
