"""The .npy format: its header is checked against the size of the file before any data is used.

Source: NumPy's ``numpy.lib.format``, NEP 1.
"""

from __future__ import annotations

import ast
import io
import math
import mmap
import tokenize
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from splitops.common.documents import MAX_RANK
from splitops.errors import FileError, one_line, shown, shown_path
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import LocalFile, Source
from splitops.files.streams import read_beginning, resolve_size
from splitops.files.tensors import StoredTensor, make_array_tensor
from splitops.files.urls import format_location
from splitops.spec.elements.types import is_builtin

_MAGIC: Final = b"\x93NUMPY"
_MAX_HEADER: Final = 10_000
"""Maximum characters of a header: NumPy's own limit for safe parsing."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a .npy file that has no Python objects. The data begins at offset ``start``."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def data_bytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Offset of the end of the data, which is the size of the file."""
        return self.start + self.data_bytes


def read_header(file: IO[bytes], name: str, size: int) -> Header:
    """Read a header and check it against the file size. ``name`` is the file's name in errors.

    Raises:
        FileError: the header is malformed, the array has pickled objects or an unsupported dtype, or the file
            size does not match.
    """
    return _check_size(_parse_header(file, name), name, size)


def _parse_header(file: IO[bytes], name: str) -> Header:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _make_error(name, "it is not a .npy file")
    version = tuple(file.read(2))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers of Python 2 have 'L' suffixes
            if version == (1, 0):
                shape, fortran, dtype = npy.read_array_header_1_0(_read_bounded(file, 2), _MAX_HEADER)
            elif version == (2, 0):
                shape, fortran, dtype = npy.read_array_header_2_0(_read_bounded(file, 4), _MAX_HEADER)
            elif version == (3, 0):
                shape, fortran, dtype = npy.read_array_header_2_0(_read_utf8(file), 10 * _MAX_HEADER)
            else:
                raise _make_error(name, f"version {shown(version)} of the .npy format is not supported")
    except FileError:
        raise
    except _MALFORMED as error:
        raise _make_error(name, f"the header is malformed: {one_line(str(error), 200)}") from error
    if dtype.hasobject:
        raise _make_error(name, "it has pickled Python objects, which may run code and are not read")
    if dtype.subdtype is not None:
        raise _make_error(name, "its dtype has subarrays, which are not supported")
    if not all(type(dim) is int and dim >= 0 for dim in shape) or len(shape) > MAX_RANK:
        raise _make_error(name, f"shape {shown(shape)} in the header is not the shape of an array")
    header = Header(shape, dtype, fortran, file.tell())
    # NumPy limits the product of the nonzero sizes, even for empty arrays.
    if math.prod(dim for dim in shape if dim) * max(1, dtype.itemsize) >= 1 << 63:
        raise _make_error(name, f"shape {shown(shape)} in the header is larger than NumPy supports")
    return header


def _check_size(header: Header, name: str, size: int) -> Header:
    if size != header.end:
        what = "is truncated" if size < header.end else "has bytes after its data"
        raise _make_error(
            name,
            f"it {what}: {header.dtype} of shape {shown(header.shape)} needs {header.end} bytes with the "
            f"header, but the file has {size} bytes",
        )
    return header


def _make_error(name: str, problem: str) -> FileError:
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


def _read_bounded(file: IO[bytes], width: int) -> Any:
    """Read a header and its length, and return both as a stream. Reject an oversized header unread."""
    length = int.from_bytes(prefix := file.read(width), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"it has {length} bytes")
    if len(text := file.read(length)) < length:  # NumPy checks this, but _read_utf8 does not
        raise ValueError(f"it has {length} bytes, but only {len(text)} are there")
    return io.BytesIO(prefix + text)


