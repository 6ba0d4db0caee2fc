"""Read untrusted JSON and TOML documents, and validate them against the schemas in this package."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from splitops.common.documents import parse_json, parse_toml
from splitops.common.json_schema import find_problem
from splitops.common.untrusted_files import DataFolder, read_bounded
from splitops.errors import ModelError, PlanError, shown, shown_path


@cache
def get_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document: ``"plan"``, ``"manifest"`` or ``"fuse_plan"``."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.schema.json").read_text("utf-8"))
    return found


def read(path: Path, *, limit: int = 16 << 20) -> Any:
    """Read a document of at most ``limit`` bytes. It is TOML if the extension is .toml, otherwise JSON."""
    try:
        return parse(read_bounded(path, limit=limit), shown_path(path), toml=path.suffix.lower() == ".toml")
    except ModelError as error:
        raise PlanError(error.message) from error


def read_inside(folder: DataFolder, name: str, *, limit: int) -> Any:
    """Read a JSON document of at most ``limit`` bytes in a folder."""
    try:
        return parse(folder.read(name, limit=limit), shown_path(folder.path / name))
    except ModelError as error:
        raise PlanError(error.message) from error


def parse(content: bytes, name: str, *, toml: bool = False, infinite: bool = False) -> Any:
    """Parse a document. A repeated key is an error. ``infinite`` allows NaN and infinity in JSON.

    ``name`` is the file name in messages.
    """
    try:
        return parse_toml(content) if toml else parse_json(content, infinite=infinite)
    except ValueError as error:
        kind = "TOML" if toml else "JSON"
        raise PlanError(f"{name} is not {kind}: {shown(str(error), 120)}") from None


def validate(value: Any, kind: str, name: str) -> None:
    """Check a document against the schema of its kind. Raise PlanError with the first problem."""
    found = find_problem(value, get_schema(kind))
    if found is not None:
        place, what = found
        raise PlanError(f"{name}: {place.lstrip('.') or 'the document'} {what}")
