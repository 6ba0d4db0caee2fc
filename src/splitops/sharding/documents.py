"""Documents from outside, in JSON or TOML: bounded, and held to a schema that is shipped with them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from splitops.errors import ModelError, PlanError, shown, shown_path
from splitops.ground.reading import read_whole

_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document: ``"plan"`` or ``"manifest"``."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.schema.json").read_text("utf-8"))
    return found


def read(path: Path, *, limit: int = 16 << 20) -> Any:
    """Read a document of JSON, or of TOML where its name ends so.

    Raises:
        PlanError: the file cannot be read, is longer than the limit, or is malformed.
    """
    try:
        return parse(read_whole(path, limit=limit), shown_path(path), toml=path.suffix.lower() == ".toml")
    except ModelError as error:
        raise PlanError(error.message) from error


def parse(content: bytes, name: str, *, toml: bool = False) -> Any:
    """Return what a document says; a key that stands twice is an error, as in TOML.

    Raises:
        PlanError: it is malformed.
    """
    try:
        text = content.decode()
        return tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if toml else "JSON"
        raise PlanError(f"{name} is no {kind}: {shown(str(error) or 'too deep', 120)}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {shown(key)} stands twice")
        found[key] = value
    return found


def validate(value: Any, kind: str, name: str) -> None:
    """Hold a document to the schema of its kind.

    Raises:
        PlanError: it does not fit; it says where.
    """
    problem = _problem(value, schema(kind), "")
    if problem is not None:
        place, what = problem
        raise PlanError(f"{name}: {place.lstrip('.') or 'the document'} {what}")


def _problem(value: Any, wanted: Mapping[str, Any], place: str) -> tuple[str, str] | None:
    """Return where a value does not fit a schema, and how; of JSON Schema, the words that ours have."""
    if "anyOf" in wanted:
        kinds = wanted["anyOf"]
        if any(_problem(value, each, place) is None for each in kinds):
            return None
        return place, f"is {shown(value)}, and neither {' nor '.join(_named(each) for each in kinds)}"
    if "const" in wanted and value != wanted["const"]:
        return place, f"is {shown(value)}, and must be {wanted['const']!r}"
    if "enum" in wanted and value not in wanted["enum"]:
        return place, f"is {shown(value)}, and must be one of {', '.join(wanted['enum'])}"
    kind = wanted.get("type")
    if kind is not None and (
        not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))
    ):
        return place, f"is {shown(value)}, and no {kind}"
    if "minimum" in wanted and value < wanted["minimum"]:
        return place, f"is {shown(value)}, and must be at least {wanted['minimum']}"
    if isinstance(value, list) and not wanted.get("minItems", 0) <= len(value) <= wanted.get(
        "maxItems", len(value)
    ):
        return place, f"has {len(value)} entries"
    if isinstance(value, list) and "items" in wanted:
        found = (_problem(entry, wanted["items"], f"{place}[{i}]") for i, entry in enumerate(value))
        return next(filter(None, found), None)
    return _problem_of_keys(value, wanted, place) if isinstance(value, dict) else None


def _problem_of_keys(value: dict[str, Any], wanted: Mapping[str, Any], place: str) -> tuple[str, str] | None:
    known, others = wanted.get("properties", {}), wanted.get("additionalProperties", True)
    for key in wanted.get("required", ()):
        if key not in value:
            return place, f"lacks {shown(key)}"
    for key, entry in value.items():
        inner = known.get(key, others)
        if inner is False:
            return place, f"has {shown(key)}, which is none of {', '.join(known)}"
        found = None if inner is True else _problem(entry, inner, f"{place}.{key}")
        if found is not None:
            return found
    return None


def _named(wanted: Mapping[str, Any]) -> str:
    text = f"{'an' if wanted['type'][0] in 'aio' else 'a'} {wanted['type']}"
    return f"{text} of at least {wanted['minimum']}" if "minimum" in wanted else text
