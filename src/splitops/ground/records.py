"""Records that every call makes, which the type checker keeps unchanged; and records as values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from splitops.errors import Where

_T = TypeVar("_T")
_PLAIN: Final = {str, int, float, bool, NoneType}


@dataclass_transform(frozen_default=True)
def record(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass with slots, but for the guard at run time.

    To make a guarded one takes four times as long, and a call that is not remembered makes six.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def values_of(found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as values for JSON, and those of the dataclasses in it.

    A field whose metadata has ``"json"`` has that name there. A class with ``SPARSE`` leaves out what is
    None or empty. In others, one with ``TEXT`` stands as its text.
    """
    values = {_name(field): _value(getattr(found, field.name)) for field in fields(found)}
    if not getattr(found, "SPARSE", False):
        return values
    return {name: value for name, value in values.items() if value not in (None, [])}


def picked(found: Any, *names: str) -> dict[str, Any]:
    """Return some attributes of an object as values for JSON.

    Examples:
        >>> picked(3 + 4j, "real", "imag")
        {'real': 3.0, 'imag': 4.0}
    """
    return {name: _value(getattr(found, name)) for name in names}


def _name(field: Field[Any]) -> str:
    name: str = field.metadata.get("json", field.name)
    return name


def _value(found: Any) -> Any:
    if type(found) in _PLAIN:
        return found
    if isinstance(found, Where):
        return found.as_dict()
    if is_dataclass(found):
        return str(found) if getattr(found, "TEXT", False) else values_of(found)
    if isinstance(found, Mapping):
        return {name: _value(value) for name, value in found.items()}
    if isinstance(found, AbstractSet):
        return sorted(map(_value, found))
    if isinstance(found, list | tuple):
        return list(map(_value, found))
    return found.value if isinstance(found, Enum) else found


def read_values(kind: Any, found: Mapping[str, Any]) -> Any:
    """Make a dataclass of what :func:`values_of` returned for it, after a proof that it fits the class."""
    return _reader(kind)(found)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of an annotation from a value of JSON."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        readers = {get_origin(one) is tuple: _reader(one) for one in inner if one is not NoneType}
        return lambda found: None if found is None else readers[isinstance(found, list)](found)
    if origin is tuple:
        item = _reader(inner[0])
        return lambda found: tuple(map(item, found))
    if origin is Mapping:
        item = _reader(inner[1])
        return lambda found: {name: item(one) for name, one in found.items()}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        parts = [(field.name, _name(field), _reader(hints[field.name])) for field in fields(kind)]
        made: Any = kind
        return lambda found: made(**{name: read(found[key]) for name, key, read in parts if key in found})
    if isinstance(kind, type) and issubclass(kind, tuple):
        return lambda found: kind(*found)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda found: found
