#!/usr/bin/env python3
"""Draws the size rules at their edges: sizes.md, its pictures, and the page on which a split can be changed.

python docs/generate_sizes.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import splitops
from splitops.explain import EXAMPLES, explain, svg, to_html
from splitops.operators import SCHEMAS, OperatorSchema, display_name

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures"

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
    sections = [f"## {name[0].upper()}{name[1:]}\n\n{_shown(name)}" for name in EXAMPLES]
    return TEMPLATE + "\n".join(sections)


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
    found = {}
    for name, said in EXAMPLES.items():
        try:
            found[_file(name)] = svg(explain(_plan(said)), said["operator"])
        except splitops.RuleError:
            continue
    return found


def interactive() -> str:
    """Return the page on which a split can be changed."""
    start = {"axis": "1", "dtype": "float32", "keepdims": "1", **EXAMPLES["7 into 4"], "shape": "2, 7, 4"}
    plan = splitops.plan("Split", shape=(2, 7, 4), axis=1, num_outputs=4)
    return to_html(explain(plan), start, "Split-18", splitops.__version__)


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


TEMPLATE: Final = """# The size rules, drawn

<!-- Made by docs/generate_sizes.py. -->

How each rule divides an axis, at the edges where implementations differ. Why each is what it is stands in
[what each operator means](semantics.md); [on this page](explain.html) shape, axis and rule can be changed.
`splitops explain` draws these pictures, and writes that page with `--html`.

"""

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    (DOCS / "sizes.md").write_text(page())
    (DOCS / "explain.html").write_text(interactive())
    for file, picture in pictures().items():
        (PICTURES / file).write_text(picture)
