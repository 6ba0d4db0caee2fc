"""Tensors as files store them: their names, types, shapes and byte ranges."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from splitops.errors import FileError, brief, shown
from splitops.files.extents import Extent, Table
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece that a tensor can be split into: a number of elements and their bytes.

    Most types have units of one element. Two 4-bit elements share a byte; a quantised block of GGUF may have
    32 elements in 18 bytes.
    """

    elements: int
    bytes: int


BYTE: Final = Unit(1, 1)


def get_unit(element_type: ElementType) -> Unit:
    """Return the unit of an element type of fixed width; see :mod:`splitops.spec.elements.packing`.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> [get_unit(ELEMENT_TYPES[name]) for name in ("float32", "uint4", "uint3")]
        [Unit(elements=1, bytes=4), Unit(elements=2, bytes=1), Unit(elements=8, bytes=3)]
    """
    common = math.gcd(element_type.bits, 8)
    return Unit(8 // common, element_type.bits // common)


class StoredTensor(NamedTuple):
    """A tensor whose bytes are one range of a source, usually a file.

    Attributes:
        name: name in the file; empty if the format has no names.
        shape: its shape.
        code: the format's name for the element type. All parts of a merge must have the same.
        unit: the smallest piece that it can be split into.
        offset: offset of its first byte.
        size: size in bytes.
        element_type: element type for the rules of operators; None if there is none, as for quantised blocks.
        dtype: dtype of arrays with its elements; None if they are packed or NumPy has none.
        file: index of its file in ``sources`` of :class:`~splitops.files.formats.Contents`.
        fortran: whether the first index varies fastest.
        chunks: shape of the boxes in which a library can copy it; None if it can only be copied as bytes.
    """

    name: str
    shape: tuple[int, ...]
    code: str
    unit: Unit
    offset: int
    size: int
    element_type: ElementType | None = None
    dtype: np.dtype[Any] | None = None
    file: int = 0
    fortran: bool = False
    chunks: tuple[int, ...] | None = None

    def move_to_file(self, file: int) -> StoredTensor:
        """Return the tensor with another file index."""
        return tuple.__new__(StoredTensor, (*self[:8], file, *self[9:]))

    @property
    def label(self) -> str:
        """Name of the tensor in messages."""
        return f"tensor {shown(self.name)}" if self.name else "the array"

    @property
    def both_orders(self) -> bool:
        """Whether row-major and Fortran order are the same for this shape."""
        return 0 in self.shape or sum(size > 1 for size in self.shape) <= 1


def iter_field(tensors: Iterable[StoredTensor], field: str) -> Iterator[Any]:
    """Yield a field of each tensor. This is three times as fast as attribute access."""
    return map(itemgetter(StoredTensor._fields.index(field)), tensors)


def locate_tensors(tensors: Sequence[StoredTensor]) -> Table:
    """Return a table with one row per tensor: file, offset and size."""
    columns = [
        np.fromiter(iter_field(tensors, f), np.int64, len(tensors)) for f in ("file", "offset", "size")
    ]
    return np.column_stack(columns)


def number_keys(keys: Iterable[Hashable]) -> tuple[Table, list[int]]:
    """Number the distinct keys. Return the number of each key, and the first index of each number.

    Examples:
        >>> [part.tolist() for part in map(np.array, number_keys("abac"))]
        [[0, 1, 0, 2], [0, 1, 3]]
    """
    every = list(keys)
    known = {key: number for number, key in enumerate(dict.fromkeys(every))}
    numbers = np.fromiter(map(known.__getitem__, every), np.int64, len(every))
    return numbers, np.unique(numbers, return_index=True)[1].tolist()


def make_array_tensor(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], code: str, **other: Any
) -> StoredTensor:
    """Describe a tensor that is stored like a NumPy array. ``other`` sets more fields of it."""
    # The type rules of the operators reject an unknown type.
    kind = element_type_of(dtype) or ElementType(str(dtype), bits=0)
    unit, size = Unit(1, dtype.itemsize), math.prod(shape) * dtype.itemsize
    return StoredTensor(name, shape, code, unit, 0, size, kind, dtype)._replace(**other)


def make_packed_tensor(
    name: str, shape: tuple[int, ...], element_type: ElementType, place: tuple[int, int], file: int = 0
) -> StoredTensor:
    """Describe a tensor at ``place`` (offset, size), packed as in :mod:`splitops.spec.elements.packing`."""
    unit = get_unit(element_type) if element_type.bits else BYTE
    dtype = None if element_type.packed or not element_type.bits else element_type.numpy
    return StoredTensor(name, shape, str(element_type), unit, *place, element_type, dtype, file)


def to_row_major(tensor: StoredTensor, code: str | None, of: str, *, swapped: bool = False) -> StoredTensor:
    """Describe a tensor for a row-major format. ``code`` is the format's name for the element type.

    Raises:
        FileError: the format, named ``of`` in messages, does not support the type (``code`` is None),
            big-endian elements (unless ``swapped`` is set) or Fortran order.
    """
    if code is None:
        raise FileError(f"{tensor.label} has type {tensor.code}, which {of} does not support")
    if not swapped and tensor.dtype is not None and not tensor.dtype.isnative:
        raise FileError(f"{tensor.label} is big-endian ({tensor.code}), which {of} does not support")
    if tensor.fortran and not tensor.both_orders:
        raise FileError(f"{tensor.label} is in Fortran order, which {of} does not support")
    return tensor._replace(code=code, fortran=False)


def make_part_extents(
    tensor: StoredTensor, plan: SplitPlan, places: Sequence[tuple[int, int]]
) -> list[Extent]:
    """Make the extents that copy the parts of a tensor to ``places`` (target, offset). Empty parts get none.

    Raises:
        FileError: a part begins or ends inside a unit of the tensor.
    """
    ahead, behind = plan.shape[: plan.axis], plan.shape[plan.axis + 1 :]
    if tensor.fortran:  # its bytes are those of the row-major tensor with the axes reversed
        ahead, behind = behind, ahead
    rows, step = math.prod(ahead), math.prod(behind)
    stride = tensor.size // rows if rows else 0
    made = []
    for offset, size, (target, place) in zip(plan.offsets, plan.sizes, places, strict=True):
        begin, end = offset * step, (offset + size) * step
        if not rows or begin == end:
            continue
        _reject_inside_of_units(tensor, plan, (offset, offset + size), step, rows)
        first = begin // tensor.unit.elements * tensor.unit.bytes
        whole = offset + size == plan.shape[plan.axis]
        run = (stride if whole else end // tensor.unit.elements * tensor.unit.bytes) - first
        made.append(Extent(tensor.file, tensor.offset + first, stride, target, place, run, run, rows))
    return made


def _reject_inside_of_units(
    tensor: StoredTensor, plan: SplitPlan, ends: tuple[int, int], step: int, rows: int
) -> None:
    unit, size = tensor.unit.elements, plan.shape[plan.axis]
    if unit == 1:
        return
    for end in ends:
        # Only the last unit of a tensor may be incomplete. If there are several rows, each has whole units.
        if end * step % unit and (end < size or rows > 1):
            multiple = unit // math.gcd(unit, step)
            raise FileError(
                f"{tensor.label}: a split at {end} of axis {plan.axis} is inside a unit of {unit} "
                f"{tensor.code} elements in {tensor.unit.bytes} bytes: "
                + (
                    f"tensors of shape {brief(plan.shape)} cannot be split along this axis"
                    if size * step % unit and rows > 1
                    else f"split at multiples of {multiple}"
                )
            )


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Disable garbage collection in the block: it would scan a growing list of 100,000 tensors repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
