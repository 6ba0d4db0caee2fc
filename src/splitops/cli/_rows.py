"""Rows of the specification as JSON values."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from splitops.spec.elements.types import ElementType
from splitops.spec.operators import OperatorSchema


def schema_json(row: OperatorSchema) -> dict[str, Any]:
    """Return a row as JSON: its fields by name, after ``operator``, for example ``"Split-18"``."""
    return {
        "operator": str(row),
        **as_json_value(row),
        "size_rules": [rule.value for rule in row.size_rules],
        "gives_sequence": row.gives_sequence,
    }


def as_json_value(value: Any) -> Any:
    """Return a value of a row as JSON: rows become objects, enumerations their values, sets sorted lists."""
    if isinstance(value, ElementType):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, AbstractSet):
        return sorted(as_json_value(item) for item in value)
    if isinstance(value, list | tuple):
        return [as_json_value(item) for item in value]
    return value
