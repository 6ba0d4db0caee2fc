"""Explain a split: where each part is in memory, as data, text, SVG or an interactive HTML page.

The functions need a :class:`~splitops.native._types.SplitPlan`, but neither arrays nor a terminal.
"""

from __future__ import annotations

from splitops.explain.axis import Cell, group_cells
from splitops.explain.drawing import to_svg
from splitops.explain.interactive import EXAMPLES, to_html
from splitops.explain.layout import Explanation, PartGroup, PartLayout, explain
from splitops.explain.text import TextSpan, draw_diagram, draw_memory

__all__ = [
    "EXAMPLES",
    "Cell",
    "Explanation",
    "PartGroup",
    "PartLayout",
    "TextSpan",
    "draw_diagram",
    "draw_memory",
    "explain",
    "group_cells",
    "to_html",
    "to_svg",
]
