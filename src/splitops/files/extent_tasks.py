"""Tasks that copy byte ranges between files. This process or a worker of a cluster runs them."""

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

from splitops.common.descriptors import Descriptors
from splitops.common.staging import UNFOLLOWED
from splitops.errors import FileError, shown_path
from splitops.files import engine
from splitops.files.descriptors import allocate, make_durable, write_all
from splitops.files.engine import CopyError, ExtentBatches
from splitops.files.extents import Column, Extents
from splitops.files.formats import TargetFile
from splitops.files.sources import LocalFile, format_reason
from splitops.files.tasks import Files, Tick, ignore_tick

_MIN_MEMORY: Final = 4 << 20
_MAX_BYTES: Final = 1 << 48
"""Maximum bytes that a plan copies: 256 TiB. Compressed files may declare any size, and tasks need memory."""


@dataclass(frozen=True)
class ExtentCopies:
    """Copies of a plan that are byte ranges of files; see :mod:`splitops.files.extents`."""

    extents: Extents

    resumable = True
    one_process = None

    @cached_property
    def bytes(self) -> int:
        """Bytes of tensors and small files that are copied."""
        return self.extents.bytes

    def __len__(self) -> int:
        return len(self.extents)

    def compute_sizes(self, targets: Sequence[TargetFile]) -> list[int]:
        """Return the size in bytes of each target, or 0 if only the run knows it."""
        return [target.size for target in targets]

    def make_tasks(self, memory: int) -> list[ExtentTask]:
        """Split the copies into repeatable tasks. Raise FileError for too many bytes or too little memory."""
        size = int(self.extents.table[:, Column.RUN :].prod(1, dtype=float).sum())  # may exceed 64 bits
        if size > _MAX_BYTES:
            raise FileError(f"the plan copies {size} bytes; the limit is {_MAX_BYTES}")
        if memory < _MIN_MEMORY:
            raise FileError(f"{memory} bytes of memory are not enough: at least {_MIN_MEMORY} are needed")
        found = engine.split_into_tasks(engine.batch_extents(self.extents, memory // engine.THREADS))
        return [ExtentTask(task) for task in found]

    def get_identity(self) -> str:
        """Return a string that is equal only for equal copies."""
        return hashlib.sha256(self.extents.table.tobytes()).hexdigest()

    def are_made(self, targets: Sequence[TargetFile], drafts: Sequence[Path]) -> bool:
        """Return whether an earlier run has created all files, at ``drafts``, with the right sizes."""
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
        """Create the files at ``drafts``, or reuse them (``kept``), and write all bytes outside of tensors.

        With ``reserve``, disk space is allocated now, so that a full disk is an error before the copy.
        Otherwise, the size is set only if nothing will be written at the end of the file. The descriptors
        stay open in ``left_open``, if it is given. ``folder`` is the final folder, for messages.
        """
        reached = np.zeros(len(targets), np.int64)
        np.maximum.at(reached, self.extents.table[:, Column.TARGET], self.extents.target_ends)
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
                raise FileError(f"cannot write {name}: {format_reason(error)}") from error
            finally:
                if left_open is None:
                    opened.close()


@dataclass(frozen=True, slots=True)
class ExtentTask:
    """A task that copies batches of extents; see :mod:`splitops.files.tasks`."""

    batches: ExtentBatches

    @property
    def extents(self) -> Extents:
        """All extents, in the order of the checksums."""
        return self.batches.extents

    @property
    def sources(self) -> list[int]:
        """Indices of the sources that are read."""
        return self.extents.sources

    @property
    def targets(self) -> list[int]:
        """Indices of the targets that are written."""
        return self.extents.targets

    @property
    def bytes(self) -> int:
        """Number of bytes that are copied."""
        return self.extents.bytes

    @property
    def partition(self) -> object:
        """Number of runs, runs per block and number of extents of each batch."""
        return [each.tolist() for each in (self.batches.counts, self.batches.block_rows, self.batches.sizes)]

    @property
    def checksums(self) -> int:
        """Number of checksums: one per extent."""
        return len(self.extents)

    def copy(self, files: Files, tick: Tick = ignore_tick) -> list[int]:
        """Copy the extents and return the checksum of each."""
        opened = files.opened or {index: LocalFile(files.sources[index]) for index in self.sources}
        sources = {index: opened[index].descriptor for index in self.sources}
        with self._open_targets(files) as targets:
            return engine.copy(self.batches, sources, targets, tick=tick)

    def sync(self, files: Files) -> None:
        """Flush the targets to disk, if the plan is run with ``sync``."""
        if not files.sync:
            return
        with self._open_targets(files) as targets:
            try:
                make_durable(list(targets.values()))
            except OSError as error:
                raise CopyError(True, self.targets[0], -1, error.errno or errno.EIO) from error

    def read_back(self, files: Files, tick: Tick = ignore_tick) -> list[int]:
        """Return the checksum of each extent in the targets, read from disk if the cache can be dropped."""
        with self._open_targets(files) as targets:
            for file in targets.values():
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return engine.compute_checksums(self.batches, targets, tick=tick)

    def checksum_sources(self, opened: dict[int, LocalFile]) -> list[int]:
        """Return the checksum of each extent in the sources."""
        sources = {index: opened[index].descriptor for index in self.sources}
        return engine.compute_checksums(self.batches, sources, written=False)

    def locate(self, index: int) -> tuple[int, str]:
        """Return the index of an extent's target, and text for a message about the extent's position."""
        extent = self.extents[index]
        return extent.target, f"starting at byte {extent.target_offset}"

    @contextmanager
    def _open_targets(self, files: Files) -> Iterator[Mapping[int, int]]:
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
