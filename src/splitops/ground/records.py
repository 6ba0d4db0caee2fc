"""Records that every call makes, which the type checker keeps unchanged; and records as values for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, dataclass_transform

from splitops.errors import Where

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def record(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass with slots, but for the guard at run time.

    To make a guarded one takes four times as long, and a call that is not remembered makes six.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def values_of(found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as values for JSON, and those of the dataclasses in it."""
    return {field.name: _value(getattr(found, field.name)) for field in fields(found)}


def _value(found: Any) -> Any:
    if isinstance(found, Where):
        return found.as_dict()
    if is_dataclass(found):
        return values_of(found)
    if isinstance(found, Mapping):
        return {name: _value(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return list(map(_value, found))
    return found.value if isinstance(found, Enum) else found
