#!/usr/bin/env python3
"""Writes the tables of words and releases into targets.md; a test holds the page against it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))
from dev.tools import releases
from splitops.models.check.conditions import WORDS
from splitops.models.check.limits import USUAL_FORMS

PAGE: Final = Path(__file__).with_name("targets.md")
RELEASES: Final = PAGE.parent / "compare" / "releases"
_MARKED: Final = re.compile(r"(<!-- (words|history) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def words() -> str:
    """Return the table of words."""
    lines = ["| word | when it is true | usual forms |", "|---|---|---|"]
    for word in WORDS.values():
        forms = ", ".join(f"`{form}`" for form in USUAL_FORMS.get(word.text, ()))
        lines.append(f"| `{word.text}` | {word.meaning} | {forms} |")
    return "\n".join(lines) + "\n"


def history() -> str:
    """Return the table of what changed with a release of a runtime."""
    lines = [
        "| runtime | release | cases | before | from this release on | example |",
        "|---|---|---|---|---|---|",
    ]
    named = {letter: str(word) for word, letter in releases.LETTERS.items()}
    for path in sorted(RELEASES.glob("*.json")):
        found = releases.history(releases.read_table(path.stem))
        for (release, before, after), cases in found.items():
            changed = f"{len(cases)} | {named[before]} | {named[after]} | `{cases[0]}`"
            lines.append(f"| {path.stem} | {release} | {changed} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    tables = {"words": words(), "history": history()}
    return _MARKED.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}")
