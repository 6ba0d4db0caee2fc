"""Validation by JSON Schema, for the keywords that the schemas of this package use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from splitops.errors import shown

_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
WORDS: Final = frozenset(
    {"$schema", "$defs", "$ref", "title", "description", "type", "const", "enum", "anyOf", "oneOf", "minimum"}
    | {"properties", "required", "additionalProperties", "minProperties", "maxProperties", "minLength"}
    | {"maxLength", "items", "minItems", "maxItems", "uniqueItems"}
)
"""Keywords that :func:`find_problem` supports."""
_SIZES: Final = (
    (dict, "minProperties", "maxProperties", "entries"),
    (list, "minItems", "maxItems", "entries"),
    (str, "minLength", "maxLength", "characters"),
)

Schema = Mapping[str, Any]
Problem = tuple[str, str]
"""Location in the value, such as ``.rule[0].match``, and the problem there."""


def find_problem(value: Any, schema: Schema, place: str = "", root: Schema | None = None) -> Problem | None:
    """Find the first violation of a schema. Return its location and the problem, or None.

    The schema may only have the keywords in :data:`WORDS`. ``place`` is the location of the value;
    ``root`` is the schema with the ``$defs`` of references. Unlike in JSON Schema, 2.0 is not an integer.

    Examples:
        >>> find_problem({"a": 2.0}, {"properties": {"a": {"type": "integer"}}})
        ('.a', 'is 2.0, not an integer')
    """
    root = schema if root is None else root
    schema = _resolve(schema, root)
    if "const" in schema and not _is_same(value, schema["const"]):
        return place, f"is {shown(value)}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return place, f"is {shown(value)}, not one of {', '.join(schema['enum'])}"
    if not _has_type(value, schema):
        return place, f"is {shown(value)}, not {_add_article(_format_types(schema))}"
    if "minimum" in schema and value < schema["minimum"]:
        return place, f"is {shown(value)}, less than {schema['minimum']}"
    for kind, least, most, what in _SIZES:
        if isinstance(value, kind):
            if len(value) < schema.get(least, 0):
                return place, f"has {len(value)} {what}, fewer than {schema[least]}"
            if len(value) > schema.get(most, len(value)):
                return place, f"has {len(value)} {what}, more than {schema[most]}"
    found: Problem | None = None
    if isinstance(value, list):
        found = _check_items(value, schema, place, root)
    elif isinstance(value, dict):
        found = _check_keys(value, schema, place, root)
    for word in ("anyOf", "oneOf"):
        if found is None and word in schema:
            found = _check_alternatives(value, schema[word], place, root, alone=word == "oneOf")
    return found


def _resolve(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return schema


def _has_type(value: Any, schema: Schema) -> bool:
    kinds = schema.get("type")
    if kinds is None:
        return True
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    return any(
        isinstance(value, _TYPES[kind]) and not (kind == "integer" and isinstance(value, bool))
        for kind in kinds
    )


def _format_types(schema: Schema) -> str:
    kinds = schema["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


def _check_alternatives(
    value: Any, kinds: Sequence[Schema], place: str, root: Schema, *, alone: bool
) -> Problem | None:
    """Return None if a schema in ``kinds`` matches (with ``alone``, exactly one), otherwise a problem."""
    meant = [kind for kind in kinds if _is_meant(value, kind, root)]
    found = [find_problem(value, kind, place, root) for kind in meant]
    fitting = found.count(None)
    if fitting and not (alone and fitting > 1):
        return None
    if len(found) == 1 and isinstance(value, dict | list):
        return found[0]
    names = list(
        dict.fromkeys(_describe_type(kind) for each in kinds if "type" in (kind := _resolve(each, root)))
    )
    if len(names) == 1:
        return place, f"is {shown(value)}, {names[0]} of an unknown kind"
    return place, f"is {shown(value)}, not {' or '.join(names)}"


def _is_meant(value: Any, schema: Schema, root: Schema) -> bool:
    """Return whether a value has the type of a schema and the constants that identify its kind."""
    schema = _resolve(schema, root)
    if "oneOf" in schema:
        return any(_is_meant(value, kind, root) for kind in schema["oneOf"])
    if not _has_type(value, schema):
        return False
    fixed = {key: inner["const"] for key, inner in schema.get("properties", {}).items() if "const" in inner}
    return not fixed or all(key in value and _is_same(value[key], fixed[key]) for key in fixed)


def _check_items(value: list[Any], schema: Schema, place: str, root: Schema) -> Problem | None:
    if schema.get("uniqueItems") and any(one in value[:index] for index, one in enumerate(value)):
        return place, "has a duplicate entry"
    if "items" not in schema:
        return None
    return _find_first(
        find_problem(one, schema["items"], f"{place}[{i}]", root) for i, one in enumerate(value)
    )


def _check_keys(value: dict[str, Any], schema: Schema, place: str, root: Schema) -> Problem | None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            return place, f"lacks {shown(key)}"
    for key, inner in value.items():
        wanted = known.get(key, others)
        if wanted is False:
            return place, f"has the unknown key {shown(key)}: use {', '.join(known)}"
        found = None if wanted is True else find_problem(inner, wanted, f"{place}.{key}", root)
        if found is not None:
            return found
    return None


def _find_first(found: Iterable[Problem | None]) -> Problem | None:
    return next(filter(None, found), None)


def _add_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _describe_type(schema: Schema) -> str:
    text = _add_article(_format_types(schema))
    return f"{text} of at least {schema['minimum']}" if "minimum" in schema else text
