"""Interactive HTML page on which users can change a split. It is one file that loads no others."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from splitops.explain.canvas import STYLE
from splitops.explain.drawing import to_svg
from splitops.explain.layout import Explanation
from splitops.explain.pages import fill, read_page_file
from splitops.explain.palette import PALETTE, get_ink
from splitops.spec.elements.packing import compute_packed_size
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name
from splitops.spec.operators.schemas import SourceKind
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
"""Examples on the page: edge cases of the size rules."""


def to_html(
    layout: Explanation, start: Mapping[str, str], title: str, version: str, home: str | None = None
) -> str:
    """Return the interactive page as HTML.

    Args:
        layout: initial split, which readers without JavaScript see.
        start: initial values of the controls: ``operator``, ``shape``, ``axis``, ``way`` (``sizes``,
            ``parts``, ``chunk`` or ``ones``), ``numbers``, ``dtype`` and ``keepdims``.
        title: heading of the diagram.
        version: version of splitops.
        home: URL of the site to which the page belongs, or None.
    """
    link = f'<a href="{html.escape(home)}">splitops</a>' if home else "splitops"
    data = {
        "rows": [{"name": display_name(schema), **make_operator_data(schema)} for schema in SCHEMAS],
        "dtypes": make_type_data(),
        "palette": [(colour, get_ink(colour)) for colour in PALETTE],
        "start": start,
    }
    # `<` could end the script element, so JSON escapes it.
    content = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return fill(
        _read_file("page.html"),
        style=_read_file("page.css"),
        script=f"{_read_file('sizes.js')}{_read_file('code.js')}{_read_file('page.js')}",
        version=html.escape(version),
        examples="".join(_make_button(name, start) for name, start in EXAMPLES.items()),
        title=html.escape(title),
        brand=f"{link} explain",
        pictures=STYLE,
        picture=to_svg(layout, title),
        data=content,
    )


def _make_button(name: str, start: Mapping[str, str]) -> str:
    query = html.escape(urlencode({"axis": "0", **start}))
    return f'<button type="button" data-start="{query}">{name}</button>'


def make_operator_data(schema: OperatorSchema) -> dict[str, Any]:
    """Return the properties of an operator version that the script of the page uses."""
    ways = {
        "parts": schema.count is not None,
        "sizes": bool(schema.lengths),
        "chunk": schema.scalar_rule is SizeRule.CHUNK,
        "ones": schema.default_chunk is not None,
    }
    return {
        "ways": [way for way, has in ways.items() if has],
        "least": -1 if schema.lengths_rule is SizeRule.REMAINDER else 0,
        "parts": "ceil" if schema.count_rule is SizeRule.CEIL else "even",
        "attribute": schema.count is not None and schema.count.kind is SourceKind.ATTRIBUTE,
        "input": any(place.kind is SourceKind.INPUT for place in schema.lengths),
        "sequence": schema.gives_sequence,
        "keepdims": schema.keepdims is not None,
        "openvino": schema.domain == "openvino",
        "opset": schema.since_version,
    }


def make_type_data() -> dict[str, tuple[int, int]]:
    """Map the name of each fixed-width type to its bits and its group size.

    The group size is the number of elements that share several bytes, if an incomplete group is stored with
    all of these bytes, as for uint3. For all other types, it is 0.
    """
    return {name: (found.bits, _compute_group(found)) for name, found in ELEMENT_TYPES.items() if found.bits}


def _compute_group(element_type: ElementType) -> int:
    stored = 8 * compute_packed_size(element_type, 1)
    return stored // element_type.bits if stored - element_type.bits >= 8 else 0


def _read_file(name: str) -> str:
    return read_page_file("splitops.explain", name)
