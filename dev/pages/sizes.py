"""Writes sizes.md and its pictures of the size rules, and makes explain.html for the site."""

from __future__ import annotations

import re
from typing import Any, Final

import splitops
from dev.pages import DOCS, PICTURES
from splitops.explain import EXAMPLES, explain, to_html, to_svg
from splitops.explain.canvas import FAINT, PAPER, Canvas
from splitops.explain.palette import get_colour, get_ink
from splitops.spec import SCHEMAS, OperatorSchema, display_name

_WIDTH: Final = 960
_NARROW: Final = 360
_LANE: Final = 58

RULES: Final = {
    "7 into 4": "`num_outputs` = 4 of 7: parts of ceil(7 / 4) = 2 as long as the axis lasts, then the rest.",
    "5 into 4": "The third part gets the rest of 5, and the last part is empty.",
    "3 into 5": "If there are more parts than positions, the last parts are empty.",
    "10 into 4": "The parts are 3, 3, 3 and 1, not 3, 3, 2 and 2.",
    "2, 0, 4": "Given lengths must sum to the size of the axis. A length may be 0.",
    "1, -1, 2": "One length of VariadicSplit may be -1: this part takes what the others leave.",
    "chunks of 4": "A scalar of SplitToSequence is the size of each part. The last one may be smaller.",
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


def beside_one_another(width: int = _WIDTH) -> str:
    """Draw each example as one bar of its axis, all at one scale, with the sizes of the parts."""
    left = 190 if width == _WIDTH else 24
    box = (width - left - 30) // 10
    canvas = Canvas("The size rules at their edges, beside one another")
    canvas.add_text(24, 36, "One position of the axis is one box wide", size=13, fill=FAINT)
    top, below = 56.0, 0 if width == _WIDTH else 46
    for name, said in EXAMPLES.items():
        canvas.add_text(24, top + 19, name, size=15, weight="600")
        canvas.add_text(24, top + 37, said["operator"], size=12, fill=FAINT)
        plan = _plan_of(name)
        if plan is None:
            canvas.add_text(
                left, top + below + 24, "rejected: the number of parts must divide the axis", size=12
            )
        else:
            _bar(canvas, plan, left, top + below, box)
        top += _LANE + below
    return canvas.to_document(width, top + 4)


def _bar(canvas: Canvas, plan: Any, left: float, top: float, box: int) -> None:
    none = max(20, box // 2)
    for part, size in enumerate(plan.sizes):
        if not size:
            canvas.add_rect(left, top, none - 4, 34, PAPER, stroke=FAINT, stroke_dasharray="3 3")
            canvas.add_text(left + (none - 4) / 2, top + 22, "0", size=14, fill=FAINT, anchor="middle")
            left += none
            continue
        width = size * box - 4
        canvas.add_rect(left, top, width, 34, get_colour(part), title=f"part {part}: {size}")
        canvas.add_text(
            left + width / 2, top + 22, f"{size}", size=15, fill=get_ink(get_colour(part)), anchor="middle"
        )
        left += size * box


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
    found = {"rules.svg": beside_one_another(), "rules.narrow.svg": beside_one_another(_NARROW)}
    for name, plan in plans.items():
        layout, title, file = explain(plan), EXAMPLES[name]["operator"], _file(name)
        found |= {file: to_svg(layout, title), file.replace(".", ".narrow."): to_svg(layout, title, _NARROW)}
    return found


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


TEMPLATE: Final = """# See the split sizes of each rule

<!-- Made by dev/pages/sizes.py. -->

How each rule divides an axis, at the edges where implementations differ. [What each operator
means](semantics.md) has the reasons. [Try a split](explain.html) to change the shape, the axis and the rule.
`splitops explain` draws these pictures with `--svg`, and writes that page with `--html`.

"""


def write() -> None:
    """Write the pages and pictures of this module."""
    PICTURES.mkdir(exist_ok=True)
    (DOCS / "sizes.md").write_text(page())
    for file, picture in pictures().items():
        (PICTURES / file).write_text(picture)
