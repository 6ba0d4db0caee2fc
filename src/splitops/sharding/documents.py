"""Documents from outside, in JSON or TOML: bounded, and checked against a schema in the package."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from splitops.errors import ModelError, PlanError, shown, shown_path
from splitops.ground.reading import read_whole
from splitops.ground.schemas import problem


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document: ``"plan"`` or ``"manifest"``."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.schema.json").read_text("utf-8"))
    return found


def read(path: Path, *, limit: int = 16 << 20) -> Any:
    """Read a document of JSON, or of TOML where its name ends so."""
    try:
        return parse(read_whole(path, limit=limit), shown_path(path), toml=path.suffix.lower() == ".toml")
    except ModelError as error:
        raise PlanError(error.message) from error


def parse(content: bytes, name: str, *, toml: bool = False) -> Any:
    """Return what a document says; a key that appears twice is an error, as in TOML."""
    try:
        text = content.decode()
        return tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if toml else "JSON"
        raise PlanError(f"{name} is not {kind}: {shown(str(error) or 'too deep', 120)}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {shown(key)} appears twice")
        found[key] = value
    return found


def validate(value: Any, kind: str, name: str) -> None:
    """Check a document against the schema of its kind."""
    found = problem(value, schema(kind))
    if found is not None:
        place, what = found
        raise PlanError(f"{name}: {place.lstrip('.') or 'the document'} {what}")
