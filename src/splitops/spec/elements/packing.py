"""Sub-byte elements in bytes: the storage of OpenVINO and ONNX, bit for bit.

Arrays hold one element per item (``ElementType.numpy``); files hold several elements in a byte:

- 2-bit and 4-bit types (u2, u4, i4, nf4, f4e2m1 in OpenVINO; uint2, int2, uint4, int4, float4e2m1 in ONNX):
  the first element in the low bits of the first byte. Both dialects agree.
- u1 (OpenVINO's ``BIN``): the first element in the *high* bit of the first byte.
- u3 and u6 (OpenVINO): groups of three bytes, 8 x u3 or 4 x u6. The first two bytes hold the low 2 (u3) or
  4 (u6) bits of each element, the third one the high 1 (u3) or 2 (u6) bits, the first element in the high
  bits of its byte. A last group that is not full is stored whole, so 9 x u3 and 5 x u6 take 6 bytes each.
- float6 (ONNX): four elements in three bytes, a stream of bits that begins with the low bits of the first
  byte.

Bits behind the last element are written as zero and ignored when read.

Source: OpenVINO's ``openvino/core/type/element_iterator.hpp`` and ``get_memory_size`` as released up to
2026.4; ONNX's ``TensorProto.raw_data`` in ``onnx.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import ArrayError
from splitops.spec.elements.types import ElementType

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Field:
    """Some bits of each element: ``width`` bits that begin at bit ``low`` of the element's code.

    The fields of a group follow one another byte by byte, those of one byte from its low or its high end.
    """

    low: int
    width: int
    high_first: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """A group of ``count`` elements in ``size`` bytes: fields or, without any, a stream of bits."""

    count: int
    size: int
    fields: tuple[_Field, ...] = ()
    whole: bool = False
    """Whether a last group that is not full takes all its bytes."""


_BY_BITS: Final = {
    1: _Layout(8, 1, (_Field(0, 1, high_first=True),)),
    2: _Layout(4, 1, (_Field(0, 2, high_first=False),)),
    3: _Layout(8, 3, (_Field(0, 2, high_first=True), _Field(2, 1, high_first=True)), whole=True),
    4: _Layout(2, 1, (_Field(0, 4, high_first=False),)),
}
_UINT6: Final = _Layout(4, 3, (_Field(0, 4, high_first=True), _Field(4, 2, high_first=True)), whole=True)
_FLOAT6: Final = _Layout(4, 3)


def _layout(element_type: ElementType) -> _Layout:
    if element_type.bits == 6:
        return _UINT6 if element_type.openvino else _FLOAT6
    return _BY_BITS[element_type.bits]


def packed_size(element_type: ElementType, count: int) -> int:
    """Return how many bytes the storage of ``count`` elements takes.

    Strings, whose storage follows from their contents, and a negative count are an ArrayError.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> [packed_size(ELEMENT_TYPES[name], 9) for name in ("uint1", "uint3", "uint4", "float32")]
        [2, 6, 5, 36]
    """
    if element_type.bits == 0:
        raise ArrayError(f"the storage of {element_type} elements has no size before they are known")
    if count < 0:
        raise ArrayError(f"{count} elements of type {element_type}: a number of elements is at least 0")
    if not element_type.packed:
        return count * (element_type.bits // 8)
    layout = _layout(element_type)
    if layout.whole:
        return -(-count // layout.count) * layout.size
    return -(-count * element_type.bits // 8)


def unpack(
    data: bytes | memoryview | _Bytes, element_type: ElementType, shape: Sequence[int]
) -> npt.NDArray[Any]:
    """Read elements from their storage.

    There is one element per item. Types of at least 8 bits give a read-only view of the bytes; those
    without a NumPy dtype (u1, u3, u6, nf4) their codes as uint8.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> unpack(bytes([0x21, 0x03]), ELEMENT_TYPES["uint4"], (3,)).tolist()
        [1, 2, 3]
        >>> unpack(bytes([0b10100000]), ELEMENT_TYPES["uint1"], (3,)).tolist()
        [1, 0, 1]
    """
    if any(size < 0 for size in shape):
        raise ArrayError(f"shape {tuple(shape)} has a negative dimension")
    count = math.prod(shape)
    raw = np.frombuffer(data, np.uint8)
    expected = packed_size(element_type, count)
    if raw.size != expected:
        raise ArrayError(
            f"{raw.size} bytes for {count} elements of type {element_type}, which take {expected} bytes"
        )
    if not element_type.packed:
        return raw.view(element_type.numpy).reshape(shape)
    codes = _unpack_codes(raw, _layout(element_type), element_type.bits)[:count]
    return codes.view(element_type.numpy).reshape(shape)


def pack(array: npt.NDArray[Any], element_type: ElementType) -> bytes:
    """Write elements into their storage; the inverse of :func:`unpack`.

    The array is of dtype ``element_type.numpy``, of any shape and strides; a code of uint8 that does not
    fit the bits is an ArrayError.

    Examples:
        >>> import numpy as np
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> pack(np.array([1, 0, 1], np.uint8), ELEMENT_TYPES["uint1"]).hex()
        'a0'
    """
    size = packed_size(element_type, array.size)
    if array.dtype != element_type.numpy:
        raise ArrayError(
            f"dtype {array.dtype} for elements of type {element_type}, stored as {element_type.numpy}"
        )
    flat = np.ascontiguousarray(array).ravel()
    if not element_type.packed:
        return flat.tobytes()
    codes = flat.view(np.uint8)
    mask = (1 << element_type.bits) - 1
    if element_type.storage is not None and codes.size and int(codes.max()) > mask:
        raise ArrayError(
            f"code {int(codes.max())} does not fit the {element_type.bits} bits of {element_type}"
        )
    return _pack_codes(codes & np.uint8(mask), _layout(element_type), element_type.bits)[:size].tobytes()


def _unpack_codes(raw: _Bytes, layout: _Layout, bits: int) -> _Bytes:
    groups = _whole_groups(raw, layout.size)
    if not layout.fields:
        stream = np.unpackbits(groups, bitorder="little").reshape(-1, bits)
        return np.packbits(stream, axis=1, bitorder="little")
    codes = np.zeros((groups.shape[0], layout.count), np.uint8)
    for field, index, byte, shift in _pieces(layout):
        codes[:, index] |= ((groups[:, byte] >> shift) & ((1 << field.width) - 1)) << field.low
    return codes.ravel()


def _pack_codes(codes: _Bytes, layout: _Layout, bits: int) -> _Bytes:
    groups = _whole_groups(codes, layout.count)
    if not layout.fields:
        stream = np.unpackbits(groups.reshape(-1, 1), axis=1, bitorder="little", count=bits)
        return np.packbits(stream, bitorder="little")
    raw = np.zeros((groups.shape[0], layout.size), np.uint8)
    for field, index, byte, shift in _pieces(layout):
        raw[:, byte] |= ((groups[:, index] >> field.low) & ((1 << field.width) - 1)) << shift
    return raw.ravel()


def _pieces(layout: _Layout) -> Iterator[tuple[_Field, int, int, int]]:
    """Yield each field of each element of a group, the byte that holds it and its shift in there."""
    position = 0
    for field in layout.fields:
        for index in range(layout.count):
            byte, shift = divmod(position, 8)
            yield field, index, byte, 8 - field.width - shift if field.high_first else shift
            position += field.width


def _whole_groups(items: _Bytes, size: int) -> _Bytes:
    """Return the items in rows of ``size``, the last row filled up with zeros."""
    missing = -items.size % size
    if missing:
        items = np.concatenate([items, np.zeros(missing, np.uint8)])
    return items.reshape(-1, size)
