"""Compressed files such as ``x.npy.gz``: read forwards, by the compressions of fsspec, the extra ``fsspec``.

A stream has no size before it has been read through. Its header declares one, which bounds the stream, and
no byte behind it is kept: a stream that goes on, or ends early, is an error and never a full disk.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

from splitops.errors import FileError
from splitops.files.sources import LocalFile, Source, SourceFile, Stretch, reading

_BLOCK: Final = 1 << 20
_READ_AHEAD: Final = 8 << 20
"""Bytes of the compressed file that are asked for at a time: one request, where it is at an address."""
_ENDINGS: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4")


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a compressed file, by its ending.

    Examples:
        >>> is_compressed("x.npy.gz"), is_compressed("x.npz")
        (True, False)
    """
    return os.fspath(path).lower().endswith(_ENDINGS)


def plain_path(path: str | os.PathLike[str]) -> Path:
    """Return a path without the ending of its compression.

    Examples:
        >>> plain_path("x.npy.gz").name, plain_path("x.npy").name
        ('x.npy', 'x.npy')
    """
    found = Path(path)
    return found.with_suffix("") if is_compressed(found) else found


def beginning(source: Source, size: int) -> bytes:
    """Return the first bytes of a source: so many, or all that there are."""
    return source.beginning(size) if isinstance(source, Stream) else source.read(0, min(size, source.size))


def size_of(source: Source, stated: int, *, exact: bool = True) -> int:
    """Return the size of a source whose header declares one; a stream has no other size.

    Args:
        source: any.
        stated: where the last byte is that the header speaks of.
        exact: whether nothing may follow it.
    """
    if isinstance(source, Stream):
        source.hold(stated, exact)
    return source.size


class Stream:
    """What a compressed file holds, as a source that is read forwards.

    What is copied is decompressed once. A read that begins before the end of the one before it decompresses
    from the beginning again.

    Attributes:
        size: what its header declares; more than any file has, as long as nothing has stated it.
        ends: whether it must end there.
    """

    def __init__(self, file: Source) -> None:
        """Read a file whose name :func:`is_compressed`.

        Raises:
            FileError: fsspec or the library for its compression is not installed.
        """
        self._file = file
        self._decompress = _decompressor(file)
        self._stream: IO[bytes] | None = None
        self._at = 0
        self._reading = Lock()
        self.size = sys.maxsize
        self.ends = False

    @property
    def name(self) -> str:
        """See :class:`splitops.files.sources.Source`."""
        return self._file.name

    @property
    def path(self) -> Path:
        """The path of the compressed file."""
        return self._file.path

    def beginning(self, size: int) -> bytes:
        """Return the first bytes: so many, or all that there are."""
        return self._forwards(0, size)

    def hold(self, size: int, ends: bool) -> None:
        """Take what its header declares; the header is read now, and there may be many files."""
        self.size, self.ends, self._stream = size, ends, None

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`splitops.files.sources.Source`."""
        found = self._forwards(offset, size)
        if len(found) != size:
            raise self._ended(offset + len(found))
        return found

    def identity(self) -> list[Any]:
        """Return that of the compressed file."""
        return self._file.identity()

    def local(self) -> LocalFile | None:
        """Return None: its bytes are in no file yet."""
        return None

    def copy_to(self, file: Any, stretches: Sequence[Stretch]) -> None:
        """Write stretches in one pass, on to the end where that is set: there a checksum may be."""
        last = self.size if self.ends else max((end for _, end in stretches), default=0)
        wanted = sorted(stretches, reverse=True)
        at = 0
        with reading(self.name), closing(self._open()) as stream:
            while at < last:
                block = stream.read(min(_BLOCK, last - at))
                if not block:
                    raise self._ended(at)
                reached = at + len(block)
                while wanted and wanted[-1][0] < reached:
                    begin, end = wanted.pop()
                    file.seek(max(begin, at))
                    file.write(block[max(0, begin - at) : end - at])
                    if end > reached:
                        wanted.append((reached, end))
                at = reached
            if self.ends and stream.read(1):
                raise FileError(f"{self.name} goes on after the {last} bytes that its header declares")

    def _forwards(self, offset: int, size: int) -> bytes:
        """Return what there is of some bytes."""
        found = bytearray()
        with self._reading, reading(self.name):
            if self._stream is None or offset < self._at:
                self._stream, self._at = self._open(), 0
            while self._at < offset + size:
                block = self._stream.read(min(_BLOCK, offset + size - self._at))
                if not block:
                    break
                found += block[max(0, offset - self._at) :]
                self._at += len(block)
        return bytes(found)

    def _open(self) -> IO[bytes]:
        return self._decompress(io.BufferedReader(SourceFile(self._file), _READ_AHEAD))

    def _ended(self, at: int) -> FileError:
        return FileError(f"{self.name} ends at byte {at} of what it holds, before its declared end")


def _decompressor(file: Source) -> Callable[[IO[bytes]], IO[bytes]]:
    """Return what makes a decompressing file of a compressed one."""
    try:
        from fsspec.compression import compr
        from fsspec.utils import infer_compression
    except ImportError as error:
        raise FileError(f"{file.name} is compressed, which needs fsspec: install splitops[fsspec]") from error
    kind = infer_compression(file.path.name)
    if kind is None:
        raise FileError(
            f"{file.name}: fsspec finds no library for {file.path.suffix}; for .zst install splitops[zstd]"
        )
    return partial(compr[kind], mode="rb")
