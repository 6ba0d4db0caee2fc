#!/usr/bin/env python3
"""Writes the table of rewrites into simplify.md; a test holds the page against it.

The table of node counts beside other optimizers is made by dev/benchmarks/exported_models.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from splitops.models.simplify import REWRITES

PAGE: Final = Path(__file__).with_name("simplify.md")
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


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
