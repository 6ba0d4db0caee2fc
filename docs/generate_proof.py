#!/usr/bin/env python3
"""Draws how a sentence, a theorem, the code and the tests hang together: pictures/proof.svg.

python docs/generate_proof.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from splitops.explain.canvas import FAINT, FIELD, Canvas

PICTURES: Final = Path(__file__).parent / "pictures"

_BOXES: Final = (
    ("Sentence", "docs/semantics.md", "size - i * c, clamped"),
    ("Theorem", "proofs/split.mlw", "Why3 and Z3"),
    ("Program", "verified WhyML", "extracted to OCaml"),
    ("Cases", "tests/cases", "sizes or a rule code"),
    ("Code", "spec/sizes", "what every call runs"),
    ("Claims", "proofs/contracts.py", "Z3, on every path"),
)
_LINKS: Final = ("is written as", "is proved of", "answers", "answers", "is proved of")
_WIDTH: Final = 112
_STEP: Final = 158
_TOP: Final = 40


def picture() -> str:
    """Return the chain: a box for each thing, and on each arrow what ties it to the next."""
    canvas = Canvas("The chain from a sentence of the specification to the code")
    for index, (name, place, words) in enumerate(_BOXES):
        left = 16 + index * _STEP
        canvas.rect(left, _TOP, _WIDTH, 76, FIELD, rx="6")
        canvas.text(left + 10, _TOP + 24, name, size=15, weight="600")
        canvas.text(left + 10, _TOP + 45, place, size=11)
        canvas.text(left + 10, _TOP + 62, words, size=11, fill=FAINT)
    for index, words in enumerate(_LINKS):
        left, right, y = 16 + index * _STEP + _WIDTH, 16 + (index + 1) * _STEP, _TOP + 38
        canvas.line(left + 3, y, right - 3, y, FAINT)
        # The code and the claims point back: what stands on the right speaks of what stands on its left.
        tip, side = (right - 3, -6) if index < 3 else (left + 3, 6)
        canvas.polygon([(tip, y), (tip + side, y - 4), (tip + side, y + 4)], FAINT)
        canvas.text((left + right) / 2, _TOP - 10, words, size=11, fill=FAINT, anchor="middle")
    return canvas.document(16 + len(_BOXES) * _STEP - (_STEP - _WIDTH) + 16, 134)


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    return {"proof.svg": picture()}


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (PICTURES / name).write_text(drawn)
