"""Runs plans on arrays, and single operators as a model's node states them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops import native
from splitops.backends import Backend, backend_of, find_backend
from splitops.binding import Fact, bind, fact_of, foreign_type
from splitops.elements.types import ElementType
from splitops.errors import ArrayError, Where, shown
from splitops.operators.schema import OperatorSchema
from splitops.planning import SplitPlan, SplitRequest, plan_request
from splitops.sizes.dims import UNKNOWN, Dim, Range

__all__ = ["Plan", "as_array", "data_fact", "evaluate", "execute", "make_plan", "observing", "read_only"]


_T = TypeVar("_T")


@dataclass(frozen=True)
class Plan(SplitPlan, native.Called):
    """A split that is bound once and run on any number of arrays of one shape.

    Attributes:
        shape: shape of the data.
        axis: the split axis, in [0, rank).
        offsets: where each part begins on the axis.
        sizes: the size of each part on the axis.
        squeeze: whether the parts, of size 1, lose the axis.
        sequence: whether the parts are given as a list (SplitToSequence) instead of a tuple.

    Examples:
        >>> import numpy as np, splitops
        >>> plan = splitops.plan("Split", shape=(6, 4), axis=0, split=[2, 4], opset=18)
        >>> plan.sizes, plan.offsets, plan.shapes
        ((2, 4), (0, 2), ((2, 4), (4, 4)))
        >>> [part.shape for part in plan(np.zeros((6, 4)))]
        [(2, 4), (4, 4)]
    """

    sequence: bool = False

    def splitter(self) -> native.Splitter:
        """Return the plan compiled for NumPy arrays; it is made once.

        Raises:
            ValueError: no array can have the plan's shape.
        """
        compiled: native.Splitter | None = self._call
        if compiled is None:
            compiled = native.Splitter(
                self.shape, self.axis, self.offsets, self.sizes, self.squeeze, listed=self.sequence
            )
            object.__setattr__(self, "_call", compiled)  # a cache: the plan itself stays as it is
        return compiled

    def __call__(
        self, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None
    ) -> tuple[Any, ...] | list[Any]:
        """Split data of the plan's shape, of any element type.

        Args:
            data: array of shape :attr:`shape`.
            copy: None or False gives views of ``data``; True gives independent contiguous parts.
            out: arrays of the exact shapes and dtype; they are filled and returned.

        Raises:
            ArrayError: another shape than the plan's, or ``out`` that does not fit or overlaps.
        """
        if type(data) is np.ndarray:
            try:
                splitter: native.Splitter = self._call or self.splitter()
                if out is None:
                    return splitter.copies(data) if copy else splitter(data)
                if (copy is None or copy) and (filled := splitter.fill(data, out)) is not None:
                    return filled
            except ValueError:  # another shape: the general way says so
                pass
        parts = execute(self, data, copy=copy, out=out)
        return list(parts) if self.sequence else parts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shape, self.axis, self.offsets, self.sizes, self.squeeze, self.sequence)


def make_plan(request: SplitRequest) -> Plan:
    """Plan a request for running."""
    plan = plan_request(request)
    return Plan(plan.shape, plan.axis, plan.offsets, plan.sizes, plan.squeeze, request.schema.gives_sequence)


def execute(
    plan: SplitPlan,
    data: Any,
    *,
    copy: bool | None = None,
    out: Sequence[Any] | None = None,
    backend: Backend | None = None,
) -> tuple[Any, ...]:
    """Split an array by a plan: views, or copies, or filled buffers.

    Args:
        plan: the plan.
        data: array of the plan's shape.
        copy: None or False for views, True for copies.
        out: buffers to fill.
        backend: that of the data, where the plan was made for this very array; None finds it and checks
            the shape.

    Raises:
        ArrayError: the array has another shape than the plan, no backend knows it, or ``out`` does not
            fit or overlaps; nothing is written then.
    """
    if backend is None:
        data = as_array(data)
        backend = backend_of(data)
        shape = backend.shape(data)
        if shape != plan.shape:
            raise ArrayError(f"data has shape {shape}, but the plan is for shape {plan.shape}")
    if out is not None:
        if copy is not None and not copy:
            raise ArrayError("out= fills buffers with copies, but copy=False forbids them")
        try:
            buffers = tuple(out)
        except TypeError as error:
            raise ArrayError(f"out is a {type(out).__name__}, but it must be a sequence of arrays") from error
        backend.fill(plan, data, buffers)
        return buffers
    return backend.copies(plan, data) if copy else backend.views(plan, data)


def as_array(data: Any, what: str = "data") -> Any:
    """Return the data as an array, where NumPy can make one without losing anything.

    Arrays of every library stay as they are. Nested lists and numbers become NumPy arrays, and so do a
    ``range`` and what hands its memory to NumPy: ``array.array``, ``memoryview`` and other buffers, objects
    with ``__array__``. Anything else is returned as it is.

    Args:
        data: anything.
        what: how messages call it.

    Raises:
        ArrayError: lists of unequal lengths, or values that no element type holds together.
    """
    listed = isinstance(data, list | tuple | int | float | complex | str | np.generic)
    if not listed and (find_backend(type(data)) is not None or not _is_readable(data)):
        return data
    try:
        array = np.asarray(data)
    except Exception as error:  # an object's own __array__ may raise anything
        raise ArrayError(f"{what} cannot be made an array: {error}") from error
    if listed and array.dtype.kind in "fcUSO":
        _check_kept(array, data, what)
    return array


def _is_readable(data: Any) -> bool:
    """Return whether an object offers its values to NumPy in a way that is more than being iterable."""
    if isinstance(data, range) or any(hasattr(data, name) for name in _OFFERS):
        return True
    try:
        memoryview(data)
    except TypeError:
        return False
    return not isinstance(data, bytes)  # a string, as ONNX has it


_OFFERS: Final = ("__array__", "__array_interface__", "__array_struct__")


def _check_kept(array: npt.NDArray[Any], data: Any, what: str) -> None:
    """Refuse an array that does not have the very values that it was made of.

    NumPy rounds large integers beside floats, writes numbers beside strings as strings and drops the NULs
    that end a string.
    """
    if array.dtype == object:
        raise ArrayError(f"{what} cannot be made an array: its values have no element type in common")
    given = np.asarray(data, object).ravel().tolist()
    for one, other in zip(given, array.ravel().tolist(), strict=True):
        if one != other and one == one:
            raise ArrayError(f"{what} cannot be made an array: {shown(one)} would become {shown(other)}")


def data_fact(data: Any, shape: tuple[Any, ...] | None = None) -> Fact:
    """Return what an array of any library says of the data input.

    Args:
        data: the array.
        shape: its sizes, where they are known better than the array tells.

    Raises:
        ArrayError: no backend knows the array.
    """
    backend = backend_of(data)
    element_type = backend.element_type(data) or foreign_type(backend.dtype_name(data))
    return Fact(element_type, tuple(map(_dimension, backend.shape(data) if shape is None else shape)))


def read_only(value: _T) -> _T:
    """Return a new read-only view of an array, and of every array in a list; anything else as it is.

    Whoever is given a view of what belongs to another cannot change it by accident; ``np.array(view)`` is a
    copy of one's own.

    Examples:
        >>> import numpy as np
        >>> data = np.zeros(2)
        >>> read_only(data).flags.writeable, data.flags.writeable
        (False, True)
    """
    if isinstance(value, list):
        return [read_only(item) for item in value]  # type: ignore[return-value]
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _dimension(size: Any) -> Dim:
    """Return a size as binding takes it; a library's symbolic integer is a symbol."""
    if isinstance(size, int):
        return size
    return UNKNOWN if size is None else Range(name=str(size))


