"""Read and write file descriptors at an offset, on all systems."""

from __future__ import annotations

import os
import threading

_lock = threading.Lock()


def read_at(file: int, size: int, offset: int) -> bytes:
    """Read at most ``size`` bytes at an offset. The result is empty at the end of the file.

    Raises:
        OSError: the file cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(file, size, offset)
    with _lock:  # threads share the position of a descriptor
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, size)


def write_at(file: int, data: memoryview, offset: int) -> int:
    """Write bytes at an offset, and return the number of bytes that were written.

    Raises:
        OSError: the file cannot be written.
    """
    if hasattr(os, "pwrite"):
        return os.pwrite(file, data, offset)
    with _lock:
        os.lseek(file, offset, os.SEEK_SET)
        return os.write(file, data)
