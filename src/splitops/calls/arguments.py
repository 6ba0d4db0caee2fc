"""Convert the arguments of a call to the form of a node: data, attributes, inputs, number of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, find_backend, get_backend
from splitops.calls.hints import LENGTHS, make_scalar_length_error
from splitops.errors import ArrayError, LengthsError, Rule, rule_error, shown
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, to_integer
from splitops.splitting.binding import Binding, Fact, bind, make_fact, make_unknown_type
from splitops.splitting.binding.compiled_schema import compile_schema

ArrayT = TypeVar("ArrayT")
"""Type of an array and of its parts."""
NestedLists = list[Any] | tuple[Any, ...] | range
"""Lists of numbers, which are converted to a NumPy array."""

_INT64: Final = ELEMENT_TYPES["int64"]
_BOOL: Final = ELEMENT_TYPES["bool"]
_ONLY_INT: Final = frozenset({int})
# Tuples, because `a | b` would be created again in every call.
_LISTS: Final = (list, tuple)
_NUMBERS: Final = (int, float, np.generic)
_LISTED: Final = (list, tuple, int, float, complex, str, np.generic)
_READABLE: Final = (int, float, str, list, tuple, range, np.ndarray, np.generic, Fact)


def bind_call(
    schema: OperatorSchema, data: Fact, arguments: Mapping[str, Any], unknown: Sequence[str] = ()
) -> Binding:
    """Bind a call: pass each argument as the attribute, input or number of outputs that it sets.

    None means that an argument is absent; in a list of lengths, it means an unknown length. For a name in
    ``unknown``, None means that the argument is set but its value is unknown.
    """
    compiled = compile_schema(schema)
    attributes: dict[str, Any] = {}
    inputs: list[Fact | None] = [data, *[None] * len(compiled.inputs)]
    outputs: int | None = None
    for name, value in arguments.items():
        if value is None and name not in unknown:
            continue
        value = _read_argument(value)
        place = compiled.inputs.get(name)
        if name == compiled.outputs:
            outputs = _read_outputs(schema, name, value)
        elif place is None or (name in compiled.attributes and not _is_floating(value)):
            # Binding rejects a name that the version does not have.
            attributes[name] = _make_attribute(value) if name in compiled.attributes else value
        else:
            assert place.index is not None
            inputs[place.index] = _make_input(value, data.type if place.as_data else None)
    try:
        return bind(schema, attributes, inputs, outputs=outputs)
    except LengthsError as error:
        lengths = next((name for name in LENGTHS if type(arguments.get(name)) is int), None)
        if error.rule is not Rule.LENGTHS_RANK or lengths is None:
            raise
        raise make_scalar_length_error(schema, lengths, arguments[lengths], error) from None


def _read_argument(value: Any) -> Any:
    """Convert an argument to Python or NumPy values. Arrays of other libraries become NumPy arrays."""
    if type(value) is int or (type(value) is list and _ONLY_INT.issuperset(map(type, value))):
        return value  # the usual case
    if not isinstance(value, _READABLE):
        backend = find_backend(type(value))
        value = as_array(value, "axis or lengths") if backend is None else backend.to_numpy(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        value = value.tolist()
    if isinstance(value, _LISTS) and not all(isinstance(entry, _NUMBERS) for entry in value):
        return [_unwrap_scalar(_read_argument(entry)) for entry in value]
    return value


def _unwrap_scalar(value: Any) -> Any:
    """Convert an array of rank 0 to a scalar. Return any other value unchanged."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _read_outputs(schema: OperatorSchema, name: str, value: Any) -> int:
    count = to_integer(value)
    if count is not None and count >= 1:
        return count
    got = f"{name} = {shown(value)}"
    raise rule_error(str(schema), Rule.PARTS_COUNT, got, "it must be a 64-bit integer >= 1", count=value)


def _to_numbers(entries: Sequence[Any]) -> tuple[int | float | None, ...]:
    """Convert numbers to Python's types. Integers among floats stay exact integers."""
    return tuple(
        None if entry is None else int(entry) if isinstance(entry, int | np.integer) else float(entry)
        for entry in entries
    )


