"""Operations on local files: allocate space, write all bytes, flush to disk, allow more open files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from splitops.common.descriptors import Descriptors
from splitops.native.files import sync_files
from splitops.native.positioned import write_at


@contextlib.contextmanager
def open_for_sync(paths: Sequence[Path]) -> Iterator[dict[int, int]]:
    """Yield descriptors for :func:`make_durable`, keyed by index in ``paths``. Skip folders on Windows."""
    files = Descriptors()
    try:
        for index, path in enumerate(paths):
            if hasattr(os, "O_DIRECTORY"):
                files.open(index, path, os.O_RDONLY)
            elif not path.is_dir():
                files.open(index, path, os.O_RDWR)  # Windows flushes only files that are open for writing
        yield files
    finally:
        files.close()


def make_durable(files: Sequence[int]) -> None:
    """Flush files to disk, given their descriptors. Raise OSError for a failure."""
    error = sync_files(files)
    if error:
        raise OSError(error, os.strerror(error))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the system can."""
    with contextlib.suppress(OSError), open_for_sync([folder]) as files:
        make_durable(list(files.values()))


def allocate(descriptor: int, size: int) -> None:
    """Set the size of a file and reserve its disk space if possible, so that a full disk fails early."""
    os.ftruncate(descriptor, size)
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes of ``data`` at an offset, in several calls if necessary."""
    view = memoryview(data)
    while view:
        put = write_at(descriptor, view, offset)
        view, offset = view[put:], offset + put


def raise_file_limit(files: int) -> bool:
    """Raise the limit of open files so that ``files`` more can be opened.

    Return whether they can, or False if it is unknown.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return False
    try:
        opened = len(os.listdir("/dev/fd"))
    except OSError:  # a system without /dev/fd
        opened = 0
    wanted = files + opened + 64  # a margin for libraries
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft == resource.RLIM_INFINITY or soft >= wanted
