"""``splitops convert``: convert a model to another opset or format, or rewrite its splits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    escape,
    format_place,
    group_equal_rows,
    json_option,
    make_console,
    make_table,
    print_json,
)
from splitops.cli._models import (
    MODEL_FILE,
    TARGET,
    check_extension,
    dry_run_option,
    links_option,
    make_out_option,
    print_outcome,
)
from splitops.cli._verification import (
    CHECK_MODEL,
    add_verify_options,
    check_verify_inputs,
    get_runtime,
    print_failed,
    print_verifications,
    verify_in,
)
from splitops.errors import format_list
from splitops.models import is_openvino

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splitops.models.convert import Change, Conversion, ConversionTarget
    from splitops.models.verify import Verification

_MAX_ROWS: Final = 200


@click.command(short_help="Convert a model to another opset or format.")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--to",
    "target",
    type=TARGET,
    metavar="TARGET",
    help="onnx:OPSET or openvino:opsetNUMBER, such as onnx:11 or openvino:opset8. Without a number, the "
    "newest.",
)
@click.option("--splits-only", is_flag=True, help="Keep the opset and only rewrite the splits.")
@click.option(
    "--style",
    type=click.Choice(["same", "lengths", "count"]),
    help="Preferred style of splits: same as in MODEL, the lengths of the parts, or the count of parts.",
)
@make_out_option("File to write: .onnx, or .xml with a .bin next to it. Without it, only show the changes.")
@add_verify_options("the converted model")
@dry_run_option
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    target: ConversionTarget | None,
    splits_only: bool,
    style: str | None,
    out: Path | None,
    verify: bool,
    inputs: tuple[str, ...],
    dry_run: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Convert MODEL (.onnx or .xml) and report every split before and after, or why it cannot be converted.

    Values and shapes never change. Nodes that the target does not have are rewritten exactly, or rejected. If
    a node is rejected, nothing is written and the exit code is 1.

    \b
    Examples:
      splitops convert model.onnx --to onnx:11 -o old.onnx
      splitops convert model.onnx --to openvino --verify -o model.xml
      splitops convert model.xml --to onnx:18 -o model.onnx
      splitops convert model.onnx --splits-only --style count -o model2.onnx
    """
    if (target is None) is not splits_only:
        raise click.UsageError("Set either --to TARGET or --splits-only.")
    from splitops.models.convert import convert_with_report
    from splitops.models.formats.files import write_model

    check_verify_inputs(inputs, verify=verify)
    check_extension(
        model, out, openvino=is_openvino(model) if target is None else target.domain == "openvino"
    )
    report = convert_with_report(
        model,
        to=None if target is None else str(target),
        splits_only=splits_only,
        style=style,
        allow_links=allow_links,
    )
    checks: list[Verification] = []
    if verify and report.complete:
        runtime = get_runtime(report.model)
        checks = verify_in([runtime], model, report.model, inputs, allow_links=allow_links)
    failed = not all(found.holds for found in checks)
    written = None if dry_run or failed else out
    if as_json:
        print_json(_to_json(report, written, checks))
    else:
        _print(report)
        print_verifications(checks)
    _ = report.model  # raises if a node was rejected, so that the exit code is 1 without --out, too
    if failed:
        if not as_json:
            print_failed("the converted model", checks, CHECK_MODEL)
        ctx.exit(1)
    files = () if written is None else write_model(report, written)
    if not as_json and (out is not None or report.changes):
        print_outcome(out, files)


def _to_json(report: Conversion, output: Path | None, checks: Sequence[Verification]) -> dict[str, Any]:
    problem = report.problem
    return {
        "target": report.target,
        "complete": report.complete,
        "problem": None if problem is None else str(problem),
        "output": str(output) if output is not None and report.complete else None,
        "verified": next((found.as_dict() for found in checks), None),
        "changes": [change.as_dict() for change in report.changes],
    }


def _print(report: Conversion) -> None:
    out = make_console()
    out.print(f"to {report.target}", style="bold")
    if not report.changes:
        if report.problem is None:
            out.print("The model has no split, and nothing else changed.")
        return
    changes = make_table("where", "before", "result", "after, or why not")
    rows = group_equal_rows(
        sorted(report.changes, key=_get_sort_key),
        lambda change: (change.before, change.status, _describe_result(change)),
    )
    for row in rows[:_MAX_ROWS]:
        first = row[0]
        where = format_list([format_place(change.where) for change in row], limit=3)
        changes.add_row(
            where, escape(first.before, 200), first.status.value, escape(_describe_result(first), 400)
        )
    out.print(changes)
    if len(rows) > _MAX_ROWS:
        out.print(f"... and {len(rows) - _MAX_ROWS} more; --json lists all")


def _get_sort_key(change: Change) -> tuple[bool, bool, bool]:
    """Return the sort key: rejections come first, unchanged nodes last, and splits before other nodes."""
    return change.error is None, change.status.value == "kept", not change.is_split


def _describe_result(change: Change) -> str:
    return change.error.message if change.error is not None else change.after or ""
