"""Where bytes are read from."""

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

from splitops.errors import FileError, SplitError, one_line, shown_path
from splitops.ground.reading import DataFolder, open_regular
from splitops.native.positioned import read_at

Stretch = tuple[int, int]
"""Where neighbouring bytes begin and end."""


class Source(ABC):
    """A file of any kind, opened for reading: what formats read headers from and extents count in.

    Attributes:
        path: where it is; the files beside it are found from here.
        allow_links: whether links to those may lead out of their folder.
    """

    path: Path
    allow_links = False
    block = 8 << 20
    """Bytes that are copied at a time: a request, where they are at an address."""

    @cached_property
    def name(self) -> str:
        """What messages call it."""
        return shown_path(self.path)

    @cached_property
    def size(self) -> int:
        """How many bytes it has."""
        raise NotImplementedError

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return exactly these bytes.

        Raises:
            FileError: it cannot be read, or ends before them.
        """

    @abstractmethod
    def identity(self) -> list[Any]:
        """Return what changes when the contents do, in plain numbers and text, as it is now."""

    def local(self) -> LocalFile | None:
        """Return it as a file that has a descriptor; None where its bytes must be brought here first."""
        return None

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``begin`` to ``end``, a block at a time."""
        for offset in range(begin, end, self.block):
            yield self.read(offset, min(self.block, end - offset))

    def copy_to(self, file: Any, stretches: Sequence[Stretch]) -> None:
        """Write at least some stretches of its bytes to an open file, where they are in it."""
        for begin, end in stretches:
            file.seek(begin)
            file.writelines(self.blocks(begin, end))


@contextlib.contextmanager
def _handling(verb: str, name: str) -> Iterator[None]:
    """Make one kind of error of the many that a library has for files that it cannot read or write."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"cannot {verb} {name}: {reason(error)}") from error


reading = partial(_handling, "read")
writing = partial(_handling, "write")


def reason(error: Exception) -> str:
    """Return what an error of any library says, in one line."""
    return one_line((isinstance(error, OSError) and error.strerror) or str(error) or repr(error), 300).lower()


class SourceFile(io.RawIOBase):
    """A source as the file object that libraries read."""

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
    """A regular file of this machine; it is closed when nothing refers to it any more."""

    def __init__(
        self, path: str | os.PathLike[str], folder: DataFolder | None = None, *, allow_links: bool = False
    ) -> None:
        """Open a regular file that the caller names, or one of a folder."""
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
        """The path without links."""
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

    def identity(self) -> list[Any]:
        """Return size, times of change and number of the file."""
        found = os.fstat(self.descriptor)
        return [self.real, *_changes(found), found.st_dev, found.st_ino]

    def local(self) -> LocalFile:
        """Return itself."""
        return self


class LocalFolder(Source):
    """A folder of files that are one thing together, such as a zarr array; a library reads them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @cached_property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(path.lstat().st_size for path in self.path.rglob("*") if not path.is_dir())

    def read(self, offset: int, size: int) -> bytes:
        """Raise: a folder has no bytes of its own."""
        raise FileError(f"{self.name} is a folder")

    def identity(self) -> list[Any]:
        """Return a digest of the names, sizes and times of all files."""
        digest = hashlib.sha256(repr(sorted(self._files())).encode()).hexdigest()
        return [str(self.path.resolve()), digest]

    def _files(self) -> Iterator[tuple[str, int, int, int]]:
        for path in self.path.rglob("*"):
            yield str(path.relative_to(self.path)), *_changes(path.lstat())


def _changes(found: os.stat_result) -> tuple[int, int, int]:
    """Return what changes with the contents of a file: the last one, whatever sets the times of files."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
