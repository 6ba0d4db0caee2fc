"""The .npy format: the header is checked against the file before a byte is used.

Source: NumPy's ``numpy.lib.format``, NEP 1.
"""

from __future__ import annotations

import io
import math
import mmap
import tokenize
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from splitops.errors import FileError, one_line, shown, shown_path
from splitops.files.addresses import written
from splitops.files.formats import Contents, Layout, TargetFile, places
from splitops.files.sources import LocalFile, Source
from splitops.files.streams import beginning, size_of
from splitops.files.tensors import StoredTensor, array_tensor
from splitops.ground.documents import MAX_RANK
from splitops.spec.elements.types import is_numpys_own

_MAGIC: Final = b"\x93NUMPY"
_MAX_HEADER: Final = 10_000
"""Characters of a header, NumPy's own bound for safe parsing."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a .npy file says of its array, never one of Python objects; its data begins at ``start``."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def data_bytes(self) -> int:
        """The exact size of the data."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Where the data ends, and the file with it."""
        return self.start + self.data_bytes


def read_header(file: IO[bytes], name: str, size: int) -> Header:
    """Read a header and check it against the size of the file.

    Pickled objects, and fewer or more bytes than the header says, are a FileError.
    """
    return _proved(_parsed(file, name), name, size)


def _parsed(file: IO[bytes], name: str) -> Header:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _error(name, "it is not a .npy file")
    version = tuple(file.read(2))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header by Python 2
            if version == (1, 0):
                shape, fortran, dtype = npy.read_array_header_1_0(_bounded(file, 2), _MAX_HEADER)
            elif version in ((2, 0), (3, 0)):  # 3.0 differs in the encoding of field names alone
                shape, fortran, dtype = npy.read_array_header_2_0(_bounded(file, 4), _MAX_HEADER)
            else:
                raise _error(name, f"version {shown(version)} of the .npy format is not supported")
    except FileError:
        raise
    except _MALFORMED as error:
        raise _error(name, f"the header is malformed: {one_line(str(error), 200)}") from error
    if dtype.hasobject:
        raise _error(name, "it has pickled Python objects, which are not read")
    if dtype.subdtype is not None:
        raise _error(name, "its items are arrays themselves, which NumPy does not write")
    if not all(type(dim) is int and dim >= 0 for dim in shape) or len(shape) > MAX_RANK:
        raise _error(name, f"shape {shown(shape)} in the header is not the shape of an array")
    header = Header(shape, dtype, fortran, file.tell())
    # NumPy multiplies the sizes other than 0, also for an empty array.
    if math.prod(dim for dim in shape if dim) * max(1, dtype.itemsize) >= 1 << 63:
        raise _error(name, f"shape {shown(shape)} in the header takes more bytes than any memory has")
    return header


def _proved(header: Header, name: str, size: int) -> Header:
    if size != header.end:
        what = "is truncated" if size < header.end else "has bytes after its data"
        raise _error(
            name,
            f"it {what}: {header.dtype} of shape {shown(header.shape)} takes {header.end} bytes with the "
            f"header, but the file has {size} bytes",
        )
    return header


def _error(name: str, problem: str) -> FileError:
    return FileError(f"{shown_path(name)}: {problem}")


_MALFORMED: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    SyntaxError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def _bounded(file: IO[bytes], width: int) -> Any:
    """Return the header's length and text, so that a long one is not read before it is rejected."""
    length = int.from_bytes(prefix := file.read(width), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"it has {length} bytes")
    return io.BytesIO(prefix + file.read(length))


def mapped(path: Path) -> npt.NDArray[Any]:
    """Map a .npy file into memory, read-only; nothing is read before it is used."""
    source = LocalFile(path)
    header = _header_of(source)
    whole: Any = b""
    try:
        if header.data_bytes:
            whole = mmap.mmap(source.descriptor, source.size, access=mmap.ACCESS_READ)
    except (OSError, ValueError, OverflowError) as error:
        raise _error(str(path), f"it cannot be mapped into memory: {error}") from error
    return _array(header, whole, header.start)


def _array(header: Header, data: Any, start: int) -> npt.NDArray[Any]:
    if not header.data_bytes:
        return np.zeros(header.shape, header.dtype)
    order: Any = "F" if header.fortran else "C"
    return np.ndarray(header.shape, header.dtype, data, start, order=order)


def read_array(file: IO[bytes], name: str, size: int, accept: Callable[[Header], None]) -> npt.NDArray[Any]:
    """Read an array from a stream of a known size, such as a member of an .npz file.

    ``accept`` gets the header before a byte of the data is read; what it raises ends the reading.
    """
    header = read_header(file, name, size)
    accept(header)
    data = bytearray()
    while len(data) < header.data_bytes:  # by and by: a size is believed when the bytes are there
        block = file.read(min(1 << 20, header.data_bytes - len(data)))
        if not block:
            raise _error(name, f"it is truncated after {len(data)} of {header.data_bytes} bytes")
        data += block
    return _array(header, data, 0)


@lru_cache(maxsize=16)  # the parts of a split have one or two shapes
def header_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], *, fortran: bool = False) -> bytes:
    """Return the header of a .npy file, as NumPy writes it."""
    buffer = io.BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    try:
        npy.write_array_header_1_0(buffer, fields)
    except ValueError:  # longer than version 1.0 can say
        npy.write_array_header_2_0(buffer := io.BytesIO(), fields)
    return buffer.getvalue()


class _Npy:
    """One array a file."""

    name = "npy"
    suffixes = (".npy",)

    def read(self, source: Source) -> Contents:
        header = _header_of(source)
        return Contents(self, (stored("", header, header.start),), (source,))

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        return taken(tensor)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        if len(tensors) != 1:
            raise FileError(f"{shown(name)} would have {len(tensors)} tensors; a .npy file has one")
        head = header_of(tensors[0])
        return Layout(
            (TargetFile(name, len(head) + tensors[0].size, ((0, head),)),), places([(0, len(head))])
        )


FORMAT: Final = _Npy()


def stored(name: str, header: Header, offset: int, file: int = 0) -> StoredTensor:
    """Return the tensor that a header describes, with its bytes at an offset of a file."""
    code, where = str(npy.dtype_to_descr(header.dtype)), {"offset": offset, "file": file}
    return array_tensor(name, header.shape, header.dtype, code, fortran=header.fortran, **where)


def taken(tensor: StoredTensor) -> StoredTensor:
    """Return a tensor of any format, if NumPy has a type for it that a .npy file can name."""
    if tensor.dtype is None or not is_numpys_own(tensor.dtype):
        raise FileError(f"{tensor.label} is of type {tensor.code}, which .npy does not have")
    return tensor._replace(code=str(npy.dtype_to_descr(tensor.dtype)))


def header_of(tensor: StoredTensor) -> bytes:
    """Return the header of a file for a tensor."""
    assert tensor.dtype is not None
    return header_bytes(tensor.shape, tensor.dtype, fortran=tensor.fortran)


@lru_cache(maxsize=64)
def _same_header(start: bytes) -> Header | None:
    """Return the header that a file begins with, which parts of a split share; None where it is malformed."""
    try:
        return _parsed(io.BytesIO(start), "")
    except FileError:
        return None


def _header_of(source: Source) -> Header:
    start = beginning(source, _MAX_HEADER + 12)
    name = written(source.path)
    end = start.find(b"\n", 0, 4096) + 1
    header = (_same_header(start[:end]) if end else None) or _parsed(io.BytesIO(start), name)
    return _proved(header, name, size_of(source, header.end))
