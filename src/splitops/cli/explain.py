"""``splitops explain``: show the parts of a split and their place in memory, as numbers and as a diagram."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import json_option, make_console, make_table, print_json, print_written
from splitops.cli._operators import ELEMENT_TYPE, SHAPE, SplitOptions, split_options
from splitops.cli._paths import NEW_FILE
from splitops.common.atomic_write import write_atomically
from splitops.common.json_values import select_json_values
from splitops.common.version import __version__
from splitops.errors import count_of
from splitops.explain import Explanation, TextSpan, draw_diagram, draw_memory, explain, to_html, to_svg
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
@click.option("--svg", "svg_file", type=NEW_FILE, help="Write the diagram as SVG.")
@click.option(
    "--html",
    "html_file",
    type=NEW_FILE,
    help="Write an interactive HTML page on which the split can be changed. It needs no network.",
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
    """Show how a tensor is split: offset, size, shape, bytes and memory of each part, with a diagram.

    No data is needed. A part is contiguous if it is one block of row-major memory. Otherwise it consists of
    equal blocks, and the table has their number and their size in elements.

    \b
    Examples:
      splitops explain --shape 6,12,10,24 --axis 1 --parts 3
      splitops explain --shape 8,50257 --axis -1 --chunk 4096 --dtype bfloat16
      splitops explain --shape 6,12 --sizes -1,2 --svg split.svg --html split.html
      splitops explain --shape 6,4 --sizes 2,4 --op Split-13 --json
    """
    element_type = dtype or ELEMENT_TYPES["float32"]
    schema, plan = options.plan(shape, element_type)
    layout = explain(plan, element_type)
    if svg_file is not None:
        write_atomically(svg_file, to_svg(layout, display_name(schema)).encode())
    if html_file is not None:
        page = to_html(
            layout, _make_control_values(schema, options, layout), display_name(schema), __version__
        )
        write_atomically(html_file, page.encode())
    if as_json:
        print_json(_to_json(schema, layout))
    else:
        _print(schema, layout)
        print_written(svg_file, html_file)


def _make_control_values(
    schema: OperatorSchema, options: SplitOptions, layout: Explanation
) -> dict[str, str]:
    """Return the initial values of the controls of the interactive page."""
    given = {"sizes": options.sizes, "parts": options.parts, "chunk": options.chunk, "ones": ""}
    way, numbers = next((way, value) for way, value in given.items() if value is not None)
    listed = numbers if isinstance(numbers, tuple) else (numbers,)
    return {
        "operator": display_name(schema),
        "shape": ", ".join(map(str, layout.plan.shape)),
        "axis": str(options.axis or 0),
        "way": way,
        "numbers": ", ".join(map(str, listed)),
        "dtype": str(layout.element_type),
        "keepdims": str(int(options.keepdims is not False)),
    }


def _to_json(schema: OperatorSchema, layout: Explanation) -> dict[str, Any]:
    plan = layout.plan
    return {
        "operator": str(schema),
        "domain": schema.domain,
        "shape": list(plan.shape),
        "dtype": str(layout.element_type),
        "axis": plan.axis,
        **select_json_values(layout, "bytes", "contiguous"),
        "parts": [select_json_values(part, *_OF_PART) for part in layout],
    }


_OF_PART: Final = (
    *("index", "offset", "size", "shape", "elements", "bytes", "contiguous", "runs", "run_elements"),
)


def _print(schema: OperatorSchema, layout: Explanation) -> None:
    out = make_console()
    plan = layout.plan
    out.print(f"{display_name(schema)}: {plan.shape} along axis {plan.axis}", style="bold")
    taken = "" if layout.bytes is None else f", {layout.bytes:,} bytes"
    after = plan.shape[plan.axis + 1 :]
    step = f"; one step along the axis holds {' x '.join(map(str, after))} elements" if after else ""
    out.print(f"{count_of(len(layout), 'part')}, {layout.element_type}{taken}{step}\n")
    width = min(out.width, _MAX_PICTURE_WIDTH)
    ascii_only = out.options.ascii_only
    for line in draw_diagram(layout, width, ascii_only=ascii_only):
        out.print(_choose_colour(line, out), soft_wrap=True)
    if len(plan.shape) > 1:  # otherwise the diagram shows the memory already
        out.print()
        strip = [TextSpan("memory  "), *draw_memory(layout, width - 8, ascii_only=ascii_only)]
        out.print(_choose_colour(strip, out), soft_wrap=True)
    _print_parts(out, layout)


def _print_parts(out: Console, layout: Explanation) -> None:
    columns = ("part", "offset", "size", "shape", "bytes each", "blocks", "elements in each")
    rows = make_table(*columns, right=(*columns[1:3], *columns[4:]))
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


def _choose_colour(line: list[TextSpan], out: Console) -> Text:
    """Return a line of text with coloured parts. Adjacent parts do not get the same colour."""
    from rich.text import Text

    styles = _make_styles(out)
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


def _make_styles(out: Console) -> list[str]:
    from splitops.explain.palette import PALETTE, TERMINAL, get_ink

    if out.color_system in ("truecolor", "256"):
        return [f"{get_ink(colour)} on {colour}" for colour in PALETTE]
    dark = ("blue", "magenta", "red")
    return [f"{'white' if colour in dark else 'black'} on {colour}" for colour in TERMINAL]