def evaluate(
    schema: OperatorSchema,
    attributes: Mapping[str, Any],
    inputs: Sequence[npt.NDArray[Any] | None],
    *,
    outputs: int | None = None,
    where: Where | None = None,
    types: Sequence[ElementType | None] | None = None,
) -> tuple[npt.NDArray[Any], ...]:
    """Run one operator as a model's node states it.

    Args:
        schema: the operator version.
        attributes: the node's attributes by name: integers, or sequences of integers.
        inputs: the input arrays in the operator's order; None is an absent one.
        outputs: number of outputs that the node declares; None where nothing is declared.
        where: the place in a model, for messages.
        types: element types of inputs that their dtypes cannot tell, such as OpenVINO's nf4 in uint8.

    Returns:
        The parts as views: one for each output, or the elements of the sequence.

    Raises:
        RuleError: a rule is broken; see :func:`splitops.binding.bind`.
        ModelError: a required input is absent.

    Examples:
        >>> import numpy as np
        >>> from splitops.operators import schema
        >>> parts = evaluate(schema("Split", 11), {"split": [1, 2]}, [np.arange(3.0)], outputs=2)
        >>> [part.tolist() for part in parts]
        [[0.0], [1.0, 2.0]]
    """
    facts: list[Fact | None] = []
    for index, array in enumerate(inputs):
        fact = None if array is None else fact_of(array, value=index > 0)
        stated = types[index] if types is not None and index < len(types) else None
        if fact is not None and stated is not None:
            fact = replace(fact, type=stated)
        facts.append(fact)
    request = bind(schema, attributes, facts, outputs=outputs, where=where).request()
    plan = plan_request(request)
    observer = _OBSERVER.get()
    if observer is not None:
        observer(request, plan)
    return execute(plan, inputs[0])


Observer = Callable[[SplitRequest, SplitPlan], None]
_OBSERVER: Final[ContextVar[Observer | None]] = ContextVar("observer", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show every split that :func:`evaluate` makes in the block, and in its context alone, to a function.

    Args:
        observer: called with the request and its plan, before the data are split.
    """
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
