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
from splitops.cli._models import MODEL_FILE, dry_run_option, hold, links_option, out_option, print_end
from splitops.cli._options import BYTES, did_you_mean
from splitops.cli._verification import print_failed, print_verifications, verify_in_own_runtime, verify_option
from splitops.ground.records import picked
from splitops.models import is_openvino

if TYPE_CHECKING:
    from splitops.models.simplify import Simplification
    from splitops.models.verify import Verification

_MAX_ROWS = 40


@click.command(short_help="Remove, merge and shorten the splits of a model.")
@click.argument("model", type=MODEL_FILE, required=False)
@out_option()
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
@verify_option("the simplified model")
@dry_run_option
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path | None,
    out: Path | None,
    rewrites: tuple[str, ...],
    allow: tuple[str, ...],
    limit: int,
    verify: bool,
    dry_run: bool,
    as_list: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Simplify MODEL, a .onnx file or the .xml of an OpenVINO IR, without changing a value or a shape.

    \b
    Examples:
      splitops simplify model.onnx -o simple.onnx
      splitops simplify model.xml --verify -o simple.xml
      splitops simplify model.onnx --rewrite split-concat --rewrite nested-splits --json
      splitops simplify model.onnx --allow numerics -o simple.onnx
      splitops simplify --list
    """
    from splitops.models.formats.files import write_model
    from splitops.models.simplify import REWRITES, simplify

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
    hold(model, out, openvino=is_openvino(model))
    found = simplify(model, rewrites or None, allow=allow, limit=limit, allow_links=allow_links, report=True)
    check = verify_in_own_runtime(model, found.model, allow_links=allow_links) if verify else None
    failed = check is not None and not check.holds
    written = None if dry_run or failed else out
    files = () if written is None else write_model(found, written)
    if as_json:
        print_json(_json(model, written, found, check))
    else:
        _print(found)
        print_verifications(() if check is None else (check,))
        if failed:
            print_failed("the simplified model")
        elif out is not None or found.changes:
            print_end(out, files)
    if failed:
        ctx.exit(1)


def _list(as_json: bool) -> None:
    from splitops.models.simplify import REWRITES

    if as_json:
        rows = [picked(row, "name", "summary", "default", "openvino") for row in REWRITES.values()]
        print_json({"rewrites": rows})
        return
    listed = table("rewrite", "what it does", "applied")
    for row in REWRITES.values():
        models = "ONNX, OpenVINO" if row.openvino else "ONNX"
        listed.add_row(row.name, row.summary, models if row.default else f"{models}, where named")
    console().print(listed)


def _json(model: Path, out: Path | None, found: Simplification, check: Verification | None) -> dict[str, Any]:
    return {
        "model": str(model),
        "out": None if out is None else str(out),
        "verified": None if check is None else check.as_dict(),
        **picked(found, "nodes_before", "nodes_after", "changes"),
    }


def _print(found: Simplification) -> None:
    terminal = console()
    if not found.changes:
        terminal.print("Nothing to simplify.")
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
