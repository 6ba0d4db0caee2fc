"""Values of ``Const`` layers: byte ranges of the ``.bin`` file, which are read when they are needed.

Numbers are stored unaligned and packed (see :mod:`splitops.spec.elements.packing`). Strings are stored as
OpenVINO packs them: the number of strings, a zero and the end of each string, as little-endian 32-bit
integers, followed by all strings in UTF-8.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from splitops.common.documents import MAX_RANK
from splitops.common.integers import INT32_MAX
from splitops.common.untrusted_files import read_range
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.shapes import compute_element_count
from splitops.spec.elements.packing import compute_packed_size, pack, unpack
from splitops.spec.elements.types import ElementType


class Weights:
    """The bytes of all constants: a ``.bin`` file, which stays open, or a buffer in memory.

    A file is not cached: each request reads its range again.
    """

    def __init__(self, source: BinaryIO | bytes) -> None:
        """Wrap a buffer or an open file."""
        self._source: BinaryIO | memoryview
        self.size: int
        """Size in bytes; for a file, its size when this object was made."""
        if isinstance(source, bytes):
            self._source = memoryview(source)
            self.size = len(source)
        else:
            self._source = source
            self.size = os.fstat(source.fileno()).st_size
        self._reading = threading.Lock()  # all threads share the position in the file

    def read(self, offset: int, size: int) -> memoryview:
        """Return ``size`` read-only bytes, starting at ``offset``."""
        if not 0 <= offset <= offset + size <= self.size:
            raise ModelError(
                f"bytes {offset} to {offset + size} are outside the {self.size} bytes of the weights"
            )
        if isinstance(self._source, memoryview):
            return self._source[offset : offset + size]
        with self._reading:
            return read_range(self._source, offset, size)


@dataclass(frozen=True, slots=True)
class Constant:
    """The value of a ``Const`` layer: ``size`` bytes of the weights, starting at ``offset``.

    Two constants with the same weights and range share their bytes, in memory and when they are written.
    """

    element_type: ElementType
    shape: tuple[int, ...]
    weights: Weights = field(repr=False)
    offset: int
    size: int

    @classmethod
    def from_array(cls, array: npt.NDArray[Any], element_type: ElementType) -> Constant:
        """Make a constant from an array whose dtype is ``element_type.numpy``."""
        content = encode(array, element_type)
        return cls(element_type, array.shape, Weights(content), 0, len(content))

    def check(self, where: Where) -> None:
        """Check that the range is inside the weights and has the size that the shape requires."""
        if len(self.shape) > MAX_RANK:
            raise ModelError(f"shape has more than {MAX_RANK} dimensions", where)
        count = compute_element_count(self.shape, self.element_type.bits, where)
        if self.offset + self.size > self.weights.size:
            raise ModelError(
                f"the constant needs bytes {self.offset} to {self.offset + self.size}, "
                f"but the weights have {self.weights.size} bytes",
                where,
            )
        expected = (
            4 * (count + 2) if self.element_type.bits == 0 else compute_packed_size(self.element_type, count)
        )
        # OpenVINO writes one byte for an empty constant.
        exact = self.element_type.bits and (self.size, expected) != (1, 0)
        if self.size < expected or (self.size > expected and exact):
            raise ModelError(
                f"size = {self.size}, but shape {list(self.shape)} of {self.element_type.openvino} "
                f"requires {expected}",
                where,
            )

    def read_data(self, where: Where) -> memoryview:
        """Read the bytes of the constant from the weights."""
        try:
            return self.weights.read(self.offset, self.size)
        except ModelError as error:
            raise ModelError(error.message, where) from error

    def read_array(self, where: Where) -> npt.NDArray[Any]:
        """Check the constant and return it as a read-only array, if possible a view of weights in memory."""
        self.check(where)
        content = (
            self.read_data(where) if 0 not in self.shape or not self.element_type.bits else memoryview(b"")
        )
        if self.element_type.bits == 0:
            array = _decode_strings(content, self.shape, where)
        elif self.element_type.name == "bool":
            # NumPy's bools are 0 and 1. OpenVINO interprets any other byte as true.
            array = np.asarray(np.frombuffer(content, np.uint8) != 0).reshape(self.shape)
        else:
            array = unpack(content, self.element_type, self.shape)
            if not array.flags.aligned and array.dtype.isbuiltin != 1:
                array = array.copy()  # ml_dtypes requires aligned items
        array.flags.writeable = False
        return array


def encode(array: npt.NDArray[Any], element_type: ElementType) -> bytes:
    """Return the bytes that a ``.bin`` file stores for an array.

    Examples:
        >>> import numpy as np
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> encode(np.array(["ab", ""], object), ELEMENT_TYPES["string"]).hex(" ", -4)
        '02000000 00000000 02000000 02000000 6162'
    """
    if element_type.bits:
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        return pack(array, element_type)
    texts: list[bytes] = []
    for value in array.reshape(-1).tolist():
        if not isinstance(value, str | bytes):
            raise ModelError(f"a string constant has a value of type {type(value).__name__}")
        texts.append(value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape"))
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    if ends[-1] > INT32_MAX or len(texts) > INT32_MAX:
        raise ModelError(f"strings of {ends[-1]} bytes are more than a constant can store")
    return np.array([len(texts), *ends.tolist()], "<i4").tobytes() + b"".join(texts)


def _decode_strings(content: memoryview, shape: tuple[int, ...], where: Where) -> npt.NDArray[Any]:
    count = compute_element_count(shape, 0, where)
    header = 4 * (count + 2)
    numbers = np.frombuffer(content[:header], "<i4").astype(np.int64)
    ends = numbers[1:]
    text = content[header:]
    if numbers[0] != count:
        raise ModelError(f"the constant has {numbers[0]} strings, but its shape has {count}", where)
    if ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(text):
        raise ModelError("the string offsets are not ascending, or exceed the size of the constant", where)
    array = np.empty(count, object)
    # Bytes that are not UTF-8 are written back unchanged.
    array[:] = [
        bytes(text[begin:end]).decode("utf-8", "surrogateescape")
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    return array.reshape(shape)
