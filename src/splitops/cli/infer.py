"""``splitops infer``: infer the types and shapes of a model's values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    escape,
    group_equal_rows,
    json_option,
    make_console,
    make_table,
    print_json,
    print_model_written,
)
from splitops.cli._models import MODEL_FILE, check_extension, dry_run_option, links_option, make_out_option
from splitops.common.json_values import select_json_values
from splitops.errors import count_of, format_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splitops.models.infer import InferredModel, InferredValue

_MAX_ROWS: Final = 200


@click.command(short_help="Infer the types and shapes of a model's values.")
@click.argument("model", type=MODEL_FILE)
@make_out_option("File to write: the model with its shapes. Without it, only show them.")
@click.option("--all", "show_all", is_flag=True, help="Show all values, not only those with new facts.")
@click.option("--for", "runtime", type=click.Choice(["openvino"]), help="Infer the splits of IR as this "
              "runtime does, which accepts more than the specification.")  # fmt: skip
@dry_run_option
@links_option
@json_option
def command(
    model: Path,
    out: Path | None,
    show_all: bool,
    runtime: str | None,
    dry_run: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Infer types and shapes in MODEL, a .onnx file or the .xml of an OpenVINO IR.

    A size is a number, an expression such as N/2, a range such as 2..6, or ? if it is unknown. Values that
    the model computes from shapes are tracked.

    \b
    Examples:
      splitops infer model.onnx
      splitops infer model.onnx -o model.shapes.onnx
      splitops infer model.xml --json
    """
    from splitops.models import is_openvino
    from splitops.models.formats.files import write_model
    from splitops.models.infer import infer

    check_extension(model, out, openvino=is_openvino(model))
    inferred = infer(model, as_openvino=runtime is not None, allow_links=allow_links)
    out = None if dry_run else out
    files = () if out is None else write_model(inferred.model, out)
    if as_json:
        print_json(_to_json(inferred))
    else:
        _print(inferred, show_all, files)


def _to_json(inferred: InferredModel) -> dict[str, Any]:
    return {
        "values": [
            select_json_values(value, "graph", "name")
            | {"before": _to_text(value.before), "after": _to_text(value.after)}
            for value in inferred.values
        ]
    }


def _to_text(known: object) -> str | None:
    return None if known is None else str(known)


def _print(inferred: InferredModel, show_all: bool, files: Sequence[Path]) -> None:
    values = [value for value in inferred.values if show_all or value.is_new]
    rows = group_equal_rows(_sort(values, inferred), lambda value: (value.graph, *_format_cells(value)))
    screen = make_console()
    if rows:
        screen.print(_make_table(rows[:_MAX_ROWS]))
    if len(rows) > _MAX_ROWS:
        screen.print(f"... and {len(rows) - _MAX_ROWS} more; --json lists all")
    found = sum(value.is_new for value in inferred.values)
    screen.print(
        f"{count_of(len(inferred.values), 'value')}, {found} with a new or more exact type or shape; "
        f"{count_of(len(inferred.splits), 'split node')}"
    )
    print_model_written(files)


def _sort(values: list[InferredValue], inferred: InferredModel) -> list[InferredValue]:
    """Sort values with a new type or shape first. Within both groups, outputs of splits come first."""
    parts = {(split_node.where.graph, name) for split_node in inferred.splits for name in split_node.outputs}
    return sorted(values, key=lambda value: (not value.is_new, (value.graph, value.name) not in parts))


def _format_cells(value: InferredValue) -> tuple[str, str]:
    return _to_text(value.before) or "", _to_text(value.after) or ""


def _make_table(rows: list[list[InferredValue]]) -> Any:
    shown = make_table("graph", "value", "before", "after")
    for values in rows:
        names = format_list([escape(value.name, 80) for value in values], limit=3)
        cells = (values[0].graph or "", *_format_cells(values[0]))
        graph, before, after = (escape(cell, 200) for cell in cells)
        shown.add_row(graph, names, before, after)
    return shown
