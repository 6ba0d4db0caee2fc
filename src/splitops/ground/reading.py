"""Files from outside: bounded reading and contained paths. What is wrong with one is a ModelError."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

import numpy as np

from splitops.errors import ModelError, Where, shown, shown_path
from splitops.ground.descriptors import Descriptors


def open_regular(path: Path, where: Where | None = None) -> BinaryIO:
    """Open a regular file for reading; a folder, pipe or device is an error, never a wait."""
    # Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever.
    name = os.fspath(path)
    descriptors = Descriptors()
    try:
        descriptors.open(name, name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
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
    """The folder of a model as it was given, with the other files of the model.

    With ``allow_links``, a link in it may lead out of it.
    """

    path: Path
    allow_links: bool = False

    def file(self, location: str, where: Where | None = None) -> Path:
        """Return the file that a model names.

        ``location`` is as the model writes it: a relative path with ``/``.
        """
        parts = location.replace("\\", "/").split("/")
        windows = PureWindowsPath(location)
        if not location.strip() or "\0" in location:
            raise ModelError(f"location {shown(location)} is not a file name", where)
        if location.startswith(("/", "\\")) or windows.drive or windows.root or ".." in parts:
            raise ModelError(f"location {shown(location)} leads out of the model's folder", where)
        try:
            base = self.path.resolve()
            path = (base / location).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"location {shown(location)} cannot be resolved: {_reason(error)}", where
            ) from error
        if self.allow_links or path.is_relative_to(base):
            return self.path / location
        raise ModelError(
            f"location {shown(location)} leads out of the model's folder through a symbolic link; "
            "where it may, allow_links=True follows it, as does --allow-links on the command line",
            where,
        )


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
