"""Raw bytes: one array whose type and shape the caller declares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitops.errors import ArrayError, FileError, shown
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import Source
from splitops.files.streams import Stream, resolve_size
from splitops.files.tensors import StoredTensor, make_packed_tensor
from splitops.spec.elements.packing import compute_packed_size
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Raw bytes that are read as one array.

    Attributes:
        shape: shape of the array. One size may be -1; it is computed from the size of the file.
        element_type: element type, packed as in :mod:`splitops.spec.elements.packing`.
        offset: offset of the array in the file. Bytes before and after the array are ignored.
    """

    shape: tuple[int, ...]
    element_type: ElementType
    offset: int = 0

    name = "raw"
    suffixes = (".bin",)

    def read(self, source: Source) -> Contents:
        """See :class:`splitops.files.formats.Format`."""
        if -1 in self.shape and isinstance(source, Stream):
            raise FileError(f"{source.name}: the size of a compressed file is unknown: set all sizes, not -1")
        shape = self._shape_in(source)
        try:
            size = compute_packed_size(self.element_type, math.prod(shape))
        except ArrayError as error:
            raise FileError(f"{source.name}: {error.message}") from error
        if any(dim < 0 for dim in shape):  # the product of two of them is positive
            raise FileError(f"{source.name}: shape {shape} has a negative size")
        if self.offset < 0 or self.offset + size > resolve_size(source, self.offset + size, exact=False):
            raise FileError(
                f"{source.name} has {source.size} bytes, but {self.element_type} of shape {shape} at offset "
                f"{self.offset} ends at byte {self.offset + size}"
            )
        tensor = make_packed_tensor("", shape, self.element_type, (self.offset, size))
        return Contents(self, (tensor,), (source,))

    def _shape_in(self, source: Source) -> tuple[int, ...]:
        if -1 not in self.shape:
            return self.shape
        others = math.prod(size for size in self.shape if size != -1)
        bits = (source.size - self.offset) * 8
        if self.shape.count(-1) > 1 or not others or bits % max(1, others * self.element_type.bits):
            raise FileError(
                f"{source.name}: no size for the -1 in shape {self.shape} of {self.element_type} fits its "
                f"{source.size} bytes"
            )
        missing = bits // max(1, others * self.element_type.bits)
        return tuple(missing if size == -1 else size for size in self.shape)

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        """See :class:`splitops.files.formats.Format`."""
        return tensor

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        """See :class:`splitops.files.formats.Format`."""
        if len(tensors) != 1:
            raise FileError(f"{shown(name)} would have {len(tensors)} tensors; a file of raw bytes has one")
        return Layout((TargetFile(name, tensors[0].size),), make_places([(0, 0)]))


FORMAT: Final = RawFormat((-1,), ELEMENT_TYPES["uint8"])
"""Plain bytes, unless the caller sets another type and shape. Any tensor can be written as raw bytes."""
