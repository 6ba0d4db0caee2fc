"""Compressed files such as ``x.npy.gz``: read forwards, by the compressions of fsspec, the extra ``fsspec``.

A stream has no size before it has been read through. Its header declares one, which bounds the stream, and
no byte behind it is kept: a stream that goes on, or ends early, is an error and never a full disk.
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
from splitops.files.sources import Source, SourceFile, Stretch, reading

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
    """Return the size of a source whose header declares where its last byte is; a stream has no other size.

    Where it is exact, nothing may follow.
    """
    if isinstance(source, Stream):
        if stated > sys.maxsize:
            raise FileError(f"{source.name} declares {stated} bytes, more than a file can have")
        source.hold(stated, exact)
    return source.size


class Stream(Source):
    """Bytes that can only be read forwards, as a source.

    What is copied is decompressed once. A read that begins before the end of the one before it decompresses
    from the beginning again.
    The size is what a header declares, and more than any file has before that. Some have to end there.
    """

    block = _BLOCK

    def __init__(self, file: Source, name: str, unpack: Callable[[], IO[bytes]]) -> None:
        self.name, self.path = name, file.path
        self.size, self.ends = sys.maxsize, False
        self._file, self._unpack = file, unpack
        self._stream: IO[bytes] | None = None
        self._at = 0
        self._reading = Lock()

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
            raise FileError(
                f"{self.name} ends at byte {offset + len(found)} of what it holds, before its declared end"
            )
        return found

    def identity(self) -> list[Any]:
        """Return that of the file."""
        return self._file.identity()

    def copy_to(self, file: Any, stretches: Sequence[Stretch]) -> None:
        """Write stretches in one pass, on to the end where that is set: there a checksum may be."""
        self._stream, at = None, 0
        for begin, end in sorted(stretches):
            super().copy_to(file, [(begin, end)])
            at = end
        if self.ends:
            for _ in self.blocks(at, self.size):
                pass
            if self._forwards(self.size, 1):
                raise FileError(f"{self.name} goes on after the {self.size} bytes that its header declares")
        self._stream = None

    def _open(self) -> IO[bytes]:
        return self._unpack()

    def _forwards(self, offset: int, size: int) -> bytes:
        """Return what there is of some bytes."""
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


def decompressed(file: Source) -> Stream:
    """Return what a file holds whose name :func:`is_compressed`; a missing library is an error."""
    decompress = _decompressor(file)
    return Stream(file, file.name, lambda: decompress(io.BufferedReader(SourceFile(file), _READ_AHEAD)))


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
