"""``splitops simplify``: remove, merge and shorten splits, and list the changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import (
    alike,
    console,
    json_option,
    one_line,
    place,
    places,
    print_json,
    table,
)
from splitops.cli._models import (
    MODEL_FILE,
    dry_run_option,
    for_option,
    hold,
    links_option,
    out_option,
    print_end,
)
from splitops.cli._options import BYTES, did_you_mean
from splitops.cli._verification import (
    hold_inputs,
    print_failed,
    print_verifications,
    runtime_of,
    verify_in,
    verify_options,
)
from splitops.errors import count_of
from splitops.ground.records import select_json_values
from splitops.models import is_openvino

if TYPE_CHECKING:
    from splitops.models.check import Target
    from splitops.models.fix import FixReport
    from splitops.models.simplify import Simplification
    from splitops.models.verify import Verification

_MAX_ROWS = 40


@click.command(short_help="Remove, merge and shorten the splits of a model.")
@click.argument("model", type=MODEL_FILE, required=False)
@out_option()
@for_option(
    "Runtime that must execute the result correctly, as in splitops fix: after the rewrites, its splits are "
    "fixed for it. Nothing is written if one cannot be fixed. Repeatable."
)
@click.option(
    "--rewrite",
    "rewrites",
    multiple=True,
    metavar="NAME",
    help="Apply only this rewrite. Repeatable; --list names them.",
)
@click.option(
    "--limit", type=BYTES, default="64K", metavar="BYTES", help="Do not fold constants larger than this."
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["numerics"]),
    help="Allow rewrites that change the last bits of floats (numerics).",
)
@click.option("--list", "as_list", is_flag=True, help="List the rewrites, and do nothing else.")
@verify_options("the simplified model")
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

    No value and no shape changes. Splits, Slices, Gathers, Concats, Reshapes and Transposes that are needless
    are removed or merged. All other nodes stay: onnxslim simplifies whole ONNX models, and OpenVINO
    simplifies IR when it compiles it. A model that splitops fix has written keeps what was written for its
    runtimes, unless --for or --rewrite is given.

    \b
    Examples:
      splitops simplify model.onnx -o simple.onnx
      splitops simplify model.xml --verify -o simple.xml
      splitops simplify model.onnx --for npu.toml -o simple.onnx
      splitops simplify model.onnx --rewrite split-concat --rewrite nested-splits --json
      splitops simplify model.onnx --allow numerics -o simple.onnx
      splitops simplify --list
    """
    from splitops.models.fix import fix
    from splitops.models.formats.files import write_model
    from splitops.models.simplify import REWRITES, simplify
    from splitops.models.simplify.rounds import with_model

    if as_list:
        _list(as_json)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    for name in rewrites:
        if name not in REWRITES:
            raise click.BadParameter(
                f"No such rewrite {name!r}.{did_you_mean(name, REWRITES)} --list shows all.",
                param_hint="--rewrite",
            )
    hold_inputs(inputs, verify=verify)
    hold(model, out, openvino=is_openvino(model))
    # What undoes a fix may be applied where the result is fixed again.
    names = rewrites or ([row.name for row in REWRITES.values() if row.default] if targets else None)
    found = simplify(model, names, allow=allow, limit=limit, allow_links=allow_links, report=True)
    fixed = fix(found.model, targets, partial=True, report=True) if targets else None
    if fixed is not None:
        found = with_model(found, fixed.model)
    unfixable = fixed is not None and fixed.error is not None
    check = None
    if verify and not unfixable:
        runtime = runtime_of(found.model)
        (check,) = verify_in([runtime], model, found.model, inputs, allow_links=allow_links)
    failed = check is not None and not check.holds
    written = None if dry_run or failed or unfixable else out
    files = () if written is None else write_model(found, written)
    if as_json:
        print_json(_json(model, written, found, fixed, check))
    else:
        _print(found)
        _print_fixed(found, fixed)
        print_verifications(() if check is None else (check,))
        if failed:
            print_failed("the simplified model")
        elif not unfixable and (out is not None or found.changes):
            print_end(out, files)
    if failed or unfixable:
        ctx.exit(1)


def _list(as_json: bool) -> None:
    from splitops.models.simplify import REWRITES

    if as_json:
        rows = [
            select_json_values(row, "name", "summary", "default", "openvino") for row in REWRITES.values()
        ]
        print_json({"rewrites": rows})
        return
    listed = table("rewrite", "what it does", "applied")
    for row in REWRITES.values():
        models = "ONNX, OpenVINO" if row.openvino else "ONNX"
        listed.add_row(row.name, row.summary, models if row.default else f"{models}, where named")
    console().print(listed)


def _json(
    model: Path,
    out: Path | None,
    found: Simplification,
    fixed: FixReport | None,
    check: Verification | None,
) -> dict[str, Any]:
    return {
        "model": str(model),
        "out": None if out is None else str(out),
        "verified": None if check is None else check.as_dict(),
        **select_json_values(found, "nodes_before", "nodes_after", "changes", "kept_for"),
        "runtimes": [] if fixed is None else list(fixed.runtimes),
        "fixed": [] if fixed is None else [split.as_dict() for split in (*fixed.rewritten, *fixed.unfixable)],
    }


def _print(found: Simplification) -> None:
    terminal = console()
    if not found.changes:
        terminal.print("Nothing to simplify. Only splits and the nodes around them were looked at.")
    else:
        rows = table("node", "before", "after", "rewrite", "reason")
        groups = alike(found.changes, lambda made: (made.before, made.rewrite, made.reason))
        for group in groups[:_MAX_ROWS]:
            first, where = group[0], places([place(change.where) for change in group])
            after = places(list(dict.fromkeys(one_line(change.after, 200) for change in group)))
            rows.add_row(where, one_line(first.before, 200), after, first.rewrite, first.reason)
        terminal.print(rows)
        if len(groups) > _MAX_ROWS:
            terminal.print(f"... and {len(groups) - _MAX_ROWS} more; --json lists all")
        terminal.print(f"{found.nodes_before} nodes, now {found.nodes_after}.")


def _print_fixed(found: Simplification, fixed: FixReport | None) -> None:
    """Print what was left out for the sake of runtimes, or written for them."""
    terminal = console()
    if found.kept_for:
        terminal.print(
            f"The model was fixed for {one_line(', '.join(found.kept_for))}: what could undo that is left "
            "out. --for applies it and fixes the result again.",
            soft_wrap=True,
        )
    if fixed is None:
        return
    runtimes = ", ".join(fixed.runtimes)
    terminal.print(f"{count_of(len(fixed.rewritten), 'split')} rewritten for {runtimes}.", soft_wrap=True)
    if fixed.error is not None:
        terminal.print(one_line(f"Cannot be fixed: {fixed.error}", 400), style="bold red", soft_wrap=True)
        terminal.print("Nothing was written.")
