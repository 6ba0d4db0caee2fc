"""Draws how data flows through the packages, and writes architecture.md from their layers and docstrings.

Every box is a module, and every arrow an import between two of them: what is not there is not drawn.
"""

from __future__ import annotations

import ast
import configparser
import re
from itertools import chain, pairwise
from typing import Final, NamedTuple

from dev.pages import DOCS, PICTURES, ROOT
from splitops.explain.canvas import FAINT, FIELD, TEXT, Canvas
from splitops.explain.palette import get_colour

SOURCES: Final = ROOT / "src"


class Box(NamedTuple):
    """A module, and what it does in two or three words."""

    module: str
    words: str


LANES: Final = {
    "Arrays": (
        Box("calls", "arguments, memo"),
        Box("spec.operators", "a row a version"),
        Box("splitting.binding", "proves it valid"),
        Box("splitting.planning", "sizes, offsets"),
        Box("backends", "library by library"),
        Box("native", "moves bytes"),
    ),
    "Models": (
        Box("models.formats", "ONNX, OpenVINO IR"),
        Box("models.graph", "walk, edit"),
        Box("models.split_nodes", "one split each"),
        Box("models.infer", "what is known"),
        Box("models.sessions", "which engine runs what"),
        Box("models.engines", "the runtimes"),
    ),
    "Tools": (
        Box("models.simplify", "fewer splits"),
        Box("models.convert", "opset, dialect"),
        Box("models.check", "what runtimes reject"),
        Box("models.fix", "rewritten, verified"),
    ),
    "Files": (
        Box("files.formats", "names, places"),
        Box("files.tensors", "units, parts"),
        Box("files.extents", "runs of bytes"),
        Box("files.extent_tasks", "copied at a time"),
        Box("files.engine", "bounded memory"),
        Box("native", "moves bytes"),
    ),
    "Ranks": (
        Box("sharding.plan_language", "by name"),
        Box("sharding.tensor_sharding", "by size rules"),
        Box("sharding.placements", "rank by rank"),
        Box("sharding.assembly", "as extents"),
    ),
}
APART: Final = {"models.simplify", "models.convert", "splitting.planning"}
"""No import leads from here to the next box: tools, and plans of integers."""
BETWEEN: Final = (
    ("models.split_nodes", "splitting.binding"),
    ("models.infer", "models.fix"),
    ("sharding.assembly", "files.extent_tasks"),
)
"""Where a lane stands on one above it; a line goes straight up or down."""

_LEFT: Final = 122
_WIDTH: Final = 124
_HEIGHT: Final = 46
_STEP: Final = 142
_LANE: Final = 82


