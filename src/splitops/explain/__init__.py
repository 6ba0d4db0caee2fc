"""What a plan means for memory: where each part lies, how many bytes it has, in how many runs.

Pure functions of a :class:`~splitops.native._types.SplitPlan`: nothing here knows an array or a terminal.
:func:`svg` draws the same as a picture, and :func:`to_html` a page on which it changes.
"""

from __future__ import annotations

from splitops.explain.axis import Cell, cells
from splitops.explain.drawing import svg
from splitops.explain.interactive import EXAMPLES, to_html
from splitops.explain.layout import Explanation, Group, PartLayout, explain
from splitops.explain.text import Span, diagram, memory_strip

__all__ = [
    "EXAMPLES",
    "Cell",
    "Explanation",
    "Group",
    "PartLayout",
    "Span",
    "cells",
    "diagram",
    "explain",
    "memory_strip",
    "svg",
    "to_html",
]
