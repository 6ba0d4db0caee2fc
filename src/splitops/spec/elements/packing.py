"""Packing of elements that are smaller than a byte, as ONNX and OpenVINO store them.

Arrays have one element per item (``ElementType.numpy``). Files pack the elements:

- 2-bit and 4-bit types (u2, u4, i4, nf4, f4e2m1 in OpenVINO; uint2, int2, uint4, int4, float4e2m1 in ONNX):
  the first element in the low bits of the first byte. Both dialects agree.
- u1 (OpenVINO's ``BIN``): the first element in the *high* bit of the first byte.
- u3 and u6 (OpenVINO): groups of three bytes, 8 x u3 or 4 x u6. The first two bytes hold the low 2 (u3) or
  4 (u6) bits of each element, the third byte the high 1 (u3) or 2 (u6) bits. Earlier elements are in higher
  bits of a byte. An incomplete last group is stored with all its bytes: 9 x u3 and 5 x u6 take 6 bytes each.
- float6 (ONNX): four elements in three bytes, as a stream of bits that starts with the low bits of the first
  byte.

Bits after the last element are written as zero and ignored when read.

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
    """``width`` bits of the code of each element in a group, starting at bit ``low``.

    These bits of all elements are stored consecutively. Each byte is filled from its low or its high end.
    """

    low: int
    width: int
    high_first: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """Storage of ``count`` elements in ``size`` bytes: as ``fields``, or as one bit stream if it has none."""

    count: int
    size: int
    fields: tuple[_Field, ...] = ()
    whole: bool = False
    """Whether a last group with fewer elements also takes ``size`` bytes."""


_BY_BITS: Final = {
    1: _Layout(8, 1, (_Field(0, 1, high_first=True),)),
    2: _Layout(4, 1, (_Field(0, 2, high_first=False),)),
    3: _Layout(8, 3, (_Field(0, 2, high_first=True), _Field(2, 1, high_first=True)), whole=True),
    4: _Layout(2, 1, (_Field(0, 4, high_first=False),)),
}
_UINT6: Final = _Layout(4, 3, (_Field(0, 4, high_first=True), _Field(4, 2, high_first=True)), whole=True)
_FLOAT6: Final = _Layout(4, 3)


def _get_layout(element_type: ElementType) -> _Layout:
    if element_type.bits == 6:
        return _UINT6 if element_type.openvino else _FLOAT6
    return _BY_BITS[element_type.bits]


def compute_packed_size(element_type: ElementType, count: int) -> int:
    """Return the number of bytes that store ``count`` elements.

    Raises:
        ArrayError: the type is string, whose size depends on the contents, or ``count`` is negative.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> [compute_packed_size(ELEMENT_TYPES[name], 9) for name in ("uint1", "uint3", "uint4", "float32")]
        [2, 6, 5, 36]
    """
    if element_type.bits == 0:
        raise ArrayError(f"the size of {element_type} elements depends on their contents")
    if count < 0:
        raise ArrayError(f"{count} elements of type {element_type}: the number of elements is negative")
    if not element_type.packed:
        return count * (element_type.bits // 8)
    layout = _get_layout(element_type)
    if layout.whole:
        return -(-count // layout.count) * layout.size
    return -(-count * element_type.bits // 8)


def unpack(
    data: bytes | memoryview | _Bytes, element_type: ElementType, shape: Sequence[int]
) -> npt.NDArray[Any]:
    """Return stored elements as an array with one element per item.

    For types of at least 8 bits, this is a view of ``data``, and read-only if ``data`` is. For types without
    a NumPy dtype (u1, u3, u6, nf4), the items are the codes in uint8.

    Raises:
        ArrayError: ``data`` does not have the number of bytes of ``shape``, a dimension is negative, or the
            type is string.

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
    expected = compute_packed_size(element_type, count)
    if raw.size != expected:
        raise ArrayError(
            f"{count} elements of type {element_type} have {expected} bytes, but there are {raw.size} bytes"
        )
    if not element_type.packed:
        return raw.view(element_type.numpy).reshape(shape)
    codes = _unpack_codes(raw, _get_layout(element_type), element_type.bits)[:count]
    return codes.view(element_type.numpy).reshape(shape)


def pack(array: npt.NDArray[Any], element_type: ElementType) -> bytes:
    """Return the stored bytes of an array of any shape and strides; the inverse of :func:`unpack`.

    Raises:
        ArrayError: the dtype is not ``element_type.numpy``, a code in uint8 has too many bits, or the type is
            string.

    Examples:
        >>> import numpy as np
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> pack(np.array([1, 0, 1], np.uint8), ELEMENT_TYPES["uint1"]).hex()
        'a0'
    """
    size = compute_packed_size(element_type, array.size)
    if array.dtype != element_type.numpy:
        raise ArrayError(
            f"an array of {element_type} elements must have dtype {element_type.numpy}, not {array.dtype}"
        )
    flat = np.ascontiguousarray(array).ravel()
    if not element_type.packed:
        return flat.tobytes()
    codes = flat.view(np.uint8)
    mask = (1 << element_type.bits) - 1
    if element_type.storage is not None and codes.size and int(codes.max()) > mask:
        raise ArrayError(
            f"code {int(codes.max())} does not fit into the {element_type.bits} bits of {element_type}"
        )
    return _pack_codes(codes & np.uint8(mask), _get_layout(element_type), element_type.bits)[:size].tobytes()


def _unpack_codes(raw: _Bytes, layout: _Layout, bits: int) -> _Bytes:
    groups = _pad_groups(raw, layout.size)
    if not layout.fields:
        stream = np.unpackbits(groups, bitorder="little").reshape(-1, bits)
        return np.packbits(stream, axis=1, bitorder="little")
    codes = np.zeros((groups.shape[0], layout.count), np.uint8)
    for field, index, byte, shift in _iter_fields(layout):
        codes[:, index] |= ((groups[:, byte] >> shift) & ((1 << field.width) - 1)) << field.low
    return codes.ravel()


def _pack_codes(codes: _Bytes, layout: _Layout, bits: int) -> _Bytes:
    groups = _pad_groups(codes, layout.count)
    if not layout.fields:
        stream = np.unpackbits(groups.reshape(-1, 1), axis=1, bitorder="little", count=bits)
        return np.packbits(stream, bitorder="little")
    raw = np.zeros((groups.shape[0], layout.size), np.uint8)
    for field, index, byte, shift in _iter_fields(layout):
        raw[:, byte] |= ((groups[:, index] >> field.low) & ((1 << field.width) - 1)) << shift
    return raw.ravel()


def _iter_fields(layout: _Layout) -> Iterator[tuple[_Field, int, int, int]]:
    """Yield each field of each element in a group, with the indices of element and byte, and the shift."""
    position = 0
    for field in layout.fields:
        for index in range(layout.count):
            byte, shift = divmod(position, 8)
            yield field, index, byte, 8 - field.width - shift if field.high_first else shift
            position += field.width


def _pad_groups(items: _Bytes, size: int) -> _Bytes:
    """Return the items in rows of ``size``. The last row is padded with zeros."""
    missing = -items.size % size
    if missing:
        items = np.concatenate([items, np.zeros(missing, np.uint8)])
    return items.reshape(-1, size)
