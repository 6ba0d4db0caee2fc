"""Generates the pages and pictures of the documentation, a module for each page.

    python -m dev.pages [NAME ...]

Each module has a function ``write``, which writes its pages from the code. ``hooks`` and ``roles`` extend the
site. The pages themselves are in ``docs`` and ``compare/docs``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PICTURES: Final = DOCS / "pictures"
COMPARE_DOCS: Final = ROOT / "compare" / "docs"
