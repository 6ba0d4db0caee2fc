"""Abstract values for shape inference: element type, shape, and the elements of small tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.spec.elements.types import ElementType
from splitops.spec.sizes import names as symbols
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape, make_dim
from splitops.spec.sizes.ranges import hull
from splitops.splitting.binding import Fact
from splitops.splitting.inference import join_shapes

MAX_ELEMENTS: Final = 4096
"""Maximum size of a tensor whose elements are tracked. Larger tensors are data, not shapes."""

Entry = int | float | bool | Range | None
"""An element of a tracked tensor: a number, a computed size as a :class:`Range`, or None if unknown."""

Value = npt.NDArray[Any]
"""Elements of a tensor: an array of its dtype or, if some are unknown, an object array of :data:`Entry`."""


@dataclass(frozen=True, slots=True, eq=False)
class AbstractTensor:
    """The abstract value of a tensor.

    Attributes:
        type: element type; None if unknown.
        shape: shape; None if the rank is unknown.
        elements: elements; None if they are not tracked.
    """

    type: ElementType | None = None
    shape: Shape | None = None
    elements: Value | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractTensor) or (self.type, self.shape) != (other.type, other.shape):
            return False
        return _is_same_value(self.elements, other.elements)

    def __hash__(self) -> int:
        return hash((self.type, self.shape))

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.type or '?'}[{dims}]"

    def __repr__(self) -> str:
        return f"Tensor({self})"

    @property
    def is_complete(self) -> bool:
        """Whether every element of the tensor is known."""
        return self.elements is not None and (
            self.elements.dtype != object
            or all(isinstance(entry, int | float) for entry in self.elements.flat)
        )

    def to_array(self) -> Value | None:
        """Return the elements in the dtype of the element type, or None if it or an element is unknown."""
        if self.type is None or self.elements is None or not self.is_complete:
            return None
        return self.elements.astype(self.type.numpy, copy=False)


@dataclass(frozen=True, slots=True)
class AbstractSequence:
    """The abstract value of a sequence of tensors.

    Attributes:
        element: abstract value that contains every element.
        length: number of elements.
        axis: non-negative axis along which the elements were split from one tensor; None if they were not, or
            if they do not have the axis.
        total: sum of the sizes of the elements along that axis.
    """

    element: AbstractTensor = AbstractTensor()
    length: Dim = UNKNOWN
    axis: int | None = None
    total: Dim = UNKNOWN

    def __str__(self) -> str:
        return f"{self.length} x {self.element}"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is neither a tensor nor a sequence of tensors, such as an optional or a map.

    Attributes:
        type: the type as the model file stores it, serialised.
        element: abstract value of the element of an optional.
    """

    type: bytes
    element: AbstractTensor | AbstractSequence | None = None

    def __str__(self) -> str:
        return "no tensor"


AbstractValue = AbstractTensor | AbstractSequence | Opaque | None
"""An abstract value; None if nothing is known, not even whether it is a tensor."""

NOTHING: Final = AbstractTensor()


def to_fact(tensor: AbstractTensor, *, value: bool) -> Fact:
    """Convert an abstract tensor to a :class:`Fact`, with its elements (rank 0 or 1) if ``value`` is set."""
    numbers: Any = None
    if value and tensor.elements is not None and tensor.elements.ndim <= 1:
        numbers = tensor.elements.tolist()
        numbers = tuple(map(_to_number, numbers)) if isinstance(numbers, list) else _to_number(numbers)
    return Fact(tensor.type, tensor.shape, numbers)


def _to_number(entry: Any) -> int | float | None:
    return entry if isinstance(entry, int | float) else None


def make_partial_value(entries: Sequence[Entry] | Entry) -> Value:
    """Return an object array of ``entries``, the elements of a scalar or 1-D tensor."""
    if not isinstance(entries, Sequence):
        scalar = np.empty((), object)
        scalar[()] = entries
        return scalar
    array = np.empty(len(entries), object)
    array[:] = list(entries)
    return array


