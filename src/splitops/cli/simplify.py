"""``splitops simplify``: remove, merge and shorten splits, and list the changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    check_extension,
    dry_run_option,
    links_option,
    make_for_option,
    make_out_option,
    print_outcome,
)
from splitops.cli._options import BYTES, suggest
from splitops.cli._verification import (
    CHECK_MODEL,
    add_verify_options,
    check_verify_inputs,
    get_runtime,
    print_failed,
    print_verifications,
    verify_in,
)
from splitops.common.json_values import select_json_values
from splitops.errors import count_of, format_list
from splitops.models import is_openvino

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splitops.models.check import Target
    from splitops.models.fix import FixReport
    from splitops.models.simplify import Simplification
    from splitops.models.verify import Verification

_MAX_ROWS = 40


@click.command(short_help="Remove, merge and shorten the splits of a model.")
@click.argument("model", type=MODEL_FILE, required=False)
@make_out_option()
@make_for_option(
    "Runtime that must execute the result correctly, as in splitops fix: after the rewrites, its splits are "
    "fixed for it. Nothing is written if one cannot be fixed. Repeatable."
)
@click.option(
    "--rewrite",
    "rewrites",
    multiple=True,
    metavar="NAME",
    help="Apply only this rewrite. Repeatable; --list shows all rewrites.",
)
@click.option("--limit", type=BYTES, default="64K", metavar="BYTES", help="Maximum size of folded constants.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["numerics"]),
    help="numerics: allow rewrites that change the last bits of floats.",
)
@click.option("--list", "as_list", is_flag=True, help="Only list the rewrites.")
@add_verify_options("the simplified model")
@dry_run_option
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path | None,
    out: Path | None,
    targets: tuple[Target, ...],
    rewrites: tuple[str, ...],
    allow: tuple[str, ...],
    limit: int,
    verify: bool,
    inputs: tuple[str, ...],
    dry_run: bool,
    as_list: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Simplify the splits of MODEL, a .onnx file or the .xml of an OpenVINO IR, and the nodes around them.

    Needless Splits, Slices, Gathers, Concats, Reshapes and Transposes are removed or merged. Values and
    shapes do not change. Other nodes are left alone: onnxslim simplifies complete ONNX models, and OpenVINO
    simplifies IR when it compiles it. Changes that splitops fix made for a runtime are not undone, unless
    --for or --rewrite is set.

    \b
    Examples:
      splitops simplify model.onnx -o simple.onnx
      splitops simplify model.xml --verify -o simple.xml
      splitops simplify model.onnx --for npu.toml -o simple.onnx
      splitops simplify model.onnx --rewrite cancel-split-concat --rewrite merge-splits --json
      splitops simplify model.onnx --allow numerics -o simple.onnx
      splitops simplify --list
    """
    from splitops.models.fix import fix_with_report
    from splitops.models.formats.files import write_model
    from splitops.models.simplify import REWRITES, simplify_with_report
    from splitops.models.simplify.driver import replace_model

    if as_list:
        _print_rewrites(as_json)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    for name in rewrites:
        if name not in REWRITES:
            raise click.BadParameter(
                f"No such rewrite {name!r}.{suggest(name, REWRITES)} --list shows all.",
                param_hint="--rewrite",
            )
    check_verify_inputs(inputs, verify=verify)
    check_extension(model, out, openvino=is_openvino(model))
    # Rewrites that undo a fix may be applied, since the result is fixed again.
    names = rewrites or ([row.name for row in REWRITES.values() if row.default] if targets else None)
    found = simplify_with_report(model, names, allow=allow, limit=limit, allow_links=allow_links)
    fixed = fix_with_report(found.model, targets, partial=True) if targets else None
    if fixed is not None:
        found = replace_model(found, fixed.model)
    unfixable = fixed is not None and fixed.error is not None
    checks: list[Verification] = []
    if verify and not unfixable:
        runtime = get_runtime(found.model)
        checks = verify_in([runtime], model, found.model, inputs, allow_links=allow_links)
    failed = not all(found.holds for found in checks)
    written = None if dry_run or failed or unfixable else out
    files = () if written is None else write_model(found, written)
    if as_json:
        print_json(_to_json(model, written, found, fixed, checks))
    else:
        _print(found)
        _print_fixed(found, fixed)
        print_verifications(checks)
        if failed:
            print_failed("the simplified model", checks, CHECK_MODEL)
        elif not unfixable and (out is not None or found.changes):
            print_outcome(out, files)
    if failed or unfixable:
        ctx.exit(1)


def _print_rewrites(as_json: bool) -> None:
    from splitops.models.simplify import REWRITES

    if as_json:
        rows = [
            select_json_values(row, "name", "summary", "default", "openvino") for row in REWRITES.values()
        ]
        print_json({"rewrites": rows})
        return
    listed = make_table("rewrite", "what it does", "applied")
    for row in REWRITES.values():
        models = "ONNX, OpenVINO" if row.openvino else "ONNX"
        listed.add_row(row.name, row.summary, models if row.default else f"{models}, only by --rewrite")
    make_console().print(listed)


def _to_json(
    model: Path,
    out: Path | None,
    found: Simplification,
    fixed: FixReport | None,
    checks: Sequence[Verification],
) -> dict[str, Any]:
    return {
        "model": str(model),
        "out": None if out is None else str(out),
        "verified": next((found.as_dict() for found in checks), None),
        **select_json_values(found, "nodes_before", "nodes_after", "changes", "kept_for"),
        "runtimes": [] if fixed is None else list(fixed.runtimes),
        "fixed": [] if fixed is None else [split.as_dict() for split in (*fixed.rewritten, *fixed.unfixable)],
    }


def _print(found: Simplification) -> None:
    terminal = make_console()
    if not found.changes:
        terminal.print("Nothing to simplify. Only splits and the nodes around them are simplified.")
    else:
        rows = make_table("node", "before", "after", "rewrite", "reason")
        groups = group_equal_rows(found.changes, lambda made: (made.before, made.rewrite, made.reason))
        for group in groups[:_MAX_ROWS]:
            first, where = group[0], format_list([format_place(change.where) for change in group], limit=3)
            after = format_list(list(dict.fromkeys(escape(change.after, 200) for change in group)), limit=3)
            rows.add_row(where, escape(first.before, 200), after, first.rewrite, first.reason)
        terminal.print(rows)
        if len(groups) > _MAX_ROWS:
            terminal.print(f"... and {len(groups) - _MAX_ROWS} more; --json lists all")
        terminal.print(f"{found.nodes_before} nodes, now {found.nodes_after}.")


def _print_fixed(found: Simplification, fixed: FixReport | None) -> None:
    """Print the runtimes whose fixes were preserved, the number of fixed splits, and why fixing failed."""
    terminal = make_console()
    if found.kept_for:
        terminal.print(
            f"The model was fixed for {escape(', '.join(found.kept_for))}, so rewrites that could undo "
            "the fix were not applied. To apply them and fix the result again, use --for.",
            soft_wrap=True,
        )
    if fixed is None:
        return
    runtimes = ", ".join(fixed.runtimes)
    terminal.print(f"{count_of(len(fixed.rewritten), 'split')} rewritten for {runtimes}.", soft_wrap=True)
    if fixed.error is not None:
        terminal.print(escape(f"Cannot be fixed: {fixed.error}", 400), style="bold red", soft_wrap=True)
        terminal.print("Nothing was written.")
