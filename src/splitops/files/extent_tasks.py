"""Extents between files: what is copied at a time, here or by a worker of a cluster."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from splitops.errors import FileError, shown_path
from splitops.files import engine
from splitops.files.descriptors import allocate, make_durable, write_all
from splitops.files.engine import CopyError, Passes
from splitops.files.extents import Extents
from splitops.files.formats import TargetFile
from splitops.files.sources import LocalFile, reason
from splitops.files.tasks import Files, Tick, no_tick
from splitops.ground.descriptors import Descriptors
from splitops.ground.staging import UNFOLLOWED

_MIN_MEMORY: Final = 4 << 20
_MOST_BYTES: Final = 1 << 48
"""The most bytes of a run, 256 TiB: a compressed file may declare any number, and tasks take memory."""


@dataclass(frozen=True)
class ExtentCopies:
    """What a plan copies as runs of bytes; see :mod:`splitops.files.extents`."""

    extents: Extents

    resumable = True
    one_process = None

    @cached_property
    def bytes(self) -> int:
        """The tensor bytes that are copied."""
        return self.extents.bytes

    def __len__(self) -> int:
        return len(self.extents)

    def sizes(self, targets: Sequence[TargetFile]) -> list[int]:
        """Return the size of each target."""
        return [target.size for target in targets]

    def tasks(self, memory: int) -> list[ExtentTask]:
        """Return tasks that can be done in any order, and again, if the memory and a run are large enough."""
        size = int(self.extents.table[:, 6:].prod(1, dtype=float).sum())  # more than 64 bits may count
        if size > _MOST_BYTES:
            raise FileError(f"{size} bytes are more than a run copies: at most {_MOST_BYTES}")
        if memory < _MIN_MEMORY:
            raise FileError(f"{memory} bytes of memory are too few: at least {_MIN_MEMORY} are needed")
        found = engine.tasks(engine.passes(self.extents, memory // engine.THREADS))
        return [ExtentTask(task) for task in found]

    def identity(self) -> str:
        """Return what differs for other copies."""
        return hashlib.sha256(self.extents.table.tobytes()).hexdigest()

    def are_made(self, targets: Sequence[TargetFile], drafts: Sequence[Path]) -> bool:
        """Return whether the targets that an earlier run has made are still there."""
        files = [draft for draft, target in zip(drafts, targets, strict=True) if not target.folder]
        sizes = [target.size for target in targets if not target.folder]
        return all(f.exists() and f.stat().st_size == size for f, size in zip(files, sizes, strict=True))

    def make(
        self,
        targets: Sequence[TargetFile],
        drafts: Sequence[Path],
        folder: Path,
        *,
        kept: bool,
        sync: bool,
        reserve: bool,
        left_open: Descriptors | None,
    ) -> None:
        """Make the targets with what is not a tensor's bytes in its place.

        Where space is reserved, a full disk is an error now and not after an hour. Else the size of a file is
        set only where nothing is written at its end.
        """
        table = self.extents.table
        reached = np.zeros(len(targets), np.int64)
        np.maximum.at(reached, table[:, 3], table[:, 4] + (table[:, 7] - 1) * table[:, 5] + table[:, 6])
        for parent in {os.fspath(draft).rpartition(os.sep)[0] for draft in drafts}:
            os.makedirs(parent, exist_ok=True)
        opened = Descriptors() if left_open is None else left_open
        flags = os.O_RDWR | os.O_CREAT | UNFOLLOWED | (0 if kept else os.O_TRUNC)
        for index, (draft, target, end) in enumerate(zip(drafts, targets, reached.tolist(), strict=True)):
            if target.folder:
                continue
            try:
                opened.open(index, draft, flags)
                if reserve:
                    allocate(opened[index], target.size)
                for offset, data in target.literals:
                    write_all(opened[index], data, offset)
                    end = max(end, offset + len(data))
                if end < target.size and not reserve:
                    os.ftruncate(opened[index], target.size)
            except OSError as error:
                name = shown_path(folder / target.name)
                raise FileError(f"cannot write {name}: {reason(error)}") from error
            finally:
                if left_open is None:
                    opened.close()


@dataclass(frozen=True, slots=True)
class ExtentTask:
    """Passes that are done at a time; see :mod:`splitops.files.tasks`."""

    passes: Passes

    @property
    def extents(self) -> Extents:
        """All extents, in the order of the checksums."""
        return self.passes.extents

    @property
    def sources(self) -> list[int]:
        """The positions of the sources that are read."""
        return self.extents.sources

    @property
    def targets(self) -> list[int]:
        """The positions of the targets that are written."""
        return self.extents.targets

    @property
    def bytes(self) -> int:
        """The bytes that are copied."""
        return self.extents.bytes

    @property
    def cut(self) -> object:
        """How many rows and extents each pass has."""
        return [each.tolist() for each in (self.passes.counts, self.passes.block_rows, self.passes.sizes)]

    @property
    def checksums(self) -> int:
        """How many extents there are."""
        return len(self.extents)

    def copy(self, files: Files, tick: Tick = no_tick) -> list[int]:
        """Copy, and return the checksum of each extent."""
        opened = files.opened or {index: LocalFile(files.sources[index]) for index in self.sources}
        sources = {index: opened[index].descriptor for index in self.sources}
        with self._targets(files) as targets:
            return engine.copy(self.passes, sources, targets, tick=tick)

    def settle(self, files: Files) -> None:
        """Make what was copied durable."""
        if not files.sync:
            return
        with self._targets(files) as targets:
            try:
                make_durable(list(targets.values()))
            except OSError as error:
                raise CopyError(True, self.targets[0], -1, error.errno or errno.EIO) from error

    def read_back(self, files: Files, tick: Tick = no_tick) -> list[int]:
        """Return the checksum of each extent; of the disk, where the system lets go of its cache."""
        with self._targets(files) as targets:
            for file in targets.values():
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return engine.checksums(self.passes, targets, tick=tick)

    def in_sources(self, opened: dict[int, LocalFile]) -> list[int]:
        """Return the checksum of each extent as it is in the sources."""
        sources = {index: opened[index].descriptor for index in self.sources}
        return engine.checksums(self.passes, sources, written=False)

    def where(self, index: int) -> tuple[int, str]:
        """Return the target of an extent, and where in it that begins."""
        extent = self.extents[index]
        return extent.target, f"from byte {extent.target_offset} on"

    @contextmanager
    def _targets(self, files: Files) -> Iterator[Mapping[int, int]]:
        if files.written:
            yield {index: files.written[index] for index in self.targets}
            return
        opened = Descriptors()
        try:
            self._open(files, opened)
            yield opened
        finally:
            opened.close()

    def _open(self, files: Files, opened: Descriptors) -> None:
        for index in self.targets:
            try:
                opened.open(index, files.targets[index], os.O_RDWR | UNFOLLOWED)
            except OSError as error:
                raise CopyError(True, index, -1, error.errno or errno.EIO) from error