def _read_utf8(file: IO[bytes]) -> IO[bytes]:
    """Read a header of version 3.0 and return it as one of version 2.0 with escaped field names.

    NumPy's public functions read and write versions 1.0 and 2.0, in Latin-1. Version 3.0 is UTF-8.
    """
    text = ascii(ast.literal_eval(_read_bounded(file, 4).read()[4:].decode())).encode()
    return io.BytesIO(len(text).to_bytes(4, "little") + text)


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map a .npy file into memory, read-only. Data is read on access."""
    source = LocalFile(path)
    header = _read_checked_header(source)
    whole: Any = b""
    try:
        if header.data_bytes:
            whole = mmap.mmap(source.descriptor, source.size, access=mmap.ACCESS_READ)
    except (OSError, ValueError, OverflowError) as error:
        raise _make_error(str(path), f"it cannot be mapped into memory: {error}") from error
    return _make_array(header, whole, header.start)


def _make_array(header: Header, data: Any, start: int) -> npt.NDArray[Any]:
    if not header.data_bytes:
        return np.zeros(header.shape, header.dtype)
    order: Any = "F" if header.fortran else "C"
    return np.ndarray(header.shape, header.dtype, data, start, order=order)


def read_array(file: IO[bytes], name: str, size: int, accept: Callable[[Header], None]) -> npt.NDArray[Any]:
    """Read an array from a stream of known size, such as a member of an .npz file.

    ``accept`` is called with the header before any data is read. An exception that it raises stops the
    reading.
    """
    header = read_header(file, name, size)
    accept(header)
    data = bytearray()
    while len(data) < header.data_bytes:  # in steps, because the declared size may be wrong
        block = file.read(min(1 << 20, header.data_bytes - len(data)))
        if not block:
            raise _make_error(name, f"it is truncated after {len(data)} of {header.data_bytes} bytes")
        data += block
    return _make_array(header, data, 0)


@lru_cache(maxsize=16)  # parts of a split often have equal shapes
def encode_header(shape: tuple[int, ...], dtype: np.dtype[Any], *, fortran: bool = False) -> bytes:
    """Return the bytes of the header of a .npy file, as NumPy writes it."""
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    for write in (npy.write_array_header_1_0, npy.write_array_header_2_0):
        with suppress(ValueError):  # too long for version 1.0, or a field name that is not Latin-1
            write(buffer := io.BytesIO(), fields)
            return buffer.getvalue()
    npy.write_array_header_2_0(buffer := io.BytesIO(), {**fields, "descr": _Utf8(fields["descr"])})
    return npy.magic(3, 0) + buffer.getvalue()[npy.MAGIC_LEN :]


class _Utf8:
    """Wraps a value for NumPy's writer of version 2.0, so that its Latin-1 bytes are UTF-8, as in 3.0."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value).encode().decode("latin-1")


class _Npy:
    """The .npy format, with one array per file."""

    name = "npy"
    suffixes = (".npy",)

    def read(self, source: Source) -> Contents:
        header = _read_checked_header(source)
        return Contents(self, (make_tensor("", header, header.start),), (source,))

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        return adapt(tensor)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        if len(tensors) != 1:
            raise FileError(f"{shown(name)} would have {len(tensors)} tensors; a .npy file has one")
        head = encode_tensor_header(tensors[0])
        return Layout(
            (TargetFile(name, len(head) + tensors[0].size, ((0, head),)),), make_places([(0, len(head))])
        )


FORMAT: Final = _Npy()


def make_tensor(name: str, header: Header, offset: int, file: int = 0) -> StoredTensor:
    """Describe the array of a header whose data is at ``offset`` of a file."""
    code, where = str(npy.dtype_to_descr(header.dtype)), {"offset": offset, "file": file}
    return make_array_tensor(name, header.shape, header.dtype, code, fortran=header.fortran, **where)


def adapt(tensor: StoredTensor) -> StoredTensor:
    """Describe a tensor of any format as .npy stores it. Raise FileError for an unsupported type."""
    if tensor.dtype is None or not is_builtin(tensor.dtype):
        raise FileError(f"{tensor.label} has type {tensor.code}, which .npy does not support")
    return tensor._replace(code=str(npy.dtype_to_descr(tensor.dtype)))


def encode_tensor_header(tensor: StoredTensor) -> bytes:
    """Return the bytes of the header of a .npy file for a tensor."""
    assert tensor.dtype is not None
    return encode_header(tensor.shape, tensor.dtype, fortran=tensor.fortran)


@lru_cache(maxsize=64)
def _parse_cached(start: bytes) -> Header | None:
    """Parse a header, or return None if it is malformed. Parts of a split often have equal headers."""
    try:
        return _parse_header(io.BytesIO(start), "")
    except FileError:
        return None


def _read_checked_header(source: Source) -> Header:
    start = read_beginning(source, _MAX_HEADER + 12)
    name = format_location(source.path)
    end = start.find(b"\n", 0, 4096) + 1
    header = (_parse_cached(start[:end]) if end else None) or _parse_header(io.BytesIO(start), name)
    return _check_size(header, name, resolve_size(source, header.end))
