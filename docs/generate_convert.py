#!/usr/bin/env python3
"""Writes the tables of layers into convert.md; a test holds the page against them.

The matrix of splits on the same page is made by dev/benchmarks/conversion_matrix.py, the table of networks by
dev/benchmarks/networks.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from splitops.models.convert.layers import FORMS, Shared
from splitops.models.movers.form import FLOATS, INTEGERS, LOGICAL, NUMBERS, SIZES

PAGE: Final = Path(__file__).with_name("convert.md")
_MARKED: Final = re.compile(r"(<!-- layers: begin -->\n).*?(<!-- layers: end -->)", re.DOTALL)
_TYPES: Final = {
    FLOATS: "floats",
    NUMBERS: "floats, int32, int64",
    NUMBERS | LOGICAL: "floats, int32, int64, bool",
    SIZES: "int32, int64",
    LOGICAL: "bool",
    INTEGERS: "integers",
    INTEGERS | FLOATS: "integers, floats",
    INTEGERS | FLOATS | LOGICAL: "integers, floats, bool",
    None: "every",
}


def layers() -> str:
    """Return the tables of layers."""
    lines = [
        "| layer | since | element types | ONNX | to OpenVINO without `openvino` |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(FORMS, key=lambda row: (row.layer, _numbers(row.versions))):
        said, both = (f"`{row.onnx}`", "yes") if isinstance(row, Shared) else ("nodes", "")
        versions = ", ".join(map(str, _numbers(row.versions)))
        lines.append(
            f"| `{row.layer}` | {versions} | {_TYPES[row.types]} | {said} | {'yes' if both else ''} |"
        )
    return "\n".join(lines) + "\n"


def _numbers(versions: frozenset[str]) -> list[int]:
    return sorted(int(version.removeprefix("opset")) for version in versions)


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}{layers()}{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
