"""The arguments of a call as a node has them: data, attributes, inputs, declared outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, find_backend, get_backend
from splitops.calls.hints import LENGTHS, of_one_length
from splitops.errors import ArrayError, LengthsError, Rule, rule_error, shown
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, exact_integer
from splitops.splitting.binding import Binding, Fact, bind, fact_of, foreign_type
from splitops.splitting.binding.rows import compile_row

ArrayT = TypeVar("ArrayT")
"""The type of an array, which is that of its parts."""
NestedLists = list[Any] | tuple[Any, ...] | range
"""Lists of numbers, of which a NumPy array is made."""

_INT64: Final = ELEMENT_TYPES["int64"]
_BOOL: Final = ELEMENT_TYPES["bool"]
_ONLY_INT: Final = frozenset({int})
# Tuples, as every call asks, and `a | b` is made anew each time.
_LISTS: Final = (list, tuple)
_NUMBERS: Final = (int, float, np.generic)
_LISTED: Final = (list, tuple, int, float, complex, str, np.generic)
_READABLE: Final = (int, float, str, list, tuple, range, np.ndarray, np.generic, Fact)


def bind_call(
    schema: OperatorSchema, data: Fact, arguments: Mapping[str, Any], unknown: Sequence[str] = ()
) -> Binding:
    """Bind one call: each argument becomes the attribute or input that the version has for it.

    None is an absent argument, and an entry None in lengths one that is not known. Of the names in
    ``unknown``, None says that they are given, but not known.
    """
    row = compile_row(schema)
    attributes: dict[str, Any] = {}
    inputs: list[Fact | None] = [data, *[None] * len(row.inputs)]
    outputs: int | None = None
    for name, value in arguments.items():
        if value is None and name not in unknown:
            continue
        value = _known(value)
        place = row.inputs.get(name)
        if name == row.outputs:
            outputs = _declared_outputs(schema, name, value)
        elif place is None or (name in row.attributes and not _is_floating(value)):
            # Of a name that the version does not have, binding says so.
            attributes[name] = _attribute(value) if name in row.attributes else value
        else:
            assert place.index is not None
            inputs[place.index] = _input(value, data.type if place.as_data else None)
    try:
        return bind(schema, attributes, inputs, outputs=outputs)
    except LengthsError as error:
        lengths = next((name for name in LENGTHS if type(arguments.get(name)) is int), None)
        if error.rule is not Rule.LENGTHS_RANK or lengths is None:
            raise
        raise of_one_length(schema, lengths, arguments[lengths], error) from None


def _known(value: Any) -> Any:
    """Return an argument as Python or NumPy has it; arrays of other libraries are read once."""
    if type(value) is int or (type(value) is list and _ONLY_INT.issuperset(map(type, value))):
        return value  # what nearly every call says
    if not isinstance(value, _READABLE):
        backend = find_backend(type(value))
        value = as_array(value, "axis or lengths") if backend is None else backend.to_numpy(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        value = value.tolist()
    if isinstance(value, _LISTS) and not all(isinstance(entry, _NUMBERS) for entry in value):
        return [_scalar(_known(entry)) for entry in value]
    return value


def _scalar(value: Any) -> Any:
    """Return an entry of a list as a number, where it is an array of rank 0."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _declared_outputs(schema: OperatorSchema, name: str, value: Any) -> int:
    count = exact_integer(value)
    if count is not None and count >= 1:
        return count
    got = f"{name} = {shown(value)}"
    raise rule_error(str(schema), Rule.PARTS_COUNT, got, "it must be a 64-bit integer >= 1", count=value)


def _numbers(entries: Sequence[Any]) -> tuple[int | float | None, ...]:
    """Return numbers as Python has them: an integer among floats may have no float of its value."""
    return tuple(
        None if entry is None else int(entry) if isinstance(entry, int | np.integer) else float(entry)
        for entry in entries
    )


def _is_floating(value: Any) -> bool:
    """Return whether lengths are floating-point, as the input of Split-1 wants them."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f")
    return isinstance(value, _LISTS) and any(isinstance(entry, float | np.floating) for entry in value)


def _attribute(value: Any) -> Any:
    if value is None or (isinstance(value, _LISTS) and any(entry is None for entry in value)):
        return _input(value, None)  # given, but not all of it is known
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _input(value: Any, floats: ElementType | None) -> Fact:
    """Return what an argument says of an input: integers are int64, floats of the type given for them."""
    if value is None:
        return Fact()
    if isinstance(value, Fact):
        return value
    if isinstance(value, np.ndarray):
        return fact_of(value, value=True)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fact(_INT64, (), value)
    if isinstance(value, _LISTS) and _ONLY_INT.issuperset(map(type, value)):
        return Fact(_INT64, (len(value),), tuple(value))
    if isinstance(value, list | tuple | range):
        known = [entry for entry in value if entry is not None]
        if any(isinstance(entry, bool | np.bool_) for entry in known):
            return Fact(_BOOL, (len(value),))
        if all(isinstance(entry, int | np.integer) for entry in known):
            return Fact(_INT64, (len(value),), _numbers(value))
        if all(isinstance(entry, int | float | np.integer | np.floating) for entry in known):
            return Fact(floats or ELEMENT_TYPES["float64"], (len(value),), _numbers(value))
    try:
        array = as_array(value)
    except ArrayError:
        return Fact(foreign_type("mixed"), (len(value),))
    if not isinstance(array, np.ndarray):
        return Fact(foreign_type(type(array).__name__), None)
    return fact_of(array, value=True)


def array_and_backend(data: Any) -> tuple[Any, Backend]:
    """Return the data as an array, and the backend of its library."""
    backend = find_backend(type(data))
    if backend is not None and not isinstance(data, np.generic):
        return data, backend
    data = as_array(data)
    return data, get_backend(data)


def as_array(data: Any, what: str = "data") -> Any:
    """Return the data as an array, where NumPy can make one without losing anything.

    Arrays of every library stay as they are. Nested lists and numbers become NumPy arrays, and so do a
    ``range`` and what hands its memory to NumPy: ``array.array``, ``memoryview`` and other buffers, objects
    with ``__array__``. Anything else is returned as it is.

    Lists of unequal lengths, and values that no element type holds together, are an ArrayError.
    """
    listed = isinstance(data, _LISTED)
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
    """Reject an array whose values differ from those that it was made from.

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

    ``shape`` has the sizes where they are known better than the array tells.
    """
    backend = get_backend(data)
    element_type = backend.get_element_type(data) or foreign_type(backend.get_dtype_name(data))
    sizes = backend.get_shape(data) if shape is None else shape
    exact = _ONLY_INT.issuperset(map(type, sizes))
    return Fact(element_type, tuple(sizes if exact else map(_dimension, sizes)))


def _dimension(size: Any) -> Dim:
    """Return a size as binding takes it; a library's symbolic integer is a symbol."""
    if isinstance(size, int):
        return size
    return UNKNOWN if size is None else Range(name=str(size))
