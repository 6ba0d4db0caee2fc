"""Open files of this machine: their space, their bytes, and how they are made durable."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from splitops.ground.descriptors import Descriptors
from splitops.native.files import sync_files
from splitops.native.positioned import write_at


@contextlib.contextmanager
def opened(paths: Sequence[Path]) -> Iterator[dict[int, int]]:
    """Open files and folders so that they can be made durable; folders where the system has it."""
    files = Descriptors()
    try:
        for index, path in enumerate(paths):
            if hasattr(os, "O_DIRECTORY"):
                files.open(index, path, os.O_RDONLY)
            elif not path.is_dir():
                files.open(index, path, os.O_RDWR)  # what is only read cannot be made durable
        yield files
    finally:
        files.close()


def make_durable(files: Sequence[int]) -> None:
    """Flush descriptors to the disk."""
    error = sync_files(files)
    if error:
        raise OSError(error, os.strerror(error))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    with contextlib.suppress(OSError), opened([folder]) as files:
        make_durable(list(files.values()))


def allocate(descriptor: int, size: int) -> None:
    """Set the size of a file, so that a full disk is an error now and not after an hour."""
    os.ftruncate(descriptor, size)
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes of data at an offset."""
    view = memoryview(data)
    while view:
        put = write_at(descriptor, view, offset)
        view, offset = view[put:], offset + put


def raise_file_limit(files: int) -> bool:
    """Let this process open so many files more, as far as the system lets it; return whether it can."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return False
    try:
        opened = len(os.listdir("/dev/fd"))
    except OSError:  # a system without it
        opened = 0
    wanted = files + opened + 64  # what it opens besides them
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft == resource.RLIM_INFINITY or soft >= wanted
