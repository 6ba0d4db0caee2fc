"""Compressed files such as ``x.npy.gz``, decompressed by fsspec (the extra ``fsspec``).

The size of decompressed data is unknown until its end. The header in the data declares a size, which limits
the stream, so that it cannot fill the disk. Shorter data is an error. So is longer data, except in raw files.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

from splitops.errors import FileError
from splitops.files.sources import ByteRange, Source, SourceFile, reading

_BLOCK: Final = 1 << 20
_READ_AHEAD: Final = 8 << 20
"""Number of compressed bytes to read at a time. For a URL, each read is one request."""
_ENDINGS: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4")


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the extension of a compressed file.

    Examples:
        >>> is_compressed("x.npy.gz"), is_compressed("x.npz")
        (True, False)
    """
    return os.fspath(path).lower().endswith(_ENDINGS)


def strip_compression(path: str | os.PathLike[str]) -> Path:
    """Return a path without its compression extension, if it has one.

    Examples:
        >>> strip_compression("x.npy.gz").name, strip_compression("x.npy").name
        ('x.npy', 'x.npy')
    """
    found = Path(path)
    return found.with_suffix("") if is_compressed(found) else found


def read_beginning(source: Source, size: int) -> bytes:
    """Return the first ``size`` bytes of a source, or all bytes if there are fewer."""
    return (
        source.read_beginning(size) if isinstance(source, Stream) else source.read(0, min(size, source.size))
    )


def resolve_size(source: Source, stated: int, *, exact: bool = True) -> int:
    """Return the size of a source. For a stream, set it to ``stated``, the size that the header declares.

    With ``exact``, data after that size will be an error when the stream is copied.
    """
    if isinstance(source, Stream):
        if stated > sys.maxsize:
            raise FileError(f"{source.name} declares {stated} bytes, more than any file can have")
        source.set_declared_size(stated, exact)
    return source.size


class Stream(Source):
    """A decompressed file as a source. Reading backwards decompresses from the start again.

    Attributes:
        size: size in bytes that the header declares; ``sys.maxsize`` until it is set.
        ends: whether data after ``size`` is an error.
    """

    block = _BLOCK

    def __init__(self, file: Source, name: str, unpack: Callable[[], IO[bytes]]) -> None:
        self.name, self.path = name, file.path
        self.size, self.ends = sys.maxsize, False
        self._file, self._unpack = file, unpack
        self._stream: IO[bytes] | None = None
        self._at = 0
        self._reading = Lock()

    def read_beginning(self, size: int) -> bytes:
        """Return the first ``size`` bytes, or all bytes if there are fewer."""
        return self._read_forwards(0, size)

    def set_declared_size(self, size: int, ends: bool) -> None:
        """Set ``size`` and ``ends``. The stream is closed until the next read, because many may be open."""
        self.size, self.ends, self._stream = size, ends, None

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`splitops.files.sources.Source`."""
        found = self._read_forwards(offset, size)
        if len(found) != size:
            raise FileError(
                f"{self.name} ends at byte {offset + len(found)} after decompression, before its declared end"
            )
        return found

    def read_identity(self) -> list[Any]:
        """See :meth:`Source.read_identity`. The properties are those of the compressed file."""
        return self._file.read_identity()

    def copy_to(self, file: Any, stretches: Sequence[ByteRange]) -> None:
        """Write byte ranges in one pass. With :attr:`ends`, read to the end, which may have a checksum."""
        self._stream, at = None, 0
        for begin, end in sorted(stretches):
            super().copy_to(file, [(begin, end)])
            at = end
        if self.ends:
            for _ in self.iter_blocks(at, self.size):
                pass
            if self._read_forwards(self.size, 1):
                raise FileError(f"{self.name} has data after the {self.size} bytes that its header declares")
        self._stream = None

    def _open(self) -> IO[bytes]:
        return self._unpack()

    def _read_forwards(self, offset: int, size: int) -> bytes:
        """Return the bytes of a range, or fewer if the data ends earlier."""
        found = bytearray()
        with self._reading, reading(self.name):
            if self._stream is None or offset < self._at:
                self._stream, self._at = self._open(), 0
            while self._at < offset + size:
                block = self._stream.read(min(self.block, offset + size - self._at))
                if not block:
                    break
                found += block[max(0, offset - self._at) :]
                self._at += len(block)
        return bytes(found)


def open_decompressed(file: Source) -> Stream:
    """Return the decompressed contents of a file as a source. Raise FileError if a library is missing."""
    decompress = _find_decompressor(file)
    return Stream(file, file.name, lambda: decompress(io.BufferedReader(SourceFile(file), _READ_AHEAD)))


def _find_decompressor(file: Source) -> Callable[[IO[bytes]], IO[bytes]]:
    """Return a function that opens a compressed file for decompressed reading."""
    try:
        from fsspec.compression import compr
        from fsspec.utils import infer_compression
    except ImportError as error:
        raise FileError(f"{file.name} is compressed, which needs fsspec: install splitops[fsspec]") from error
    kind = infer_compression(file.path.name)
    if kind is None:
        raise FileError(
            f"{file.name}: no library for {file.path.suffix} is installed; for .zst install splitops[zstd]"
        )
    return partial(compr[kind], mode="rb")
