"""JSON Schema, as far as the schemas of this package use it: where a value does not fit, and how."""

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
    | {"properties", "required", "additionalProperties", "minProperties", "minLength", "maxLength"}
    | {"items", "minItems", "maxItems", "uniqueItems"}
)
"""The words that :func:`problem` knows."""
_SIZES: Final = (
    (dict, "minProperties", "maxProperties", "entries"),
    (list, "minItems", "maxItems", "entries"),
    (str, "minLength", "maxLength", "characters"),
)

Schema = Mapping[str, Any]
Problem = tuple[str, str]
"""The place in the value, such as ``.rule[0].match``, and what is wrong with it."""


def problem(value: Any, schema: Schema, place: str = "", root: Schema | None = None) -> Problem | None:
    """Return where a value does not fit a schema, and how; None where it fits.

    An integer is not a boolean, and no float: 2.0 is a size of nothing.

    The schema has the words of :data:`WORDS`; ``root`` is the one whose ``$defs`` its references name.

    Examples:
        >>> problem({"a": 2.0}, {"properties": {"a": {"type": "integer"}}})
        ('.a', 'is 2.0, not an integer')
    """
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if "const" in schema and not _same(value, schema["const"]):
        return place, f"is {shown(value)}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return place, f"is {shown(value)}, not one of {', '.join(schema['enum'])}"
    if not _has_type(value, schema):
        return place, f"is {shown(value)}, not {_article(_kind(schema))}"
    if "minimum" in schema and value < schema["minimum"]:
        return place, f"is {shown(value)}, less than {schema['minimum']}"
    for kind, least, most, what in _SIZES:
        if isinstance(value, kind) and not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
            return place, f"has {len(value)} {what}"
    found: Problem | None = None
    if isinstance(value, list):
        found = _of_items(value, schema, place, root)
    elif isinstance(value, dict):
        found = _of_keys(value, schema, place, root)
    for word in ("anyOf", "oneOf"):
        if found is None and word in schema:
            found = _of_kinds(value, schema[word], place, root, alone=word == "oneOf")
    return found


def _resolved(schema: Schema, root: Schema) -> Schema:
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


def _kind(schema: Schema) -> str:
    kinds = schema["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


def _of_kinds(
    value: Any, kinds: Sequence[Schema], place: str, root: Schema, *, alone: bool
) -> Problem | None:
    """Hold a value to schemas of which one must fit, and no other where it is alone."""
    meant = [kind for kind in kinds if _is_meant(value, kind, root)]
    found = [problem(value, kind, place, root) for kind in meant]
    fitting = found.count(None)
    if fitting and not (alone and fitting > 1):
        return None
    if len(found) == 1 and isinstance(value, dict | list):
        return found[0]
    names = list(dict.fromkeys(_named(kind) for each in kinds if "type" in (kind := _resolved(each, root))))
    if len(names) == 1:
        return place, f"is {shown(value)}, {names[0]} of no known kind"
    return place, f"is {shown(value)}, not {' or '.join(names)}"


def _is_meant(value: Any, schema: Schema, root: Schema) -> bool:
    """Whether a value has the type of a schema, and its constants, by which messages of a kind are known."""
    schema = _resolved(schema, root)
    if "oneOf" in schema:
        return any(_is_meant(value, kind, root) for kind in schema["oneOf"])
    if not _has_type(value, schema):
        return False
    fixed = {key: inner["const"] for key, inner in schema.get("properties", {}).items() if "const" in inner}
    return not fixed or all(key in value and _same(value[key], fixed[key]) for key in fixed)


def _of_items(value: list[Any], schema: Schema, place: str, root: Schema) -> Problem | None:
    if schema.get("uniqueItems") and any(one in value[:index] for index, one in enumerate(value)):
        return place, "has an entry twice"
    if "items" not in schema:
        return None
    return _first(problem(one, schema["items"], f"{place}[{i}]", root) for i, one in enumerate(value))


def _of_keys(value: dict[str, Any], schema: Schema, place: str, root: Schema) -> Problem | None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            return place, f"lacks {shown(key)}"
    for key, inner in value.items():
        wanted = known.get(key, others)
        if wanted is False:
            return place, f"has {shown(key)}, which is none of {', '.join(known)}"
        found = None if wanted is True else problem(inner, wanted, f"{place}.{key}", root)
        if found is not None:
            return found
    return None


def _first(found: Iterable[Problem | None]) -> Problem | None:
    return next(filter(None, found), None)


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _named(schema: Schema) -> str:
    text = _article(_kind(schema))
    return f"{text} of at least {schema['minimum']}" if "minimum" in schema else text
