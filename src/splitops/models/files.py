"""Files from outside: bounded reading and contained paths."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from splitops.errors import ModelError, Where, shown, shown_path

__all__ = ["contained", "open_regular", "read_whole"]


def open_regular(path: Path, where: Where | None = None) -> BinaryIO:
    """Open a regular file for reading; a folder, pipe or device is an error, never a wait.

    Raises:
        ModelError: the file is missing, unreadable or not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot open {shown_path(path)}: {_reason(error)}", where) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelError(f"cannot open {shown_path(path)}: not a regular file", where)
    return os.fdopen(descriptor, "rb")


def read_whole(path: Path, *, limit: int, where: Where | None = None) -> bytes:
    """Read a file of at most ``limit`` bytes.

    Raises:
        ModelError: the file cannot be opened, or is longer.
    """
    with open_regular(path, where) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ModelError(
                f"{shown_path(path)} has {size} bytes, more than the {limit} that its format can have", where
            )
        try:
            # Never until the end: the file may grow meanwhile. What is lost at its end, the parser misses.
            return file.read(size)
        except (OSError, MemoryError) as error:
            raise ModelError(f"cannot read {shown_path(path)}: {_reason(error)}", where) from error


def contained(folder: Path, location: str, where: Where | None = None) -> Path:
    """Resolve a location that a model names, inside the model's folder and nowhere else.

    Args:
        folder: the model's folder.
        location: a relative path with ``/``, as the model states it.
        where: the place in the model, for the error.

    Returns:
        The resolved path.

    Raises:
        ModelError: the location is empty or absolute, climbs with ``..``, or leaves the folder through a
            symbolic link.
    """
    parts = location.replace("\\", "/").split("/")
    windows = PureWindowsPath(location)
    if not location.strip() or "\0" in location:
        raise ModelError(f"location {shown(location)} is not a file name", where)
    if location.startswith(("/", "\\")) or windows.drive or windows.root or ".." in parts:
        raise ModelError(f"location {shown(location)} leads out of the model's folder", where)
    try:
        base = folder.resolve()
        path = (base / location).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"location {shown(location)} cannot be resolved: {_reason(error)}", where) from error
    if not path.is_relative_to(base):
        raise ModelError(
            f"location {shown(location)} leads out of the model's folder through a symbolic link", where
        )
    return path


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
