"""Sources, from which bytes are read: their base class, and local files and folders."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from splitops.common.untrusted_files import DataFolder, open_regular
from splitops.errors import FileError, SplitError, one_line, shown_path
from splitops.native.positioned import read_at

ByteRange = tuple[int, int]
"""A byte range: begin and end (exclusive)."""


class Source(ABC):
    """An object, such as a file, from which formats read headers and runs copy bytes.

    Attributes:
        path: path or URL of the source. Files that it refers to are in the same folder.
        allow_links: whether links to those files may lead out of the folder.
    """

    path: Path
    allow_links = False
    block = 8 << 20
    """Number of bytes to copy at a time. For a URL, each block is one request."""

    @cached_property
    def name(self) -> str:
        """Name of the source in messages."""
        return shown_path(self.path)

    @cached_property
    def size(self) -> int:
        """Size of the source in bytes."""
        raise NotImplementedError

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return exactly ``size`` bytes, starting at ``offset``.

        Raises:
            FileError: the source cannot be read, or ends early.
        """

    @abstractmethod
    def read_identity(self) -> list[Any]:
        """Return values for JSON that change if the contents change, such as the size and times of a file."""

    def find_local(self) -> LocalFile | None:
        """Return the source as a local file, or None if its bytes must be downloaded or unpacked first."""
        return None

    def iter_blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``begin`` to ``end``, one block at a time."""
        for offset in range(begin, end, self.block):
            yield self.read(offset, min(self.block, end - offset))

    def copy_to(self, file: Any, stretches: Sequence[ByteRange]) -> None:
        """Write at least the given byte ranges to an open file, at the same offsets."""
        for begin, end in stretches:
            file.seek(begin)
            file.writelines(self.iter_blocks(begin, end))


@contextlib.contextmanager
def _convert_errors(verb: str, name: str) -> Iterator[None]:
    """Convert any error but a FileError into the :class:`FileError` "cannot <verb> <name>: <reason>"."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"cannot {verb} {name}: {format_reason(error)}") from error


reading = partial(_convert_errors, "read")
writing = partial(_convert_errors, "write")


def format_reason(error: Exception) -> str:
    """Return the message of any error in one line, in lower case."""
    return one_line((isinstance(error, OSError) and error.strerror) or str(error) or repr(error), 300).lower()


class SourceFile(io.RawIOBase):
    """A source as a read-only file object, for libraries."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        """See :class:`io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See :class:`io.RawIOBase`."""
        return True

    def tell(self) -> int:
        """See :class:`io.RawIOBase`."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """See :class:`io.RawIOBase`."""
        self._at = max(0, offset + (0, self._at, self._source.size)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        """See :class:`io.RawIOBase`."""
        size = min(len(buffer), max(0, self._source.size - self._at))
        buffer[:size] = self._source.read(self._at, size)
        self._at += size
        return size


class LocalFile(Source):
    """A regular local file. It is closed when nothing refers to it any more."""

    def __init__(
        self, path: str | os.PathLike[str], folder: DataFolder | None = None, *, allow_links: bool = False
    ) -> None:
        """Open a regular file. With ``folder``, ``path`` is a path in it; see :class:`DataFolder`."""
        self.path = Path(path) if folder is None else folder.path / path
        self.allow_links = allow_links if folder is None else folder.allow_links
        try:
            opened = open_regular(self.path) if folder is None else folder.open(os.fspath(path))
        except SplitError as error:
            raise FileError(error.message) from error
        weakref.finalize(self, opened.close)
        self.descriptor = opened.fileno()
        self.size = os.fstat(self.descriptor).st_size

    @cached_property
    def real(self) -> str:
        """The path with all symbolic links resolved."""
        return os.path.realpath(self.path)

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`Source`."""
        found = bytearray()
        try:
            while len(found) < size:
                block = read_at(self.descriptor, size - len(found), offset + len(found))
                if not block:
                    raise FileError(
                        f"{self.name} ends at byte {offset + len(found)}, before its declared end"
                    )
                found += block
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise FileError(f"cannot read {self.name} at byte {offset}: {reason}") from error
        return bytes(found)

    def read_identity(self) -> list[Any]:
        """Return the path, size, mtime, ctime, device and inode of the file."""
        found = os.fstat(self.descriptor)
        return [self.real, *_get_change_marks(found), found.st_dev, found.st_ino]

    def find_local(self) -> LocalFile:
        """Return this file, which is local."""
        return self


class LocalFolder(Source):
    """A folder that a library reads as a unit, such as a zarr array."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @cached_property
    def size(self) -> int:
        """Total size of all files, in bytes."""
        return sum(path.lstat().st_size for path in self.path.rglob("*") if not path.is_dir())

    def read(self, offset: int, size: int) -> bytes:
        """Raise a FileError: a folder has no bytes of its own."""
        raise FileError(f"{self.name} is a folder, not a file")

    def read_identity(self) -> list[Any]:
        """Return the path, and a digest of the names, sizes and times of all entries."""
        digest = hashlib.sha256(repr(sorted(self._iter_files())).encode()).hexdigest()
        return [str(self.path.resolve()), digest]

    def _iter_files(self) -> Iterator[tuple[str, int, int, int]]:
        for path in self.path.rglob("*"):
            yield str(path.relative_to(self.path)), *_get_change_marks(path.lstat())


def _get_change_marks(found: os.stat_result) -> tuple[int, int, int]:
    """Return the size, mtime and ctime of a file. A program can set mtime, but not ctime."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
