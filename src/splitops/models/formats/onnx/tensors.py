"""Check that the data of ONNX tensors matches their shape and type, and read them as arrays."""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper

from splitops.common.documents import MAX_RANK
from splitops.common.integers import INT64_MAX
from splitops.common.untrusted_files import DataFolder, read_range
from splitops.errors import ModelError, Where, shown
from splitops.spec.elements.packing import unpack
from splitops.spec.elements.types import ElementType, from_onnx

_MAX_DIGITS: Final = 20
_MARK: Final = "splitops:"
_BLOCK: Final = 8 << 20
_MEMORY: Final = re.compile(r"\*[/\\]_ORT_\w*MEM_ADDR_[/\\]\*")
"""Matches locations for which onnxruntime and OpenVINO interpret the offset as a memory address."""
_EXTERNAL_KEYS: Final = frozenset({"location", "offset", "length"})

_FIELDS: Final = {
    **dict.fromkeys(("float32", "complex64"), "float_data"),
    **dict.fromkeys(("float64", "complex128"), "double_data"),
    **dict.fromkeys(("uint32", "uint64"), "uint64_data"),
    "int64": "int64_data",
    "string": "string_data",
}
"""The protobuf field for the elements of a type, unless raw_data has them. Other types use int32_data."""
_TYPED_FIELDS: Final = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


_FOLDERS: Final[dict[str, DataFolder]] = {}
"""The folders of external data of models in memory, keyed by a random token that no file can contain."""


def _mark_location(location: str, folder: DataFolder) -> str:
    """Prefix a location with a token for ``folder``, so that this process can find the file from anywhere."""
    base = replace(folder, path=folder.path.resolve())
    word = next((word for word, known in _FOLDERS.items() if known == base), None)
    if word is None:
        word = secrets.token_hex(16)
        _FOLDERS[word] = base
    return f"{_MARK}{word}/{location}"


def find_folder(location: str) -> tuple[DataFolder | None, str]:
    """Split a marked location into its folder and the rest, or return None and ``location`` itself."""
    word, _, inner = location.removeprefix(_MARK).partition("/")
    if not location.startswith(_MARK) or word not in _FOLDERS:
        return None, location
    return _FOLDERS[word], inner


def mark_external(tensor: TensorProto, folder: DataFolder) -> None:
    """Mark the location of a tensor's external data with a token for ``folder``, unless it has one."""
    for entry in tensor.external_data:
        if entry.key == "location" and find_folder(entry.value)[0] is None:
            entry.value = _mark_location(entry.value, folder)


def unmark_external(tensor: TensorProto) -> DataFolder | None:
    """Remove the token of :func:`mark_external` from a tensor. Return its folder, or None without a token."""
    for entry in tensor.external_data:
        if entry.key == "location":
            folder, entry.value = find_folder(entry.value)
            return folder
    return None


def is_marked(tensor: TensorProto) -> bool:
    """Return whether the tensor's data is in another file whose folder this process knows."""
    return is_external(tensor) and any(
        entry.key == "location" and find_folder(entry.value)[0] is not None for entry in tensor.external_data
    )


def is_external(tensor: TensorProto) -> bool:
    """Return whether the tensor's data is in another file."""
    return tensor.data_location == TensorProto.EXTERNAL


def require_text(text: str, what: str, where: Where | None = None) -> None:
    """Check that the protobuf field ``what`` is text: protobuf returns text that is not UTF-8 as bytes."""
    if not isinstance(text, str):
        raise ModelError(f"{what} {bytes(text)[:80]!r} is not valid UTF-8", where)


def check_tensor(tensor: TensorProto, where: Where) -> None:
    """Check that a tensor has a known type, a possible shape and exactly the data for them.

    The file of external data is not checked; see :func:`check_external`.
    """
    for text in (tensor.name, tensor.doc_string):
        require_text(text, "a tensor's text", where)
    element_type = _get_element_type(tensor, where)
    expected = compute_byte_count(tensor, where)
    typed = [(name, len(getattr(tensor, name))) for name in _TYPED_FIELDS if len(getattr(tensor, name))]
    if is_external(tensor):
        if element_type.name == "string":
            raise _make_error(tensor, "has strings, which cannot be external data", where)
        if typed or tensor.raw_data:
            raise _make_error(tensor, "has data in the model and in another file", where)
        for entry in tensor.external_data:
            for text in (entry.key, entry.value):
                require_text(text, f"external data of tensor {shown(tensor.name)}:", where)
        return
    if tensor.HasField("segment"):
        raise _make_error(tensor, "is a segment, which ONNX no longer supports", where)
    if tensor.HasField("raw_data"):
        if element_type.name == "string" or typed:
            problem = f"also {typed[0][0]}" if typed else "its strings belong in string_data"
            raise _make_error(tensor, f"has raw data, but {problem}", where)
        if len(tensor.raw_data) != expected:
            found, kind = len(tensor.raw_data), _describe(tensor, element_type)
            raise _make_error(tensor, f"has {found} bytes of data, but {kind} requires {expected}", where)
        return
    field = _FIELDS.get(element_type.name, "int32_data")
    count = _compute_entry_count(math.prod(tensor.dims), element_type)
    others = dict(typed)
    if others.pop(field, 0) != count or others:
        has = ", ".join(f"{number} entries of {name}" for name, number in typed) or "no data"
        kind = _describe(tensor, element_type)
        raise _make_error(tensor, f"has {has}, but {kind} requires {count} entries of {field}", where)


