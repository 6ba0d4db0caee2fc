"""Writes the table of rewrites into simplify.md; a test holds the page against it.

The table of node counts beside other optimizers is made by tasks.py bench exported_models.
"""

from __future__ import annotations

import re
from typing import Final

from dev.pages import DOCS
from splitops.models.simplify import REWRITES

PAGE: Final = DOCS / "simplify.md"
_MARKED: Final = re.compile(r"(<!-- rewrites -->\n).*?(<!-- /rewrites -->)", re.DOTALL)


def rewrites() -> str:
    """Return the table of rewrites."""
    lines = ["| name | what it does | function | OpenVINO |", "| --- | --- | --- | --- |"]
    for row in REWRITES.values():
        where = f"`{row.module}.{row.function}`"
        lines.append(f"| `{row.name}` | {row.summary} | {where} | {'yes' if row.openvino else 'no'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with its table made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{rewrites()}\n{found[2]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