def _is_floating(value: Any) -> bool:
    """Return whether lengths are floating-point, as Split-1 permits in its input."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f")
    return isinstance(value, _LISTS) and any(isinstance(entry, float | np.floating) for entry in value)


def _make_attribute(value: Any) -> Any:
    if value is None or (isinstance(value, _LISTS) and any(entry is None for entry in value)):
        return _make_input(value, None)  # set, but not completely known
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _make_input(value: Any, floats: ElementType | None) -> Fact:
    """Return the :class:`Fact` about an input.

    Python integers are int64. Lists with floats have type ``floats``, or float64 if it is None.
    """
    if value is None:
        return Fact()
    if isinstance(value, Fact):
        return value
    if isinstance(value, np.ndarray):
        return make_fact(value, value=True)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fact(_INT64, (), value)
    if isinstance(value, _LISTS) and _ONLY_INT.issuperset(map(type, value)):
        return Fact(_INT64, (len(value),), tuple(value))
    if isinstance(value, list | tuple | range):
        known = [entry for entry in value if entry is not None]
        if any(isinstance(entry, bool | np.bool_) for entry in known):
            return Fact(_BOOL, (len(value),))
        if all(isinstance(entry, int | np.integer) for entry in known):
            return Fact(_INT64, (len(value),), _to_numbers(value))
        if all(isinstance(entry, int | float | np.integer | np.floating) for entry in known):
            return Fact(floats or ELEMENT_TYPES["float64"], (len(value),), _to_numbers(value))
    try:
        array = as_array(value)
    except ArrayError:
        return Fact(make_unknown_type("mixed"), (len(value),))
    if not isinstance(array, np.ndarray):
        return Fact(make_unknown_type(type(array).__name__), None)
    return make_fact(array, value=True)


def resolve_array(data: Any) -> tuple[Any, Backend]:
    """Return the data as an array, and the backend of its library."""
    backend = find_backend(type(data))
    if backend is not None and not isinstance(data, np.generic):
        return data, backend
    data = as_array(data)
    return data, get_backend(data)


def as_array(data: Any, what: str = "data") -> Any:
    """Convert data to an array if NumPy can do so without loss.

    Arrays of every library are returned unchanged. Nested lists, numbers, strings, a ``range``, and objects
    with ``__array__`` or a buffer, except bytes, become NumPy arrays. Anything else is returned unchanged.
    ``what`` names the data in errors.

    Raises:
        ArrayError: NumPy cannot convert the data, or would change values.
    """
    listed = isinstance(data, _LISTED)
    if not listed and (find_backend(type(data)) is not None or not _is_readable(data)):
        return data
    try:
        array = np.asarray(data)
    except Exception as error:  # an object's own __array__ may raise anything
        raise ArrayError(f"cannot convert {what} to an array: {error}") from error
    if listed and array.dtype.kind in "fcUSO":
        _check_kept(array, data, what)
    return array


def _is_readable(data: Any) -> bool:
    """Return whether an object exports its values to NumPy, rather than just being iterable."""
    if isinstance(data, range) or any(hasattr(data, name) for name in _OFFERS):
        return True
    try:
        memoryview(data)
    except TypeError:
        return False
    return not isinstance(data, bytes)  # bytes are a string in ONNX


_OFFERS: Final = ("__array__", "__array_interface__", "__array_struct__")


def _check_kept(array: npt.NDArray[Any], data: Any, what: str) -> None:
    """Check that NumPy has not changed any value.

    NumPy rounds large integers in a list with floats, converts numbers in a list with strings to strings, and
    removes NULs at the end of strings.
    """
    if array.dtype == object:
        raise ArrayError(f"cannot convert {what} to an array: its values have no common element type")
    given = np.asarray(data, object).ravel().tolist()
    for one, other in zip(given, array.ravel().tolist(), strict=True):
        if one != other and one == one:
            raise ArrayError(f"cannot convert {what} to an array: {shown(one)} would become {shown(other)}")


def make_data_fact(data: Any, shape: tuple[Any, ...] | None = None) -> Fact:
    """Return a :class:`Fact` with the element type and shape of the data input.

    ``shape`` replaces the shape of the array, if the caller knows it more precisely.
    """
    backend = get_backend(data)
    element_type = backend.get_element_type(data) or make_unknown_type(backend.get_dtype_name(data))
    sizes = backend.get_shape(data) if shape is None else shape
    exact = _ONLY_INT.issuperset(map(type, sizes))
    return Fact(element_type, tuple(sizes if exact else map(_to_dimension, sizes)))


def _to_dimension(size: Any) -> Dim:
    """Convert a size to a dimension. A library's symbolic integer becomes a named dimension."""
    if isinstance(size, int):
        return size
    return UNKNOWN if size is None else Range(name=str(size))
