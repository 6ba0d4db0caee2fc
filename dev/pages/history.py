"""Draws the versions of the operators as a timeline: pictures/history.svg."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import splitops
from dev.pages import PICTURES
from splitops.explain.canvas import FAINT, Canvas
from splitops.explain.palette import get_colour, get_ink
from splitops.spec import FAMILY, OperatorSchema, SizeRule, display_name

_WIDTH: Final = 960
_NARROW: Final = 360
_LEFT: Final = 214
_RIGHT: Final = 24
_STRIPE: Final = 22
_LANE: Final = 100
_COLOURS: Final = {rule: get_colour(index) for index, rule in enumerate(SizeRule)}


def picture() -> str:
    """Return the timeline: a lane for each operator, a bar for each version, in it a stripe for each rule."""
    lanes = [
        (f"{'OpenVINO ' if domain else ''}{name}", splitops.history(name, domain))
        for domain, names in FAMILY.items()
        for name in names
    ]
    opsets = sorted({row.since_version for _, rows in lanes for row in rows})
    step = (_WIDTH - _LEFT - _RIGHT) / len(opsets)
    places = {opset: _LEFT + index * step for index, opset in enumerate(opsets)}
    canvas = Canvas("Versions of the split operators by opset")
    canvas.add_text(24, 36, "Versions by opset, and the size rules that they have", size=18, weight="600")
    canvas.add_text(24, 70, "since opset", size=12, fill=FAINT)
    for opset, x in places.items():
        canvas.add_text(x, 70, f"{opset}", size=13, weight="600", fill=FAINT)
        canvas.add_line(x - 4, 58, x - 4, 82 + len(lanes) * _LANE - 20)
    top = 82.0
    for name, rows in lanes:
        canvas.add_text(24, top + 22, name, size=14, weight="600")
        ends = [*(places[row.since_version] for row in rows), _WIDTH - _RIGHT + 8]
        for row, (left, right) in zip(rows, pairwise(ends), strict=True):
            _version(canvas, row, left, top, right - left - 8)
        top += _LANE
    return canvas.to_document(_WIDTH, top)


def _version(canvas: Canvas, row: OperatorSchema, left: float, top: float, width: float) -> None:
    said = f"{display_name(row)}: {', '.join(rule.value for rule in row.size_rules)}"
    for rule in row.size_rules:
        canvas.add_rect(left, top, width, _STRIPE, _COLOURS[rule], title=said)
        canvas.add_text(left + 7, top + 15, rule.value, size=12, fill=get_ink(_COLOURS[rule]))
        top += _STRIPE
    for text in _sources(row):
        top += 14
        canvas.add_text(left, top, text, size=11, fill=FAINT)


def _sources(row: OperatorSchema) -> list[str]:
    """Say where lengths come from, and where their number."""
    sources = [*row.lengths, *([] if row.count is None else [row.count])]
    return [str(source).replace("'", "").replace("number of ", "") for source in sources]


def narrow() -> str:
    """Return the same for a phone: the versions of an operator below one another."""
    canvas = Canvas("Versions of the split operators by opset")
    canvas.add_text(16, 30, "Versions, and their size rules", size=15, weight="600")
    top = 44.0
    for domain, names in FAMILY.items():
        for name in names:
            top += 20
            canvas.add_text(16, top, f"{'OpenVINO ' if domain else ''}{name}", size=14, weight="600")
            top += 10
            for row in splitops.history(name, domain):
                canvas.add_text(16, top + 15, f"opset {row.since_version}", size=12, fill=FAINT)
                x = 80.0
                for rule in row.size_rules:
                    canvas.add_rect(x, top, 84, _STRIPE, _COLOURS[rule])
                    canvas.add_text(x + 7, top + 15, rule.value, size=12, fill=get_ink(_COLOURS[rule]))
                    x += 88
                for text in _sources(row):
                    top += 14
                    canvas.add_text(80, top + _STRIPE, text, size=12, fill=FAINT)
                top += _STRIPE + 10
    return canvas.to_document(_NARROW, top + 8)


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    return {"history.svg": picture(), "history.narrow.svg": narrow()}


def write() -> None:
    """Write the pages and pictures of this module."""
    for name, drawn in pictures().items():
        (PICTURES / name).write_text(drawn)