def read_tensor(tensor: TensorProto, where: Where, folder: DataFolder | None = None) -> npt.NDArray[Any]:
    """Check a tensor and return it as a read-only array.

    A location of external data that is not marked with a folder is relative to ``folder``.
    """
    check_tensor(tensor, where)
    element_type = _get_element_type(tensor, where)
    if is_external(tensor):
        data: Any = _read_external_bytes(tensor, where, folder)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        data = None
    array = _convert(tensor, where) if data is None else unpack(data, element_type, tensor.dims)
    array.flags.writeable = False
    return array


def load_external(tensors: Iterable[TensorProto], where: Where, folder: DataFolder | None) -> None:
    """Read external data into the tensors.

    Locations that are not marked with a folder are relative to ``folder``.
    """
    for tensor in tensors:
        if is_external(tensor):
            check_tensor(tensor, where)
            data = bytes(_read_external_bytes(tensor, where, folder))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data


def check_external(tensor: TensorProto, where: Where, folder: DataFolder | None = None) -> None:
    """Check that a tensor's external data exists and has the right size, without reading it."""
    check_tensor(tensor, where)
    locate_external_data(tensor, where, folder)


def iter_data_blocks(
    tensor: TensorProto, where: Where, folder: DataFolder | None = None
) -> Iterator[memoryview]:
    """Yield a tensor's external data in blocks of at most 8 MiB."""
    folder, location, offset, length = locate_external_data(tensor, where, folder)
    with folder.open(location, where) as file:
        for begin in range(offset, offset + length, _BLOCK):
            yield read_range(file, begin, min(_BLOCK, offset + length - begin), where)


def _read_external_bytes(tensor: TensorProto, where: Where, folder: DataFolder | None) -> memoryview:
    """Read all bytes of a tensor's external data."""
    folder, location, offset, length = locate_external_data(tensor, where, folder)
    with folder.open(location, where) as file:
        return read_range(file, offset, length, where)


def locate_external_data(
    tensor: TensorProto, where: Where, folder: DataFolder | None
) -> tuple[DataFolder, str, int, int]:
    """Return the folder of a tensor's external data, the file in it, and the offset and length in bytes.

    Raise ModelError if the range exceeds the file or does not have the size that shape and type require.
    """
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise _make_error(tensor, f"declares external {entry.key!r} twice", where)
        if entry.key in _EXTERNAL_KEYS:
            entries[entry.key] = entry.value
    marked, location = find_folder(entries.get("location", ""))
    folder = marked or folder
    if _MEMORY.search(location):
        raise _make_error(tensor, f"is stored at the memory address {shown(location)}, not in a file", where)
    if folder is None:
        problem = "is in another file, but a model in memory has no folder: load the model from its path"
        raise _make_error(tensor, problem, where)
    expected = compute_byte_count(tensor, where)
    with folder.open(location, where) as file:
        size = os.fstat(file.fileno()).st_size
    offset = _parse_size(tensor, entries, "offset", 0, where)
    length = _parse_size(tensor, entries, "length", max(size - offset, 0), where)
    if (end := offset + length) > size:
        raise _make_error(tensor, f"needs bytes {offset} to {end} of a file of {size} bytes", where)
    if length != expected:
        kind = _describe(tensor, _get_element_type(tensor, where))
        raise _make_error(tensor, f"has {length} bytes of external data; {kind} requires {expected}", where)
    return folder, location, offset, length


def _parse_size(tensor: TensorProto, entries: dict[str, str], key: str, default: int, where: Where) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise _make_error(tensor, f"has external {key} {text[:40]!r}, which is not a number of bytes", where)
    return int(text)


def _get_element_type(tensor: TensorProto, where: Where) -> ElementType:
    element_type = from_onnx(tensor.data_type)
    if element_type is None:
        raise _make_error(tensor, f"has element type {tensor.data_type}, which is unknown", where)
    return element_type


def compute_byte_count(tensor: TensorProto, where: Where) -> int:
    """Return the size of a tensor's data in bytes, which is 0 for strings.

    Raise ModelError if the element type is unknown or no array can have the shape.
    """
    dims = tuple(tensor.dims)
    if len(dims) > MAX_RANK:
        raise _make_error(tensor, f"has rank {len(dims)}; at most {MAX_RANK} is possible", where)
    if any(dim < 0 for dim in dims):
        raise _make_error(tensor, f"has shape {dims}, with a negative size", where)
    # This limits empty tensors, too: NumPy multiplies the sizes other than 0.
    if math.prod(dim for dim in dims if dim) * 16 > INT64_MAX:
        raise _make_error(tensor, f"has shape {dims}, which takes more bytes than any memory has", where)
    elements: int = math.prod(dims)
    return -(-elements * _get_element_type(tensor, where).bits // 8)


def _compute_entry_count(elements: int, element_type: ElementType) -> int:
    if element_type.name.startswith("complex"):
        return 2 * elements
    # 4-bit and 2-bit types are packed into bytes in int32_data, too, but 6-bit types are not.
    if element_type.bits in (2, 4):
        return -(-elements * element_type.bits // 8)
    return elements


def _convert(tensor: TensorProto, where: Where) -> npt.NDArray[Any]:
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise _make_error(tensor, f"cannot be read: {str(error)[:200]}", where) from error
    if array.dtype != object:
        array.flags.writeable = False
    return array


def _describe(tensor: TensorProto, element_type: ElementType) -> str:
    return f"{element_type} of shape {tuple(tensor.dims)}"


def _make_error(tensor: TensorProto, problem: str, where: Where) -> ModelError:
    return ModelError(f"tensor {shown(tensor.name)} {problem}", where)