def make_shape_value(shape: Shape | None) -> Value | None:
    """Return a shape as the elements of a 1-D tensor, or None if its rank is unknown or too large."""
    if shape is None or len(shape) > MAX_ELEMENTS:
        return None
    return make_partial_value([None if dim == UNKNOWN else dim for dim in shape])


def join(left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """Return an abstract value that contains both ``left`` and ``right``."""
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


def _is_same_value(left: Value | None, right: Value | None) -> bool:
    return left is right or (
        left is not None
        and right is not None
        and left.shape == right.shape
        and left.tolist() == right.tolist()
    )


def _join_values(left: Value | None, right: Value | None) -> Value | None:
    """Return the elements, with None for those that differ.

    Return None if ``left`` or ``right`` is None, or if their shapes differ.
    """
    if left is None or right is None or left.shape != right.shape:
        return None
    if _is_same_value(left, right):
        return left
    pairs = zip(left.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True)
    return make_partial_value([a if a == b else None for a, b in pairs]).reshape(left.shape)


def meet(found: AbstractValue, declared: AbstractValue) -> AbstractValue:
    """Combine an inferred and a declared abstract value. If they conflict, ``found`` is preferred."""
    if isinstance(found, AbstractTensor) and isinstance(declared, AbstractTensor):
        kind, shape = found.type or declared.type, meet_shapes(found.shape, declared.shape)
        same = kind is found.type and shape is found.shape
        return found if same else AbstractTensor(kind, shape, found.elements)
    if isinstance(found, AbstractSequence) and isinstance(declared, AbstractSequence):
        element = meet(found.element, declared.element)
        assert isinstance(element, AbstractTensor)
        return replace(found, element=element, length=_meet_dims(found.length, declared.length))
    return declared if found is None or found == NOTHING else found


def meet_shapes(found: Shape | None, declared: Shape | None) -> Shape | None:
    """Combine an inferred and a declared shape. If ranks or sizes conflict, ``found`` is preferred."""
    if found is None:
        return declared
    if declared is None or len(found) != len(declared) or found == declared:
        return found
    return tuple(map(_meet_dims, found, declared))


def may_be(declared: Shape | None, found: Shape | None) -> bool:
    """Return whether one tensor can match both the declared and the found shape. None matches every shape."""
    if declared is None or found is None:
        return True
    if len(declared) != len(found):
        return False
    for left, right in zip(declared, found, strict=True):
        a = (left, left) if isinstance(left, int) else (left.lo, left.hi)
        b = (right, right) if isinstance(right, int) else (right.lo, right.hi)
        if (a[1] is not None and a[1] < b[0]) or (b[1] is not None and b[1] < a[0]):
            return False
    return True


def _meet_dims(found: Dim, declared: Dim) -> Dim:
    if isinstance(found, int):
        return found
    if isinstance(declared, int):
        inside = found.lo <= declared and (found.hi is None or declared <= found.hi)
        return declared if inside else found
    lo = max(found.lo, declared.lo)
    hi = found.hi if declared.hi is None else declared.hi if found.hi is None else min(found.hi, declared.hi)
    if hi is not None and hi < lo:
        return found
    return make_dim(lo, hi, found.name or declared.name)


def substitute_sizes(known: AbstractValue, sizes: Mapping[str, int]) -> AbstractValue:
    """Replace symbolic sizes in the shapes of an abstract value with the numbers that follow from ``sizes``.

    The length and the total of a sequence are replaced, too, but not tracked elements of a tensor.

    Examples:
        >>> str(substitute_sizes(AbstractTensor(None, (Range(name="N/2"), Range(name="M"))), {"N": 6}))
        '?[3, M]'
    """
    if not sizes:
        return known
    if isinstance(known, AbstractSequence):
        element = substitute_sizes(known.element, sizes)
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
