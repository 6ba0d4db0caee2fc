"""A page on which a split can be changed: one file, which asks nobody for anything."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from splitops.explain.canvas import STYLE
from splitops.explain.drawing import svg
from splitops.explain.layout import Explanation
from splitops.explain.pages import fill, page_file
from splitops.explain.palette import PALETTE, ink
from splitops.spec.elements.packing import packed_size
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

EXAMPLES: Final = {
    "7 into 4": {"operator": "Split-18", "shape": "7", "way": "parts", "numbers": "4"},
    "5 into 4": {"operator": "Split-18", "shape": "5", "way": "parts", "numbers": "4"},
    "3 into 5": {"operator": "Split-18", "shape": "3", "way": "parts", "numbers": "5"},
    "10 into 4": {"operator": "Split-18", "shape": "10", "way": "parts", "numbers": "4"},
    "2, 0, 4": {"operator": "Split-13", "shape": "6", "way": "sizes", "numbers": "2, 0, 4"},
    "1, -1, 2": {"operator": "VariadicSplit-1", "shape": "6", "way": "sizes", "numbers": "1, -1, 2"},
    "chunks of 4": {"operator": "SplitToSequence-24", "shape": "10", "way": "chunk", "numbers": "4"},
    "not divisible": {"operator": "Split-13", "shape": "7", "way": "parts", "numbers": "2"},
}
"""What the page offers beside one another: the edge cases of the size rules."""


def to_html(
    layout: Explanation, start: Mapping[str, str], title: str, version: str, home: str | None = None
) -> str:
    """Write the page.

    Args:
        layout: the split that it begins with, drawn for readers without JavaScript.
        start: what the controls say at first: ``operator``, ``shape``, ``axis``, ``way`` (``sizes``,
            ``parts``, ``chunk`` or ``ones``), ``numbers``, ``dtype`` and ``keepdims``.
        title: the heading of the picture.
        version: of splitops.
        home: the address of the site that the page belongs to; None where it is alone.
    """
    link = f'<a href="{html.escape(home)}">splitops</a>' if home else "splitops"
    data = {
        "rows": [{"name": display_name(row), **operator_data(row)} for row in SCHEMAS],
        "dtypes": type_data(),
        "palette": [(colour, ink(colour)) for colour in PALETTE],
        "start": start,
    }
    # In a script, `<` could end it; JSON can say it otherwise.
    content = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return fill(
        _file("page.html"),
        style=_file("page.css"),
        script=f"{_file('sizes.js')}{_file('code.js')}{_file('page.js')}",
        version=html.escape(version),
        examples="".join(_button(name, said) for name, said in EXAMPLES.items()),
        title=html.escape(title),
        brand=f"{link} explain",
        pictures=STYLE,
        picture=svg(layout, title),
        data=content,
    )


def _button(name: str, said: Mapping[str, str]) -> str:
    start = html.escape(urlencode({"axis": "0", **said}))
    return f'<button type="button" data-start="{start}">{name}</button>'


def operator_data(row: OperatorSchema) -> dict[str, Any]:
    """Return what the page must know of an operator version."""
    ways = {
        "parts": row.count is not None,
        "sizes": bool(row.lengths),
        "chunk": row.scalar_rule is SizeRule.CHUNK,
        "ones": row.default_chunk is not None,
    }
    return {
        "ways": [way for way, has in ways.items() if has],
        "least": -1 if row.lengths_rule is SizeRule.REMAINDER else 0,
        "parts": "ceil" if row.count_rule is SizeRule.CEIL else "even",
        "attribute": row.count is not None and row.count.given is Given.ATTRIBUTE,
        "input": any(place.given is Given.INPUT for place in row.lengths),
        "sequence": row.gives_sequence,
        "keepdims": row.keepdims is not None,
        "openvino": row.domain == "openvino",
        "opset": row.since_version,
    }


def type_data() -> dict[str, tuple[int, int]]:
    """Return bits of each element type, and how many elements are stored together: 0 is as many as fit."""
    return {name: (found.bits, _group(found)) for name, found in ELEMENT_TYPES.items() if found.bits}


def _group(element_type: ElementType) -> int:
    stored = 8 * packed_size(element_type, 1)
    return stored // element_type.bits if stored - element_type.bits >= 8 else 0


def _file(name: str) -> str:
    return page_file("splitops.explain", name)
