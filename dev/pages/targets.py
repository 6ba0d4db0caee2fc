"""Writes the table of words into targets.md; a test holds the page against it."""

from __future__ import annotations

import re
from typing import Final

from dev.pages import DOCS
from splitops.models.check.limits import USUAL_REWRITES
from splitops.models.check.predicates import PREDICATES

PAGE: Final = DOCS / "targets.md"
_MARKED: Final = re.compile(r"(<!-- words -->\n).*?(<!-- /words -->)", re.DOTALL)


def words() -> str:
    """Return the table of words."""
    lines = ["| word | when it is true | usual forms |", "|---|---|---|"]
    for word in PREDICATES.values():
        forms = ", ".join(f"`{form}`" for form in USUAL_REWRITES.get(word.text, ()))
        lines.append(f"| `{word.text}` | {word.meaning} | {forms} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with its table made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{words()}\n{found[2]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
