"""Extents between files: what is copied at a time, here or by a worker of a cluster."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splitops.files import engine
from splitops.files.descriptors import make_durable, read_back
from splitops.files.engine import CopyError, Pass
from splitops.files.sources import LocalFile
from splitops.ground.descriptors import Descriptors


@dataclass(frozen=True, slots=True)
class ExtentWork:
    """A task as it is done here, or sent to a worker of a cluster.

    Attributes:
        task: what is copied, or read back.
        sources: the paths of the files that are read.
        targets: the paths of the files that are written.
        sync: whether what is written is to be durable.
        opened: descriptors of the sources, where this process has them open.
    """

    task: Sequence[Pass]
    sources: Mapping[int, Path]
    targets: Mapping[int, Path]
    sync: bool
    opened: Mapping[int, int] | None = None

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(self.sources.values())

    def copy(self, tick: Callable[[int], object] = lambda _: None) -> list[int]:
        """Copy, and return the checksum of each extent.

        Raises:
            CopyError: a file cannot be read or written.
        """
        files = {} if self.opened else {index: LocalFile(path) for index, path in self.sources.items()}
        descriptors = self.opened or {index: file.descriptor for index, file in files.items()}
        targets = Descriptors()
        try:
            self._open(targets)
            return engine.copy(self.task, descriptors, targets, tick=tick)
        finally:
            targets.close()

    def settle(self) -> None:
        """Make what was copied durable."""
        if not self.sync:
            return
        targets = Descriptors()
        try:
            self._open(targets)
            make_durable(list(targets.values()))
        except OSError as error:
            raise CopyError(True, min(self.targets), -1, error.errno or errno.EIO) from error
        finally:
            targets.close()

    def read_back(self, tick: Callable[[int], object] = lambda _: None) -> list[int]:
        """Return the checksum of each extent as it is on the disk."""
        targets = Descriptors()
        try:
            self._open(targets)
            return read_back(self.task, targets, tick)
        finally:
            targets.close()

    def _open(self, files: Descriptors) -> None:
        """Open the targets into a dictionary of the caller's, who closes them."""
        for index, path in self.targets.items():
            try:
                files.open(index, path, os.O_RDWR)
            except OSError as error:
                raise CopyError(True, index, -1, error.errno or errno.EIO) from error
