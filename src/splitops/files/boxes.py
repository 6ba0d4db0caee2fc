"""Arrays that a library reads box by box (one slice per axis), as sources of bytes in row-major order.

Compressed or chunked data has no byte ranges to copy. Unless it is copied chunk by chunk, such an array is
unpacked into the staging folder, and is split there as a plain array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.errors import shown
from splitops.files.extents import coalesce_axes, compute_strides
from splitops.files.sources import ByteRange, Source, reading

Box = tuple[slice, ...]


def iter_boxes(shape: Sequence[int], chunk: Sequence[int]) -> Iterator[Box]:
    """Yield the boxes of a grid of chunks. Boxes at the end of an axis are clipped to ``shape``.

    Examples:
        >>> list(iter_boxes((3, 2), (2, 2)))
        [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 3, None), slice(0, 2, None))]
    """
    axes = [
        [slice(at, min(at + step, size)) for at in range(0, size, max(1, step))]
        for size, step in zip(shape, chunk, strict=True)
    ]
    yield from itertools.product(*axes)


class BoxedArray(Source):
    """The bytes of an array in row-major order, as a source. A library reads the elements."""

    def __init__(
        self,
        file: Source,
        label: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunk: tuple[int, ...],
        load: Callable[[Box], Any],
    ) -> None:
        """Describe the array ``label`` of a file. ``load`` reads a box, fastest if its shape is ``chunk``."""
        self.path, self.size = file.path, math.prod(shape) * dtype.itemsize
        self.name = f"{file.name}: {shown(label)}"
        self.shape = shape
        self._file, self._label, self._dtype, self._chunk, self._load = file, label, dtype, chunk, load

    def read(self, offset: int, size: int) -> bytes:
        """Load the rows that contain the requested bytes, and return only these bytes."""
        row = max(1, self.size // self.shape[0]) if self.shape else self.size
        first, end = offset // row, -(-(offset + size) // row)
        found = self._load_box((slice(first, end),) if self.shape else ()).tobytes()
        return found[offset - first * row :][:size]

    def read_identity(self) -> list[Any]:
        """See :class:`Source`."""
        return [*self._file.read_identity(), self._label]

    def copy_to(self, file: Any, stretches: Sequence[ByteRange]) -> None:
        """Write the whole array in row-major order, chunk by chunk. ``stretches`` is ignored."""
        file.truncate(self.size)
        steps = compute_strides(self.shape)
        for box in iter_boxes(self.shape, self._chunk):
            data = self._load_box(box)
            begin = sum(side.start * step for side, step in zip(box, steps, strict=True))
            walks, run = coalesce_axes(zip(data.shape, steps, compute_strides(data.shape), strict=True))
            places = itertools.product(*(range(0, count * step, step) for count, step, _ in walks))
            for place, elements in zip(places, data.reshape(-1, run), strict=True):
                file.seek((begin + sum(place)) * self._dtype.itemsize)
                file.write(elements.tobytes())

    def _load_box(self, box: Box) -> npt.NDArray[Any]:
        with reading(self.name):
            return np.ascontiguousarray(np.asarray(self._load(box), self._dtype))
