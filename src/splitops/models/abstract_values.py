"""What inference knows of a value in a model: element type, shape, and of small tensors the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.spec.elements.types import ElementType
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, dimension
from splitops.spec.sizes.ranges import hull
from splitops.splitting.binding import Fact
from splitops.splitting.inference import join_shapes

MAX_ELEMENTS: Final = 4096
"""Larger tensors are data, not sizes: their numbers are not followed."""

Entry = int | float | bool | Range | None
"""One number of a followed tensor; a :class:`Range` is a computed size, None is unknown."""

Value = npt.NDArray[Any]
"""The numbers of a tensor: of its own dtype where all are known, else an object array of :data:`Entry`."""


@dataclass(frozen=True, slots=True, eq=False)
class AbstractTensor:
    """What is known of a tensor.

    Attributes:
        type: its element type.
        shape: its shape; None is an unknown rank.
        elements: its numbers, as far as they are followed.
    """

    type: ElementType | None = None
    shape: Shape | None = None
    elements: Value | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractTensor) or (self.type, self.shape) != (other.type, other.shape):
            return False
        return _same(self.elements, other.elements)

    def __hash__(self) -> int:
        return hash((self.type, self.shape))

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.type or '?'}[{dims}]"

    def __repr__(self) -> str:
        return f"Tensor({self})"

    @property
    def is_complete(self) -> bool:
        """Whether every number of the tensor is known."""
        return self.elements is not None and (
            self.elements.dtype != object
            or all(isinstance(entry, int | float) for entry in self.elements.flat)
        )


@dataclass(frozen=True, slots=True)
class AbstractSequence:
    """What is known of a sequence of tensors.

    Attributes:
        element: what holds for every element.
        length: how many there are.
        axis: the axis, counted from the first, along which they were cut from one tensor; None where they
            were not, or where the axis is gone.
        total: their sizes along that axis together.
    """

    element: AbstractTensor = AbstractTensor()
    length: Dim = UNKNOWN
    axis: int | None = None
    total: Dim = UNKNOWN

    def __str__(self) -> str:
        return f"{self.length} x {self.element}"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is not a tensor and no sequence of tensors, such as an optional or a map.

    Attributes:
        type: its type in the format's own form, serialised.
        element: of an optional, what is known of its element if it has one.
    """

    type: bytes
    element: AbstractTensor | AbstractSequence | None = None

    def __str__(self) -> str:
        return "no tensor"


AbstractValue = AbstractTensor | AbstractSequence | Opaque | None
"""None is a value of which nothing is known, not even that it is a tensor."""

NOTHING: Final = AbstractTensor()


def fact(tensor: AbstractTensor, *, value: bool) -> Fact:
    """Return what binding needs to know of an input, its numbers included where asked."""
    numbers: Any = None
    if value and tensor.elements is not None and tensor.elements.ndim <= 1:
        numbers = tensor.elements.tolist()
        numbers = tuple(map(_number, numbers)) if isinstance(numbers, list) else _number(numbers)
    return Fact(tensor.type, tensor.shape, numbers)


def _number(entry: Any) -> int | float | None:
    return entry if isinstance(entry, int | float) else None


def partial_value(entries: Sequence[Entry] | Entry) -> Value:
    """Return entries as a value: a scalar, or a 1-D tensor."""
    if not isinstance(entries, Sequence):
        scalar = np.empty((), object)
        scalar[()] = entries
        return scalar
    array = np.empty(len(entries), object)
    array[:] = list(entries)
    return array


def value_of_shape(shape: Shape | None) -> Value | None:
    """Return the value of a tensor that holds a shape; an unknown size is an unknown entry."""
    if shape is None or len(shape) > MAX_ELEMENTS:
        return None
    return partial_value([None if dim == UNKNOWN else dim for dim in shape])


