"""safetensors: a length, a header in JSON, then the bytes of the tensors without a gap.

What the reference implementation rejects is rejected here, and keys that appear twice, of which it takes the
last. Files are written as it writes them: wider types first, then by name, the header padded to 8 bytes.

Source: the format's description and ``safetensors/src/tensor.rs`` at
https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from splitops.errors import FileError, shown
from splitops.files.formats import Contents, Layout, Place, TargetFile
from splitops.files.sources import Source
from splitops.files.streams import size_of
from splitops.files.tensors import StoredTensor, unit_of
from splitops.spec.elements.types import ELEMENT_TYPES

_MAX_HEADER: Final = 100_000_000
_ALIGNMENT: Final = 8
_METADATA: Final = "__metadata__"
_UINT64: Final = 1 << 64

# In the order of the reference implementation, which writes the tensors of the last types first.
_TYPES: Final = {
    code: ELEMENT_TYPES[name]
    for code, name in {
        "BOOL": "bool",
        "F4": "float4_e2m1fn",
        "F6_E2M3": "float6_e2m3fn",
        "F6_E3M2": "float6_e3m2fn",
        "U8": "uint8",
        "I8": "int8",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "I16": "int16",
        "U16": "uint16",
        "F16": "float16",
        "BF16": "bfloat16",
        "I32": "int32",
        "U32": "uint32",
        "F32": "float32",
        "C64": "complex64",
        "F64": "float64",
        "I64": "int64",
        "U64": "uint64",
    }.items()
}
_CODES: Final = {element_type.name: code for code, element_type in _TYPES.items()}
_KINDS: Final = {
    code: (kind, unit_of(kind), None if kind.packed else kind.numpy) for code, kind in _TYPES.items()
}
_RANKS: Final = {code: rank for rank, code in enumerate(_TYPES)}


class _MalformedError(ValueError):
    """What is wrong with a header."""


class _Safetensors:
    name = "safetensors"
    suffixes = (".safetensors",)

    def read(self, source: Source) -> Contents:
        try:
            start, header = _header(source)
            metadata = _metadata(header.pop(_METADATA, None))
            tensors = [_tensor(name, entry, start) for name, entry in header.items()]
            tensors.sort(key=lambda tensor: (tensor.offset, tensor.size))
            _reject_gaps(tensors, start, source)
        except _MalformedError as error:
            raise FileError(f"{source.name}: {error}") from error
        return Contents(self, tuple(tensors), (source,), metadata)

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        code = tensor.code if tensor.code in _TYPES else _CODES.get(str(tensor.element_type))
        swapped = tensor.dtype is not None and not tensor.dtype.isnative
        if code is None or swapped or (tensor.fortran and not tensor.both_orders):
            order = ", Fortran order" if tensor.fortran else ""
            raise FileError(
                f"{tensor.label} is of type {tensor.code}{order}, which safetensors does not have"
            )
        return replace(tensor, code=code, fortran=False)

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        order = sorted(
            range(len(tensors)), key=lambda i: (-_RANKS[tensors[i].code], tensors[i].name.encode())
        )
        metadata = like.metadata if like.format is self else {}
        header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
        offsets, end = [0] * len(tensors), 0
        for index in order:
            tensor = tensors[index]
            if tensor.name in header or tensor.name == _METADATA:
                raise FileError(f"{shown(name)} cannot have {tensor.label}: its header has this key already")
            offsets[index], end = end, end + tensor.size
            header[tensor.name] = {
                "dtype": tensor.code,
                "shape": list(tensor.shape),
                "data_offsets": [offsets[index], end],
            }
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        if len(text) > _MAX_HEADER:
            raise FileError(
                f"{shown(name)} would have a header of {len(text)} bytes, the format's limit is {_MAX_HEADER}"
            )
        start = 8 + len(text)
        file = TargetFile(name, start + end, ((0, len(text).to_bytes(8, "little") + text),))
        return Layout((file,), tuple(Place(0, start + offset) for offset in offsets))


FORMAT: Final = _Safetensors()


def _header(source: Source) -> tuple[int, dict[str, Any]]:
    if source.size < 8:
        raise _MalformedError(f"{source.size} bytes are not safetensors file")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > _MAX_HEADER:
        raise _MalformedError(f"its header would have {length} bytes; the format's limit is {_MAX_HEADER}")
    if 8 + length > source.size:
        raise _MalformedError(f"its header would end at byte {8 + length}, but the file has {source.size}")
    raw = source.read(8, length)
    if not raw.startswith(b"{"):
        raise _MalformedError("its header does not begin with {")
    try:
        header = json.loads(raw.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
    except _MalformedError:
        raise
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"its header is not JSON: {shown(str(error))}") from error
    return 8 + length, header


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise _MalformedError(f"key {shown(twice)} appears twice in its header")
    return found


def _no_constant(text: str) -> Any:
    raise _MalformedError(f"{text} in its header is not JSON")


def _metadata(found: Any) -> Mapping[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _MalformedError(f"{_METADATA} is not a mapping of texts to texts")
    return found


def _tensor(name: str, entry: Any, start: int) -> StoredTensor:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise _MalformedError(f"the entry of tensor {shown(name)} lacks dtype, shape or data_offsets")
    offsets = entry["data_offsets"]
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _MalformedError(f"the data_offsets of tensor {shown(name)} are not lists of sizes")
    begin, end = offsets
    tensor = stated_tensor(name, entry["dtype"], entry["shape"], start + begin)
    if end - begin != tensor.size:
        raise _MalformedError(
            f"tensor {shown(name)}: {tensor.code} of shape {shown(entry['shape'])} takes {tensor.size} "
            f"bytes, but its data_offsets are {shown(offsets)}"
        )
    return tensor


def stated_tensor(name: str, code: Any, shape: Any, offset: int) -> StoredTensor:
    """Return the tensor at an offset of which a document declares the name, the type and the shape.

    Raises:
        ValueError: the format has none like it.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _MalformedError(f"the name {shown(name)} is not text") from None
    if not isinstance(code, str) or code not in _TYPES:
        raise _MalformedError(f"tensor {shown(name)} has dtype {shown(code)}, which the format does not have")
    if not _are_sizes(shape):
        raise _MalformedError(f"the shape of tensor {shown(name)} is not a list of sizes")
    element_type, unit, dtype = _KINDS[code]
    bits = math.prod(shape) * element_type.bits
    if bits >= _UINT64:
        raise _MalformedError(f"shape {shown(shape)} of tensor {shown(name)} is more than 64 bits can count")
    if bits % 8:
        raise _MalformedError(
            f"tensor {shown(name)}: {code} of shape {shown(shape)} does not fill its last byte"
        )
    return StoredTensor(name, tuple(shape), code, unit, offset, bits // 8, element_type, dtype)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < _UINT64 for size in value)


def _reject_gaps(tensors: Sequence[StoredTensor], start: int, source: Source) -> None:
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            what = "a hole before" if tensor.offset > end else "an overlap with"
            raise _MalformedError(f"its data have {what} tensor {shown(tensor.name)}, at byte {end}")
        end += tensor.size
    size = size_of(source, end)
    if end != size:
        what = "is truncated" if size < end else "goes on after its data"
        raise _MalformedError(f"it {what}: its header describes {end} bytes, but the file has {size}")
