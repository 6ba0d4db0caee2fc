#!/usr/bin/env python3
"""Draws the size rules at their edges: sizes.md and its pictures. The site makes explain.html as it is built.

python docs/generate_sizes.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import splitops
from splitops.explain import EXAMPLES, explain, svg, to_html
from splitops.explain.canvas import FAINT, PAPER, Canvas
from splitops.explain.palette import colour, ink
from splitops.spec import SCHEMAS, OperatorSchema, display_name

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures"

_WIDTH: Final = 960
_LEFT: Final = 190
_LANE: Final = 58
_BOX: Final = 70
_NONE: Final = 34
"""How wide a part of no position is drawn."""

RULES: Final = {
    "7 into 4": "`num_outputs` = 4 of 7: ceil(7 / 4) = 2 as long as the axis lasts, then what is left.",
    "5 into 4": "of 5, the third part gets what is left, and the last one nothing.",
    "3 into 5": "with more parts than there are positions, the last ones are empty.",
    "10 into 4": "3, 3, 3 and 1: not 3, 3, 2 and 2.",
    "2, 0, 4": "Given lengths must sum to the size of the axis; 0 is a length.",
    "1, -1, 2": "Of VariadicSplit, one length may be -1: it takes what the others leave.",
    "chunks of 4": "A scalar of SplitToSequence is the size of each part; the last one may be smaller.",
    "not divisible": "Up to opset 13, the number of declared outputs must divide the size.",
}
"""What is to be seen in each picture."""


def page() -> str:
    """Return sizes.md."""
    sections = [_beside(), *(f"## {name[0].upper()}{name[1:]}\n\n{_shown(name)}" for name in EXAMPLES)]
    return TEMPLATE + "\n".join(sections)


def _beside() -> str:
    plans = {name: plan for name in EXAMPLES if (plan := _plan_of(name)) is not None}
    words = "; ".join(f"{name}: {', '.join(map(str, plan.sizes))}" for name, plan in plans.items())
    return f"![The rules at their edges, beside one another. {words}](pictures/rules.svg)\n"


def beside_one_another() -> str:
    """Draw each example as one bar of its axis, all at one scale, with the sizes of the parts."""
    canvas = Canvas("The size rules at their edges, beside one another")
    canvas.text(24, 36, "One position of the axis is one box wide", size=13, fill=FAINT)
    top = 56.0
    for name, said in EXAMPLES.items():
        canvas.text(24, top + 19, name, size=15, weight="600")
        canvas.text(24, top + 37, said["operator"], size=12, fill=FAINT)
        plan = _plan_of(name)
        if plan is None:
            canvas.text(_LEFT, top + 24, "rejected: the number of parts must divide the axis", size=14)
        else:
            _bar(canvas, plan, top)
        top += _LANE
    return canvas.document(_WIDTH, top + 4)


def _bar(canvas: Canvas, plan: Any, top: float) -> None:
    left = float(_LEFT)
    for part, size in enumerate(plan.sizes):
        if not size:
            canvas.rect(left, top, _NONE - 4, 34, PAPER, stroke=FAINT, stroke_dasharray="3 3")
            canvas.text(left + (_NONE - 4) / 2, top + 22, "0", size=14, fill=FAINT, anchor="middle")
            left += _NONE
            continue
        width = size * _BOX - 4
        canvas.rect(left, top, width, 34, colour(part), title=f"part {part}: {size}")
        canvas.text(left + width / 2, top + 22, f"{size}", size=15, fill=ink(colour(part)), anchor="middle")
        left += size * _BOX


def _shown(name: str) -> str:
    said = EXAMPLES[name]
    title = f"{said['operator']}: axis of size {said['shape']}, {said['numbers']}"
    try:
        splitops_plan = _plan(said)
    except splitops.RuleError as error:
        return f"{RULES[name]} `{error}`\n"
    sizes = ", ".join(map(str, splitops_plan.sizes))
    return f"{RULES[name]}\n\n![{title}: the parts are {sizes}](pictures/{_file(name)})\n"


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    plans = {name: plan for name in EXAMPLES if (plan := _plan_of(name)) is not None}
    found = {_file(name): svg(explain(plan), EXAMPLES[name]["operator"]) for name, plan in plans.items()}
    return {"rules.svg": beside_one_another(), **found}


def interactive() -> str:
    """Return the page on which a split can be changed."""
    start = {"axis": "1", "dtype": "float32", "keepdims": "1", **EXAMPLES["7 into 4"], "shape": "2, 7, 4"}
    plan = splitops.plan("Split", shape=(2, 7, 4), axis=1, num_outputs=4)
    return to_html(explain(plan), start, "Split-18", splitops.__version__, home="index.html")


def _plan_of(name: str) -> Any:
    """Return the plan of an example; None where a rule rejects it."""
    try:
        return _plan(EXAMPLES[name])
    except splitops.RuleError:
        return None


def _plan(said: dict[str, str]) -> Any:
    row = next(row for row in SCHEMAS if display_name(row) == said["operator"])
    numbers = [int(number) for number in said["numbers"].split(",")]
    name, value = _argument(row, said["way"], numbers)
    shape = tuple(map(int, said["shape"].split(",")))
    domain = row.domain or None
    return splitops.plan(
        row.name, opset=row.since_version, domain=domain, shape=shape, axis=0, **{name: value}
    )


def _argument(row: OperatorSchema, way: str, numbers: list[int]) -> tuple[str, Any]:
    if way == "parts":
        assert row.count is not None
        return row.count.name, numbers[0]
    return row.lengths[0].name, numbers if way == "sizes" else numbers[0]


def _file(name: str) -> str:
    return f"{re.sub('[^0-9a-z]+', '-', name)}.svg"


TEMPLATE: Final = """# See the size rules

<!-- Made by docs/generate_sizes.py. -->

How each rule divides an axis, at the edges where implementations differ. Why each is what it is is in
[what each operator means](semantics.md); [on this page](explain.html) shape, axis and rule can be changed.
`splitops explain` draws these pictures, and writes that page with `--html`.

"""

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    (DOCS / "sizes.md").write_text(page())
    for file, picture in pictures().items():
        (PICTURES / file).write_text(picture)