def join(left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """Return what holds for a value that is either of the two."""
    if isinstance(left, AbstractTensor) and isinstance(right, AbstractTensor):
        return AbstractTensor(
            left.type if left.type == right.type else None,
            join_shapes([left.shape, right.shape]),
            _join_values(left.elements, right.elements),
        )
    if isinstance(left, AbstractSequence) and isinstance(right, AbstractSequence):
        element, length = join(left.element, right.element), hull(left.length, right.length)
        assert isinstance(element, AbstractTensor)
        assert length is not None
        total = hull(left.total, right.total)
        assert total is not None
        return AbstractSequence(element, length, left.axis if left.axis == right.axis else None, total)
    if isinstance(left, Opaque) and isinstance(right, Opaque) and left.type == right.type:
        both = join(left.element, right.element)
        return Opaque(left.type, both if isinstance(both, AbstractTensor | AbstractSequence) else None)
    return left if left == right else None


def _same(left: Value | None, right: Value | None) -> bool:
    return left is right or (
        left is not None
        and right is not None
        and left.shape == right.shape
        and left.tolist() == right.tolist()
    )


def _join_values(left: Value | None, right: Value | None) -> Value | None:
    """Return the numbers on which two values agree; the others become unknown."""
    if left is None or right is None or left.shape != right.shape:
        return None
    if _same(left, right):
        return left
    pairs = zip(left.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True)
    return partial_value([a if a == b else None for a, b in pairs]).reshape(left.shape)


def meet(found: AbstractValue, stated: AbstractValue) -> AbstractValue:
    """Return what is known when two sources tell of one value; where they contradict, the first one rules."""
    if isinstance(found, AbstractTensor) and isinstance(stated, AbstractTensor):
        kind, shape = found.type or stated.type, meet_shapes(found.shape, stated.shape)
        same = kind is found.type and shape is found.shape
        return found if same else AbstractTensor(kind, shape, found.elements)
    if isinstance(found, AbstractSequence) and isinstance(stated, AbstractSequence):
        element = meet(found.element, stated.element)
        assert isinstance(element, AbstractTensor)
        return replace(found, element=element, length=_meet_dims(found.length, stated.length))
    return stated if found is None or found == NOTHING else found


def meet_shapes(found: Shape | None, stated: Shape | None) -> Shape | None:
    """Return the shape that two sources tell of; where they contradict, the first one rules."""
    if found is None:
        return stated
    if stated is None or len(found) != len(stated) or found == stated:
        return found
    return tuple(map(_meet_dims, found, stated))


def may_be(stated: Shape | None, found: Shape | None) -> bool:
    """Return whether a declared shape has anything in common with a found one; of an unknown rank it may."""
    if stated is None or found is None:
        return True
    if len(stated) != len(found):
        return False
    for left, right in zip(stated, found, strict=True):
        a = (left, left) if isinstance(left, int) else (left.lo, left.hi)
        b = (right, right) if isinstance(right, int) else (right.lo, right.hi)
        if (a[1] is not None and a[1] < b[0]) or (b[1] is not None and b[1] < a[0]):
            return False
    return True


def _meet_dims(found: Dim, stated: Dim) -> Dim:
    if isinstance(found, int):
        return found
    if isinstance(stated, int):
        inside = found.lo <= stated and (found.hi is None or stated <= found.hi)
        return stated if inside else found
    lo = max(found.lo, stated.lo)
    hi = found.hi if stated.hi is None else stated.hi if found.hi is None else min(found.hi, stated.hi)
    if hi is not None and hi < lo:
        return found
    return dimension(lo, hi, found.name or stated.name)


def with_sizes(known: AbstractValue, sizes: Mapping[str, int]) -> AbstractValue:
    """Return what is known once some symbols have turned out to have a size.

    Examples:
        >>> str(with_sizes(Tensor(None, (Range(name="N/2"), Range(name="M"))), {"N": 6}))
        '?[3, M]'
    """
    if not sizes:
        return known
    if isinstance(known, AbstractSequence):
        element = with_sizes(known.element, sizes)
        assert isinstance(element, AbstractTensor)
        length, total = _with_sizes((known.length, known.total), sizes)
        return replace(known, element=element, length=length, total=total)
    if isinstance(known, AbstractTensor) and known.shape is not None:
        return replace(known, shape=_with_sizes(known.shape, sizes))
    return known


def _with_sizes(shape: Shape, sizes: Mapping[str, int]) -> Shape:
    found = []
    for size in shape:
        value = symbols.evaluate(size.name, sizes) if isinstance(size, Range) and size.name else None
        found.append(size if value is None or value < 0 else value)
    return tuple(found)
