"""Writes the tables of the fields of rules into sharding.md; a test holds the page against them."""

from __future__ import annotations

import re
from typing import Any, Final

from dev.pages import DOCS
from splitops.sharding.documents import get_schema

PAGE: Final = DOCS / "sharding.md"
_MARKED: Final = re.compile(r"(<!-- fields of (\w+) -->\n).*?(<!-- /fields -->)", re.DOTALL)


def fields(plan: str) -> str:
    """Return the table of the fields of a rule, of a kind of plan."""
    lines = ["| field | value | meaning |", "| --- | --- | --- |"]
    for name, entry in get_schema(plan)["properties"]["rule"]["items"]["properties"].items():
        lines.append(f"| `{name}` | {kind(entry)} | {entry['description']} |")
    return "\n".join(lines) + "\n"


def kind(entry: dict[str, Any]) -> str:
    """Return what may be there; a text in the place of a number is an expression."""
    if "anyOf" in entry:
        kinds = [kind(each) for each in entry["anyOf"]]
        return " or ".join(
            "an expression" if each == "text" and "integer" in kinds else each for each in kinds
        )
    if entry["type"] == "array":
        return f"list of {kind(entry['items'])}"
    return {"string": "text", "boolean": "true or false"}.get(entry["type"], entry["type"])


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{fields(found[2])}\n{found[3]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