def imports() -> dict[str, set[str]]:
    """Return for each module of splitops those that it imports, wherever in it."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        asked = {node.module or "" for node in nodes}
        asked |= {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
        found[name] = asked
    return found


def knows(found: dict[str, set[str]], one: str, other: str) -> bool:
    """Whether a module, or one in it, imports another, or one in that."""
    asked = chain.from_iterable(names for module, names in found.items() if _within(module, one))
    return any(_within(name, other) for name in asked)


def _within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"splitops.{module}.")


def check(found: dict[str, set[str]]) -> None:
    """Prove the picture.

    Raises:
        AssertionError: a box is not a module, or an arrow no import.
    """
    boxes = [box.module for lane in LANES.values() for box in lane]
    for module in boxes:
        assert any(_within(name, module) for name in found), f"there is no {module}"
    pairs = [(a.module, b.module) for lane in LANES.values() for a, b in pairwise(lane)]
    for one, other in [*(pair for pair in pairs if pair[0] not in APART), *BETWEEN]:
        related = knows(found, one, other) or knows(found, other, one)
        assert related, f"neither {one} nor {other} imports the other"


def picture() -> str:
    """Return the picture of the flow."""
    check(imports())
    canvas = Canvas("How data flows through the packages of splitops")
    places: dict[str, tuple[float, float]] = {}
    for line, (title, lane) in enumerate(LANES.items()):
        top = 24.0 + line * _LANE
        canvas.add_text(20, top + 28, title, size=14, weight="600")
        for column, box in enumerate(lane):
            left = _LEFT + column * _STEP
            places.setdefault(box.module, (left, top))
            canvas.add_rect(left, top, _WIDTH, _HEIGHT, FIELD, rx="5")
            canvas.add_rect(left, top, 4, _HEIGHT, get_colour(line))
            canvas.add_text(left + 12, top + 20, box.module.rpartition(".")[2], size=13, weight="600")
            canvas.add_text(left + 12, top + 37, box.words, size=11, fill=FAINT)
            if column + 1 < len(lane) and box.module not in APART:
                _arrow(canvas, left + _WIDTH, top + _HEIGHT / 2)
    for one, other in BETWEEN:
        (x, upper), (_, lower) = sorted((places[one], places[other]), key=lambda place: place[1])
        canvas.add_line(x + 30, upper + _HEIGHT, x + 30, lower, FAINT, stroke_dasharray="3 3")
    return canvas.to_document(_LEFT + 6 * _STEP + 10, 24 + len(LANES) * _LANE - 12)


def narrow() -> str:
    """Return the same for a phone: two lanes beside one another, each from the top down."""
    canvas = Canvas("How data flows through the packages of splitops")
    lanes, top = list(LANES.items()), 16.0
    for line in range(0, len(lanes), 2):
        for left, (title, lane) in zip((12, 190), lanes[line : line + 2], strict=False):
            y = top + 16
            canvas.add_text(left, y, title, size=14, weight="600")
            for box in lane:
                others = [other for one, other in BETWEEN if one == box.module]
                words = (box.words, *(f"uses {other.rpartition('.')[2]}" for other in others))
                height = 26 + 16 * len(words)
                y += 12
                canvas.add_rect(left, y, 158, height, FIELD, rx="5")
                canvas.add_rect(left, y, 4, height, get_colour(line + (left > 12)))
                canvas.add_text(left + 12, y + 18, box.module.rpartition(".")[2], size=13, weight="600")
                for row, text in enumerate(words):
                    canvas.add_text(left + 12, y + 35 + 16 * row, text, size=12, fill=FAINT)
                y += height
        top += 32 + max(
            sum(58 + 16 * any(b.module == one for one, _ in BETWEEN) for b in lane)
            for _, lane in lanes[line : line + 2]
        )
    return canvas.to_document(360, top)


def _arrow(canvas: Canvas, x: float, y: float) -> None:
    canvas.add_text(x + 3, y + 5, "\N{RIGHTWARDS ARROW}", size=13, fill=TEXT)


def layers() -> str:
    """Write the layers of the package as a table, from the top down."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    lines = contract["importlinter:contract:layers"]["layers"].split("\n")
    rows = []
    for line in filter(None, lines):
        names = [name.strip("() ") for name in line.replace("|", ":").split(":")]
        said = "<br>".join(f"`{name}`: {summary(name)}" for name in names)
        rows.append(f"| {said} |")
    return "| from the top down |\n|---|\n" + "\n".join(rows) + "\n"


def summary(name: str) -> str:
    """Return the first line of a module's docstring."""
    path = SOURCES / "splitops" / name
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    line = re.sub(r":\w+:(?=`)", "", text.partition("\n")[0])
    return line.replace("``", "`").replace("|", "&#124;")


TEMPLATE: Final = """# How it is built

<!-- Made by dev/pages/architecture.py from the packages. -->

Data flows one way. A call or a node of a model is looked up in a row of data. Binding proves that it is
valid, or says what is wrong. Planning turns it into integers, and a backend executes these. Only `spec`
computes sizes.

![Lanes of packages: arrays, models, tools, files and ranks, each from its input to what does the
work](pictures/flow.svg)

An arrow is an import between two packages, and so is a dashed line (on a phone: *uses*). A split in a model
is bound as a call is, tools use what inference knows, and ranks are cut by the same extents as files.

## Layers

Imports run downwards only, and a test checks this. A package may import those below it. Some packages of one
line import each other.

"""


def page() -> str:
    """Return architecture.md."""
    return TEMPLATE + layers()


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    return {"flow.svg": picture(), "flow.narrow.svg": narrow()}


def write() -> None:
    """Write the pages and pictures of this module."""
    (DOCS / "architecture.md").write_text(page())
    for file, drawn in pictures().items():
        (PICTURES / file).write_text(drawn)
