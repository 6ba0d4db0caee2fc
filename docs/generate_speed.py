#!/usr/bin/env python3
"""Draws the figures of speed.md: a picture for each kind of copy, from the text that the benchmark printed.

python docs/generate_speed.py
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final, NamedTuple

from splitops.explain.canvas import FAINT, LINE, Canvas
from splitops.explain.palette import colour

DOCS: Final = Path(__file__).parent
SHOWN: Final = {
    "speed-fresh.svg": ("fresh", "Fresh copies into pooled memory (copy=True)"),
    "speed-out.svg": ("out=", "Copies into given buffers (out=)"),
}
PEERS: Final = ("memcpy", "numpy", "onnxruntime", "openvino", "torch", "jax", "cv2")
"""The order of the legend; each has its colour in all pictures."""

_ROW: Final = re.compile(r"^  (\S.{33}) +\S+ \w+   (.+)$")
_FIGURE: Final = re.compile(r"([\w.= ]+?) ([\d.]+)(?: \(< [\d.]+\))?(?:, |$)")
_WIDTH: Final = 960
_LEFT: Final = 270
_RIGHT: Final = 40
_LANE: Final = 30
_TICKS: Final = (0.5, 1, 2, 5, 10, 20, 50)


class Row(NamedTuple):
    """A case: how many times as fast as each implementation splitops is."""

    case: str
    ratios: dict[str, float]


def read(text: str) -> dict[str, list[Row]]:
    """Read the sections of what the benchmark printed."""
    sections: dict[str, list[Row]] = {}
    found: list[Row] = []
    for line in text.splitlines():
        heading, is_heading, _ = line.partition(": times as fast as")
        if is_heading:
            found = sections.setdefault(heading, [])
        elif row := _ROW.match(line):
            ratios = {name: float(figure) for name, figure in _FIGURE.findall(row[2])}
            found.append(Row(row[1].strip(), ratios))
    return sections


def draw(heading: str, rows: list[Row]) -> str:
    """Draw a section: a line for each case, a dot for each implementation, on a scale of logarithms."""
    peers = [peer for peer in PEERS if any(peer in row.ratios for row in rows)]
    canvas = Canvas(heading)
    canvas.text(24, 36, heading, size=18, weight="600")
    canvas.text(
        24, 58, "how many times as fast as each implementation; right of 1 is faster", size=13, fill=FAINT
    )
    x = 24.0
    for peer in peers:
        canvas.circle(x + 6, 82, 6, _colour(peer))
        canvas.text(x + 18, 87, peer, size=13)
        x += 40 + 7.6 * len(peer)
    top, bottom = 112, 112 + _LANE * len(rows)
    for tick in _TICKS:
        at = _place(tick)
        canvas.line(at, top, at, bottom, FAINT if tick == 1 else LINE)
        canvas.text(at, bottom + 18, f"{tick:g}", size=12, fill=FAINT, anchor="middle")
    for index, row in enumerate(rows):
        y = top + _LANE * (index + 0.5)
        canvas.text(24, y + 5, row.case, size=13)
        canvas.line(_LEFT, y, _WIDTH - _RIGHT, y)
        for peer, ratio in row.ratios.items():
            canvas.circle(_place(ratio), y, 6.5, _colour(peer), title=f"{row.case}: {ratio:g} x {peer}")
    return canvas.document(_WIDTH, bottom + 36)


def _colour(peer: str) -> str:
    return colour(PEERS.index(peer))


def _place(ratio: float) -> float:
    low, high = math.log(_TICKS[0] * 0.8), math.log(_TICKS[-1])
    return _LEFT + (math.log(ratio) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    sections = read((DOCS / "speed.md").read_text())
    return {name: draw(heading, sections[section]) for name, (section, heading) in SHOWN.items()}


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (DOCS / "pictures" / name).write_text(drawn)
