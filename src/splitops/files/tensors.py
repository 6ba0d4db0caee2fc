"""What a format says of the tensors in a file: names, types, shapes and where their bytes are."""

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
    """The least that a file can be cut into: so many neighbouring elements in so many bytes.

    One element for most types; two of 4 bits are a byte, a quantised block of GGUF may be 32 in 18 bytes.
    """

    elements: int
    bytes: int


BYTE: Final = Unit(1, 1)


def unit_of(element_type: ElementType) -> Unit:
    """Return the unit of an element type of a fixed width, see :mod:`splitops.spec.elements.packing`.

    Examples:
        >>> from splitops.spec.elements.types import ELEMENT_TYPES
        >>> [unit_of(ELEMENT_TYPES[name]) for name in ("float32", "uint4", "uint3")]
        [Unit(elements=1, bytes=4), Unit(elements=2, bytes=1), Unit(elements=8, bytes=3)]
    """
    common = math.gcd(element_type.bits, 8)
    return Unit(8 // common, element_type.bits // common)


class StoredTensor(NamedTuple):
    """A tensor whose bytes lie in one stretch of a file.

    Attributes:
        name: its name in the file; empty where the format has none.
        shape: its shape.
        code: the format's own name of its type; what the tensors of one merge must share.
        unit: the least that it can be cut into.
        offset: where its bytes begin.
        size: how many bytes they are.
        element_type: its type for the operators' rules; None where no operator has a type like it.
        dtype: of arrays that its elements are read into; None where no array holds them.
        file: which of the contents' sources holds them.
        fortran: whether the first index varies fastest.
        chunks: the shape of what its format can read and write at a time; None where that is any bytes.
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

    def in_file(self, file: int) -> StoredTensor:
        """Return it as of another file."""
        return tuple.__new__(StoredTensor, (*self[:8], file, *self[9:]))

    @property
    def label(self) -> str:
        """Its name for a message."""
        return f"tensor {shown(self.name)}" if self.name else "the array"

    @property
    def both_orders(self) -> bool:
        """Whether row-major and Fortran order are the same for this shape."""
        return 0 in self.shape or sum(size > 1 for size in self.shape) <= 1


def column(tensors: Iterable[StoredTensor], field: str) -> Iterator[Any]:
    """Yield a field of many tensors: three times as fast as the attribute of each."""
    return map(itemgetter(StoredTensor._fields.index(field)), tensors)


def stretches_of(tensors: Sequence[StoredTensor]) -> Table:
    """Return where the bytes of tensors are: of each a row of the file, the offset and the size."""
    columns = [np.fromiter(column(tensors, f), np.int64, len(tensors)) for f in ("file", "offset", "size")]
    return np.column_stack(columns)


def numbered(keys: Iterable[Hashable]) -> tuple[Table, list[int]]:
    """Return a number for each key, equal ones alike, and the position of the first of each number.

    Examples:
        >>> [part.tolist() for part in map(np.array, numbered("abac"))]
        [[0, 1, 0, 2], [0, 1, 3]]
    """
    every = list(keys)
    known = {key: number for number, key in enumerate(dict.fromkeys(every))}
    numbers = np.fromiter(map(known.__getitem__, every), np.int64, len(every))
    return numbers, np.unique(numbers, return_index=True)[1].tolist()


def array_tensor(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], code: str, **other: Any
) -> StoredTensor:
    """Return a tensor whose elements are as in an array of NumPy, with other fields where they are given."""
    # A type that no operator takes breaks their own rule on types.
    kind = element_type_of(dtype) or ElementType(str(dtype), bits=0)
    unit, size = Unit(1, dtype.itemsize), math.prod(shape) * dtype.itemsize
    return StoredTensor(name, shape, code, unit, 0, size, kind, dtype)._replace(**other)


def packed_tensor(
    name: str, shape: tuple[int, ...], element_type: ElementType, place: tuple[int, int], file: int = 0
) -> StoredTensor:
    """Return a tensor at an offset and of a size, packed as :mod:`splitops.spec.elements.packing` says."""
    unit = unit_of(element_type) if element_type.bits else BYTE
    dtype = None if element_type.packed or not element_type.bits else element_type.numpy
    return StoredTensor(name, shape, str(element_type), unit, *place, element_type, dtype, file)


def row_major(tensor: StoredTensor, code: str | None, of: str, *, swapped: bool = False) -> StoredTensor:
    """Return a tensor as a format stores it that calls its type by this code, and may have swapped bytes.

    An error where the format has no such type (None) or not its order.
    """
    if code is None:
        raise FileError(f"{tensor.label} is of type {tensor.code}, which {of} does not have")
    if not swapped and tensor.dtype is not None and not tensor.dtype.isnative:
        raise FileError(f"{tensor.label} is big-endian ({tensor.code}), which {of} does not have")
    if tensor.fortran and not tensor.both_orders:
        raise FileError(f"{tensor.label} is in Fortran order, which {of} does not have")
    return tensor._replace(code=code, fortran=False)


def part_extents(tensor: StoredTensor, plan: SplitPlan, places: Sequence[tuple[int, int]]) -> list[Extent]:
    """Return the extents of the parts of a tensor to places (target, offset); an empty part has none.

    A cut through a unit of the tensor is an error.
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
        # The last unit of a tensor may be not full; the last one of a row must be.
        if end * step % unit and (end < size or rows > 1):
            multiple = unit // math.gcd(unit, step)
            raise FileError(
                f"{tensor.label}: a cut at {end} of axis {plan.axis} goes through a unit of {unit} "
                f"{tensor.code} elements in {tensor.unit.bytes} bytes: "
                + (
                    f"in a shape like {brief(plan.shape)} no cut along this axis falls between units"
                    if size * step % unit and rows > 1
                    else f"cut at multiples of {multiple}"
                )
            )


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Let Python's collector rest: it would look at a growing table of 100,000 tensors again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
