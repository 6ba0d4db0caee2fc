"""Records that every call makes, which the type checker keeps unchanged; and records as values for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from splitops.errors import Where

_T = TypeVar("_T")


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
    return kind(**{name: _read(hint, found[key]) for name, key, hint in _fields(kind) if key in found})


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any]]:
    hints = get_type_hints(kind)
    return [(field.name, _name(field), hints[field.name]) for field in fields(kind)]


def _read(kind: Any, found: Any) -> Any:
    if get_origin(kind) is UnionType:
        kinds = [one for one in get_args(kind) if one is not NoneType]
        kind = next((one for one in kinds if (get_origin(one) is tuple) == isinstance(found, list)), kinds[0])
    origin, inner = get_origin(kind), get_args(kind)
    if found is None:
        return None
    if is_dataclass(kind):
        return read_values(kind, found)
    if origin is tuple:
        return tuple(_read(inner[0], one) for one in found)
    if origin is Mapping:
        return {name: _read(inner[1], one) for name, one in found.items()}
    return kind(found) if isinstance(kind, type) and issubclass(kind, Enum) else found
