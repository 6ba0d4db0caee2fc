"""Draws how a sentence, a theorem, the code and the tests hang together: pictures/proof.svg."""

from __future__ import annotations

from typing import Final

from dev.pages import PICTURES
from splitops.explain.canvas import FAINT, FIELD, Canvas

_BOXES: Final = (
    ("Sentence", "docs/semantics.md", "D - i * c, clamped to 0 and c"),
    ("Theorem", "proofs/split.mlw", "proved by Why3 and Z3"),
    ("Program", "in the same file", "verified, extracted to OCaml"),
    ("Conformance cases", "tests/cases", "sizes, or the code of a rule"),
    ("Code", "splitops.spec.sizes", "what every call runs"),
    ("Claims", "proofs/contracts.py", "confirmed by Z3 on every path"),
)
_LINKS: Final = (
    (True, "is written as"),
    (True, "is proved of"),
    (True, "answers"),
    (False, "answers"),
    (False, "are proved of"),
)
"""Between a box and the next: whether the arrow points down, and what it says."""
_WIDTH: Final = 340
_HEIGHT: Final = 58
_GAP: Final = 34


def picture() -> str:
    """Return the chain, from the top down: a box for each thing, and on each arrow what ties two of them."""
    canvas = Canvas("The chain from a sentence of the specification to the code")
    for index, (name, place, words) in enumerate(_BOXES):
        top = 12 + index * (_HEIGHT + _GAP)
        canvas.add_rect(12, top, _WIDTH - 24, _HEIGHT, FIELD, rx="6")
        canvas.add_text(24, top + 24, name, size=15, weight="600")
        canvas.add_text(_WIDTH - 24, top + 24, place, size=12, anchor="end")
        canvas.add_text(24, top + 45, words, size=13, fill=FAINT)
    for index, (down, words) in enumerate(_LINKS):
        top = 12 + index * (_HEIGHT + _GAP) + _HEIGHT
        x, begin, end = 48, top + 4, top + _GAP - 4
        tip, back = (end, end - 7) if down else (begin, begin + 7)
        canvas.add_line(x, begin, x, end, FAINT)
        canvas.add_polygon([(x, tip), (x - 4, back), (x + 4, back)], FAINT)
        canvas.add_text(x + 14, top + _GAP / 2 + 4, words, size=12, fill=FAINT)
    return canvas.to_document(_WIDTH, 12 + len(_BOXES) * (_HEIGHT + _GAP) - _GAP + 12)


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    return {"proof.svg": picture()}


def write() -> None:
    """Write the pages and pictures of this module."""
    for name, drawn in pictures().items():
        (PICTURES / name).write_text(drawn)
