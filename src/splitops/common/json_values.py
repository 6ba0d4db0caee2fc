"""Conversion of dataclasses to JSON values and back, and a substitute for frozen dataclasses."""

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
    """Make a dataclass with slots that only type checkers treat as frozen.

    Creating a truly frozen object is several times as slow, and a call that is not cached creates several.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def to_json_values(found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values, including nested dataclasses.

    The metadata of a field may set another name for it as ``"json"``. If a class sets ``SPARSE``, fields that
    are None or an empty list are left out. If it sets ``TEXT``, its instances in other objects become
    strings, by ``str()``.
    """
    values = {_name(field): _to_json(getattr(found, field.name)) for field in fields(found)}
    if not getattr(found, "SPARSE", False):
        return values
    return {name: value for name, value in values.items() if value not in (None, [])}


def select_json_values(found: Any, *names: str) -> dict[str, Any]:
    """Return the attributes of an object with the given names as JSON values.

    Examples:
        >>> select_json_values(3 + 4j, "real", "imag")
        {'real': 3.0, 'imag': 4.0}
    """
    return {name: _to_json(getattr(found, name)) for name in names}


def _name(field: Field[Any]) -> str:
    name: str = field.metadata.get("json", field.name)
    return name


def _to_json(found: Any) -> Any:
    if type(found) in _PLAIN:
        return found
    if isinstance(found, Where):
        return found.as_dict()
    if is_dataclass(found):
        return str(found) if getattr(found, "TEXT", False) else to_json_values(found)
    if isinstance(found, Mapping):
        return {name: _to_json(value) for name, value in found.items()}
    if isinstance(found, AbstractSet):
        return sorted(map(_to_json, found))
    if isinstance(found, list | tuple):
        return list(map(_to_json, found))
    return found.value if isinstance(found, Enum) else found


def read_values(kind: Any, found: Mapping[str, Any]) -> Any:
    """Make an object of the dataclass ``kind`` from valid JSON values, keyed as in :func:`to_json_values`.

    Fields that are left out get their defaults.
    """
    return _make_reader(kind)(found)


@cache
def _make_reader(kind: Any) -> Callable[[Any], Any]:
    """Return a function that converts a JSON value to the type of an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        readers = {get_origin(one) is tuple: _make_reader(one) for one in inner if one is not NoneType}
        return lambda found: None if found is None else readers[isinstance(found, list)](found)
    if origin is tuple:
        item = _make_reader(inner[0])
        return lambda found: tuple(map(item, found))
    if origin is Mapping:
        item = _make_reader(inner[1])
        return lambda found: {name: item(one) for name, one in found.items()}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        parts = [(field.name, _name(field), _make_reader(hints[field.name])) for field in fields(kind)]
        made: Any = kind
        return lambda found: made(**{name: read(found[key]) for name, key, read in parts if key in found})
    if isinstance(kind, type) and issubclass(kind, tuple):
        return lambda found: kind(*found)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda found: found
