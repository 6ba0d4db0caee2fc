"""Draws the figures of speed.md, and its table of five rows, from the text that the benchmark printed."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from dev.pages import DOCS, PICTURES
from splitops.explain.canvas import FAINT, LINE, Canvas
from splitops.explain.palette import get_colour

SHOWN: Final = {
    "speed-fresh.svg": ("fresh", "Fresh copies into pooled memory (copy=True)"),
    "speed-out.svg": ("out=", "Copies into given buffers (out=)"),
}
PEERS: Final = ("memcpy", "numpy", "onnxruntime", "openvino", "torch", "jax", "cv2")
"""The order of the legend; each has its colour in all pictures."""

PAGE: Final = DOCS / "speed.md"
_MARKED: Final = re.compile(r"(<!-- rows -->\n).*?(<!-- /rows -->)", re.DOTALL)
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


def draw(heading: str, rows: list[Row], narrow: bool = False) -> str:
    """Draw a section: a line for each case, a dot for each implementation, on a scale of logarithms."""
    width, left, lane = (360, 24, 46) if narrow else (_WIDTH, _LEFT, _LANE)
    right = 20 if narrow else _RIGHT

    def place(ratio: float) -> float:
        low, high = math.log(_TICKS[0] * 0.8), math.log(_TICKS[-1])
        return left + (math.log(ratio) - low) / (high - low) * (width - left - right)

    peers = [peer for peer in PEERS if any(peer in row.ratios for row in rows)]
    canvas = Canvas(heading)
    canvas.add_text(24, 36, heading, size=13 if narrow else 18, weight="600")
    below = (
        "right of 1: splitops is faster" if narrow else "how many times as fast as each; right of 1 is faster"
    )
    canvas.add_text(24, 58, below, size=13, fill=FAINT)
    x, y = 24.0, 82
    for peer in peers:
        if x + 18 + 7.6 * len(peer) > width:
            x, y = 24.0, y + 22
        canvas.add_circle(x + 6, y, 6, _colour(peer))
        canvas.add_text(x + 18, y + 5, peer, size=13)
        x += 40 + 7.6 * len(peer)
    top, bottom = y + 30, y + 30 + lane * len(rows)
    for tick in _TICKS:
        at = place(tick)
        canvas.add_line(at, top, at, bottom, FAINT if tick == 1 else LINE)
        canvas.add_text(at, bottom + 18, f"{tick:g}", size=12, fill=FAINT, anchor="middle")
    for index, row in enumerate(rows):
        middle = top + lane * (index + 0.5) + (9 if narrow else 0)
        canvas.add_text(24, middle - 14 if narrow else middle + 5, row.case, size=13)
        canvas.add_line(left, middle, width - right, middle)
        for peer, ratio in row.ratios.items():
            canvas.add_circle(
                place(ratio), middle, 6.5, _colour(peer), title=f"{row.case}: {ratio:g} x {peer}"
            )
    return canvas.to_document(width, bottom + 36)


def _colour(peer: str) -> str:
    return get_colour(PEERS.index(peer))


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    sections = read(PAGE.read_text())
    found = {name: draw(heading, sections[section]) for name, (section, heading) in SHOWN.items()}
    return found | {
        name.replace(".", ".narrow."): draw(heading, sections[section], narrow=True)
        for name, (section, heading) in SHOWN.items()
    }


def page(text: str) -> str:
    """Return the page with its table of fresh copies made anew."""
    rows = read(text)["fresh"]
    peers = [peer for peer in PEERS if any(peer in row.ratios for row in rows)]
    lines = ["| case | " + " | ".join(peers) + " |", "|---" * (len(peers) + 1) + "|"]
    for row in rows:
        figures = [f"{row.ratios[peer]:.1f}" if peer in row.ratios else "" for peer in peers]
        lines += [f"| {row.case} | {' | '.join(figures)} |"]
    table = "\n".join(lines)
    return _MARKED.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text()))
    for name, drawn in pictures().items():
        (PICTURES / name).write_text(drawn)
