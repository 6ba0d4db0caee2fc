"""``splitops explain``: what a split does to a tensor and its memory, in numbers and as a picture."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import console, json_option, print_json, say_written, table
from splitops.cli._operators import ELEMENT_TYPE, SHAPE, SplitOptions, split_options
from splitops.cli._paths import NEW_FILE
from splitops.errors import count_of
from splitops.explain import Explanation, Span, diagram, explain, memory_strip, svg, to_html
from splitops.ground.records import select_json_values
from splitops.ground.version import __version__
from splitops.ground.writing import write_whole
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators import OperatorSchema, display_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_MAX_ROWS: Final = 32
_MAX_PICTURE_WIDTH: Final = 100


@click.command(short_help="Show the sizes, shapes, bytes and memory blocks of a split.")
@click.option("--shape", type=SHAPE, required=True, metavar="N,N,...", help="Shape of the data.")
@split_options
@click.option(
    "--dtype",
    type=ELEMENT_TYPE,
    help="Element type of the data, such as float32, bfloat16, i4.  [default: float32]",
)
@click.option("--svg", "svg_file", type=NEW_FILE, help="Write the picture as SVG.")
@click.option(
    "--html",
    "html_file",
    type=NEW_FILE,
    help="Write a page on which the split can be changed: one file, which needs no network.",
)
@json_option
def command(
    shape: tuple[int, ...],
    options: SplitOptions,
    dtype: ElementType | None,
    svg_file: Path | None,
    html_file: Path | None,
    as_json: bool,
) -> None:
    """Show how a tensor is split: each part's offset, size, shape, bytes and place in memory, and a picture.

    No data is needed. A part is contiguous where a view of it is one unbroken block of row-major memory;
    otherwise it is made of blocks that repeat, and "blocks" says how many of how many elements.

    \b
    Examples:
      splitops explain --shape 6,12,10,24 --axis 1 --parts 3
      splitops explain --shape 8,50257 --axis -1 --chunk 4096 --dtype bfloat16
      splitops explain --shape 6,12 --sizes -1,2 --svg split.svg --html split.html
      splitops explain --shape 6,4 --sizes 2,4 --op Split-13 --json
    """
    element_type = dtype or ELEMENT_TYPES["float32"]
    row, plan = options.plan(shape, element_type)
    layout = explain(plan, element_type)
    if svg_file is not None:
        write_whole(svg_file, svg(layout, display_name(row)).encode())
    if html_file is not None:
        page = to_html(layout, _start(row, options, layout), display_name(row), __version__)
        write_whole(html_file, page.encode())
    if as_json:
        print_json(_json(row, layout))
    else:
        _print(row, layout)
        say_written(svg_file, html_file)


def _start(row: OperatorSchema, options: SplitOptions, layout: Explanation) -> dict[str, str]:
    """Return what the controls of the page say at first."""
    given = {"sizes": options.sizes, "parts": options.parts, "chunk": options.chunk, "ones": ""}
    way, numbers = next((way, value) for way, value in given.items() if value is not None)
    listed = numbers if isinstance(numbers, tuple) else (numbers,)
    return {
        "operator": display_name(row),
        "shape": ", ".join(map(str, layout.plan.shape)),
        "axis": str(options.axis or 0),
        "way": way,
        "numbers": ", ".join(map(str, listed)),
        "dtype": str(layout.element_type),
        "keepdims": str(int(options.keepdims is not False)),
    }


def _json(row: OperatorSchema, layout: Explanation) -> dict[str, Any]:
    plan = layout.plan
    return {
        "operator": str(row),
        "domain": row.domain,
        "shape": list(plan.shape),
        "dtype": str(layout.element_type),
        "axis": plan.axis,
        **select_json_values(layout, "bytes", "contiguous"),
        "parts": [select_json_values(part, *_OF_PART) for part in layout],
    }


_OF_PART: Final = (
    *("index", "offset", "size", "shape", "elements", "bytes", "contiguous", "runs", "run_elements"),
)


def _print(row: OperatorSchema, layout: Explanation) -> None:
    out = console()
    plan = layout.plan
    out.print(f"{display_name(row)}: {plan.shape} along axis {plan.axis}", style="bold")
    taken = "" if layout.bytes is None else f", {layout.bytes:,} bytes"
    after = plan.shape[plan.axis + 1 :]
    step = f"; one step along the axis holds {' x '.join(map(str, after))} elements" if after else ""
    out.print(f"{count_of(len(layout), 'part')}, {layout.element_type}{taken}{step}\n")
    width = min(out.width, _MAX_PICTURE_WIDTH)
    ascii_only = out.options.ascii_only
    for line in diagram(layout, width, ascii_only=ascii_only):
        out.print(_coloured(line, out), soft_wrap=True)
    if len(plan.shape) > 1:  # else the axis is the memory
        out.print()
        strip = [Span("memory  "), *memory_strip(layout, width - 8, ascii_only=ascii_only)]
        out.print(_coloured(strip, out), soft_wrap=True)
    _print_parts(out, layout)


def _print_parts(out: Console, layout: Explanation) -> None:
    right = ("offset", "size", "bytes each", "blocks", "elements in each")
    rows = table("part", "offset", "size", "shape", "bytes each", "blocks", "elements in each", right=right)
    alone = len(layout) <= _MAX_ROWS
    if alone:
        shown = [(str(part.index), part) for part in layout]
    else:
        groups = islice(layout.groups(), _MAX_ROWS)
        shown = [(group.label, group.first) for group in groups]
    for label, part in shown:
        taken = "" if part.bytes is None else f"{part.bytes:,}"
        runs = (f"{part.runs:,}", f"{part.run_elements:,}") if part.runs else ("", "empty")
        rows.add_row(label, f"{part.offset:,}", f"{part.size:,}", str(part.shape), taken, *runs)
    out.print(rows)
    if not alone and shown[-1][1].index + 1 < len(layout) and len(shown) == _MAX_ROWS:
        out.print("... and more parts; --json lists all of them.")
    if layout.contiguous:
        out.print("Every part is contiguous: its view is one unbroken block.")
    else:
        step = layout.size * layout.inner
        out.print(f"The blocks of a part begin {step:,} elements apart: a view of it is not contiguous.")


def _coloured(line: list[Span], out: Console) -> Text:
    """Colour the parts of a line: each in its colour, or in the next one after a part of the same colour."""
    from rich.text import Text

    styles = _styles(out)
    text = Text()
    before, last = None, -1
    for span in line:
        style = ""
        if span.part is not None:
            chosen = span.part % len(styles)
            chosen = (chosen + 1) % len(styles) if chosen == last and span.part != before else chosen
            before, last, style = span.part, chosen, styles[chosen]
        text.append(span.text, style)
    return text


def _styles(out: Console) -> list[str]:
    from splitops.explain.palette import PALETTE, TERMINAL, ink

    if out.color_system in ("truecolor", "256"):
        return [f"{ink(colour)} on {colour}" for colour in PALETTE]
    dark = ("blue", "magenta", "red")
    return [f"{'white' if colour in dark else 'black'} on {colour}" for colour in TERMINAL]
