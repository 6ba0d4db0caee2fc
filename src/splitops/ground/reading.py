"""Files from outside: bounded reading and contained paths. What is wrong with one is a ModelError."""

from __future__ import annotations

import ntpath
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from splitops.errors import ModelError, Where, shown, shown_path
from splitops.ground.descriptors import Descriptors


def open_regular(path: Path, where: Where | None = None) -> BinaryIO:
    """Open a regular file that the caller names; a folder, pipe or device is an error, never a wait.

    Files that a document or a model names are opened by :meth:`DataFolder.open`, and by nothing else.
    """
    return _open(path, path, where)


def _open(path: Path, real: str | Path, where: Where | None, flags: int = 0) -> BinaryIO:
    """Open the regular file ``real``, which errors call ``path``."""
    name = os.fspath(path)
    descriptors = Descriptors()
    try:
        # Devices may act when they are opened, so the type is checked before, and again after.
        if stat.S_ISREG(os.stat(real).st_mode):
            # Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever.
            descriptors.open(name, real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | flags)
            if stat.S_ISREG(os.fstat(descriptors[name]).st_mode):
                return open(name, "rb", opener=descriptors.pop)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot open {shown_path(path)}: {_reason(error)}", where) from error
    finally:
        descriptors.close()
    raise ModelError(f"cannot open {shown_path(path)}: not a regular file", where)


def read_whole(path: Path, *, limit: int, where: Where | None = None) -> bytes:
    """Read a file of at most ``limit`` bytes."""
    return bytes(read_content(path, limit=limit, where=where))


def read_content(path: Path, *, limit: int, where: Where | None = None) -> memoryview:
    """Read a file of at most ``limit`` bytes into memory that is quick to get for large ones."""
    with open_regular(path, where) as file:
        return read_opened(file, path, limit=limit, where=where)


def read_opened(file: BinaryIO, path: Path, *, limit: int, where: Where | None = None) -> memoryview:
    """Read all of an open file of at most ``limit`` bytes, which errors call ``path``."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise ModelError(
            f"{shown_path(path)} has {size} bytes, more than the {limit} that its format can have", where
        )
    return read_range(file, 0, size, where)  # never until the end: the file may grow meanwhile


def place_of(model: object) -> Where:
    """Return the place that errors name: the path of a model's file as it was given, no name in memory.

    Examples:
        >>> place_of("models/halves.onnx")
        Where(model='models/halves.onnx', graph=None, node=None, input=None, attribute=None)
    """
    return Where(model=os.fsdecode(model)) if isinstance(model, str | os.PathLike) else Where()


def read_range(file: BinaryIO, offset: int, size: int, where: Where | None = None) -> memoryview:
    """Read bytes of a file into memory of their own.

    A map would be quicker to make, but if the file is cut short while it is mapped, the first look at a page
    that is gone ends the process.
    """
    try:
        # NumPy's, because a bytearray would be filled with zeros first.
        data = memoryview(np.empty(size, np.uint8).data)
        file.seek(offset)
        done = file.readinto(data) if size else 0  # type: ignore[attr-defined]
    except (OSError, MemoryError, ValueError, OverflowError) as error:
        raise ModelError(f"cannot read {shown_path(file.name)}: {_reason(error)}", where) from error
    if done != size:
        raise ModelError(
            f"cannot read {shown_path(file.name)}: it ends at byte {offset + done}, "
            f"but bytes {offset} to {offset + size} are needed",
            where,
        )
    return data.toreadonly()


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder of a model as it was given: the one door to all files that the caller does not name.

    With ``allow_links``, a link in it may lead out of it.
    """

    path: Path
    allow_links: bool = False

    def open(self, location: str, where: Where | None = None) -> BinaryIO:
        """Open a regular file of the folder.

        ``location`` is as a model or a list of the folder has it: a relative path with ``/``.
        """
        real, path = self.real_path(location, where), self.path / location
        if self.allow_links:
            return _open(path, path, where)
        return _open(path, real, where, getattr(os, "O_NOFOLLOW", 0))

    def read(self, location: str, *, limit: int, where: Where | None = None) -> bytes:
        """Read a file of the folder of at most ``limit`` bytes."""
        with self.open(location, where) as file:
            return bytes(read_opened(file, self.path / location, limit=limit, where=where))

    def real_path(self, location: str, where: Where | None) -> str:
        """Return the path of a file without links, checked to be in the folder."""
        parts = location.replace("\\", "/").split("/")
        if not location.strip() or "\0" in location:
            raise ModelError(f"location {shown(location)} is not a file name", where)
        if location.startswith(("/", "\\")) or ".." in parts or ntpath.splitdrive(location)[0]:
            raise ModelError(f"location {shown(location)} leads out of the model's folder", where)
        try:
            base = os.path.realpath(self.path)
            path = os.path.realpath(os.path.join(base, location))
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"location {shown(location)} cannot be resolved: {_reason(error)}", where
            ) from error
        if self.allow_links or path == base or path.startswith(os.path.join(base, "")):
            return path
        raise ModelError(
            f"location {shown(location)} leads out of the model's folder through a symbolic link; "
            "where it may, allow_links=True follows it, as does --allow-links on the command line",
            where,
        )


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
