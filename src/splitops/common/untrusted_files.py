"""Untrusted files: bounded reads, and paths that stay in a folder. Every fault is a ModelError."""

from __future__ import annotations

import ntpath
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from splitops.common.descriptors import Descriptors
from splitops.errors import ModelError, Where, shown, shown_path


def open_regular(path: Path, where: Where | None = None) -> BinaryIO:
    """Open a regular file whose path the caller chose. Folders, pipes and devices are errors and never block.

    Files to which a document or a model refers must be opened by :meth:`DataFolder.open`.
    """
    return _open(path, path, where)


def _open(path: Path, real: str | Path, where: Where | None, flags: int = 0) -> BinaryIO:
    """Open the regular file ``real``. Errors name ``path``."""
    name = os.fspath(path)
    descriptors = Descriptors()
    try:
        # Opening a device may have effects, so the type is checked before opening, and again after it.
        if stat.S_ISREG(os.stat(real).st_mode):
            # Without O_NONBLOCK, opening a pipe without a writer would block forever.
            descriptors.open(name, real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | flags)
            if stat.S_ISREG(os.fstat(descriptors[name]).st_mode):
                return open(name, "rb", opener=descriptors.pop)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot open {shown_path(path)}: {_format_reason(error)}", where) from error
    finally:
        descriptors.close()
    raise ModelError(f"cannot open {shown_path(path)}: not a regular file", where)


def read_bounded(path: Path, *, limit: int, where: Where | None = None) -> bytes:
    """Read a file. Raise ModelError if it has more than ``limit`` bytes."""
    return bytes(read_buffer(path, limit=limit, where=where))


def read_buffer(path: Path, *, limit: int, where: Where | None = None) -> memoryview:
    """Read a file as a read-only memoryview. Raise ModelError if it has more than ``limit`` bytes.

    For large files, this is faster than :func:`read_bounded`, which copies the bytes.
    """
    with open_regular(path, where) as file:
        return read_open_file(file, path, limit=limit, where=where)


def read_open_file(file: BinaryIO, path: Path, *, limit: int, where: Where | None = None) -> memoryview:
    """Read all of an open file as a read-only memoryview.

    Raises:
        ModelError: the file has more than ``limit`` bytes (the message names ``path``) or cannot be read.
    """
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise ModelError(
            f"{shown_path(path)} has {size} bytes, more than the limit of {limit} for its format", where
        )
    return read_range(file, 0, size, where)  # not until the end, because the file may grow


def make_location(model: object) -> Where:
    """Return the location for errors about a model: its path, or an empty location for one in memory.

    Examples:
        >>> make_location("models/halves.onnx")
        Where(model='models/halves.onnx', graph=None, node=None, input=None, attribute=None)
    """
    return Where(model=os.fsdecode(model)) if isinstance(model, str | os.PathLike) else Where()


def read_range(file: BinaryIO, offset: int, size: int, where: Where | None = None) -> memoryview:
    """Read bytes of a file into new memory, and return them as a read-only memoryview.

    A memory map would be faster, but if the file is truncated while it is mapped, accessing a missing page
    crashes the process.
    """
    try:
        # A bytearray would be filled with zeros first; a NumPy array is not.
        data = memoryview(np.empty(size, np.uint8).data)
        file.seek(offset)
        done = file.readinto(data) if size else 0  # type: ignore[attr-defined]
    except (OSError, MemoryError, ValueError, OverflowError) as error:
        raise ModelError(f"cannot read {shown_path(file.name)}: {_format_reason(error)}", where) from error
    if done != size:
        raise ModelError(
            f"cannot read {shown_path(file.name)}: it ends at byte {offset + done}, "
            f"but bytes {offset} to {offset + size} are needed",
            where,
        )
    return data.toreadonly()


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder of a model or another document. It opens the files to which that document refers.

    Attributes:
        path: the folder.
        allow_links: whether links in it may lead out of it.
    """

    path: Path
    allow_links: bool = False

    def open(self, location: str, where: Where | None = None) -> BinaryIO:
        """Open a regular file in the folder.

        ``location`` is a path from a model or a directory listing: relative, with ``/``.
        """
        real, path = self.resolve(location, where), self.path / location
        if self.allow_links:
            return _open(path, path, where)
        return _open(path, real, where, getattr(os, "O_NOFOLLOW", 0))

    def read(self, location: str, *, limit: int, where: Where | None = None) -> bytes:
        """Read a file in the folder. Raise ModelError if it has more than ``limit`` bytes."""
        with self.open(location, where) as file:
            return bytes(read_open_file(file, self.path / location, limit=limit, where=where))

    def resolve(self, location: str, where: Where | None) -> str:
        """Return the real path of a file. Links may lead out of the folder only with ``allow_links``."""
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
                f"location {shown(location)} cannot be resolved: {_format_reason(error)}", where
            ) from error
        if self.allow_links or path == base or path.startswith(os.path.join(base, "")):
            return path
        raise ModelError(
            f"location {shown(location)} leads out of the model's folder through a symbolic link. "
            "If you trust it, pass --allow-links (in Python: allow_links=True)",
            where,
        )


def _format_reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
