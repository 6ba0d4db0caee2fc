"""What ``splitops shard`` and ``splitops reshard`` share: their options, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import console, json_option, one_line, print_json, say_written, table
from splitops.cli._files import RunOptions, run_options
from splitops.cli._models import links_option
from splitops.cli._options import added

if TYPE_CHECKING:
    from rich.table import Table

    from splitops.files import DryRun, Report
    from splitops.sharding import ShardPlan
    from splitops.sharding.explaining import Row

_RANKS_SHOWN = 8
"""So many ranks are explained where none are stated."""


like_option = click.option(
    "--like",
    type=click.Path(path_type=Path, file_okay=False),
    help="For a distributed checkpoint of PyTorch's: a checkpoint whose files the whole is to have.",
)


shard_options = added(
    click.option("--ranks", type=click.IntRange(1), help="How many ranks there are to be."),
    click.option(
        "--plan",
        "plan_",
        metavar="auto|FILE",
        help="The rules, in TOML or JSON; auto goes by config.json.  [default: that of ranks, else auto]",
    ),
    click.option(
        "--layout",
        metavar="hf|dcp|vllm",
        help="How the ranks' files are written.  [default: the plan's, else hf]",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder to write, a new one.",
    ),
    click.option("--explain", is_flag=True, help="Show by rule what each rank holds, and write nothing."),
    click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw who holds what."),
    click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="The same as a page."),
    links_option,
    run_options,
    json_option,
)
"""Adds the options of a cut into ranks to a command."""


def cut(
    folder: Path,
    ranks: int | None,
    plan_: str | None,
    layout: str | None,
    out: Path | None,
    explain: bool,
    svg: Path | None,
    html: Path | None,
    allow_links: bool,
    how: RunOptions,
    as_json: bool,
    like: Path | None = None,
) -> None:
    """Plan, explain and carry out a cut."""
    from splitops.ground.writing import write_whole
    from splitops.sharding import plan
    from splitops.sharding.explaining import draw, page

    _refuse_digests(how)
    explain = explain or svg is not None or html is not None
    if ranks is None and not explain:
        raise click.UsageError("Missing option '--ranks'.")
    if out is None and not explain:
        raise click.UsageError("Missing option '--out'.")
    ranks = ranks or _RANKS_SHOWN
    made = plan(folder, plan_, ranks=ranks, layout=layout, like=like, allow_links=allow_links)
    if svg is not None:
        write_whole(svg, draw(made).encode())
    if html is not None:
        write_whole(html, page(made).encode())
    result = None if out is None or explain else how.run(made.file_plan(out))
    facts = {
        "from": str(folder),
        "layout": made.layout,
        "ranks": made.ranks,
        "rank_bytes": list(made.rank_bytes),
    }
    if as_json:
        from splitops.sharding.explaining import rows_of

        facts |= {"rules": [row.as_dict() for row in rows_of(made)], "warnings": list(made.warnings)}
        print_json(facts | ({} if result is None else _written(result)))
        return
    _show(made, folder, table_too=explain or how.dry_run)
    say_written(svg, html)
    if result is not None:
        _tell(result)


def merge_ranks(
    folder: Path, out: Path, like: Path | None, allow_links: bool, how: RunOptions, *, as_json: bool
) -> None:
    """Merge a folder of ranks."""
    from splitops.sharding import merge

    _refuse_digests(how)
    result = how.run(merge(folder, like=like, allow_links=allow_links).file_plan(out))
    if as_json:
        print_json({"from": str(folder), **_written(result)})
    else:
        _tell(result)


def _refuse_digests(how: RunOptions) -> None:
    if how.sha256:
        raise click.UsageError("--sha256 is for single files: --verify reads ranks back.")


def _table(rows: Sequence[Row]) -> Table:
    found = table("tensors", "shape", "axis", "sizes", "bytes", "repeats", right=("bytes",))
    for row in rows:
        found.add_row(
            f"{len(row.tensors)} x {one_line(row.match, 60)}",
            f"{row.dtype} {row.shape}",
            "" if row.cut.axis is None else str(row.cut.axis),
            row.sizes,
            str(max(row.bytes)),
            row.repeats,
        )
    return found


def _show(made: ShardPlan, folder: Path, *, table_too: bool) -> None:
    from splitops.sharding.explaining import rows_of

    screen = console()
    tensors = len(made.placements.tensors)
    heading = f"{one_line(str(folder))}: {tensors} tensors for {made.ranks} ranks, layout {made.layout}"
    screen.print(heading, style="bold", soft_wrap=True)
    if table_too:
        screen.print(_table(rows_of(made)))
    low, high = min(made.rank_bytes), max(made.rank_bytes)
    each = f"{high}" if low == high else f"{low} to {high}"
    screen.print(f"each rank holds {each} bytes", soft_wrap=True)
    for warning in made.warnings:
        screen.print(f"note: {one_line(warning)}", soft_wrap=True)


def _written(result: Report | DryRun) -> dict[str, Any]:
    """Return what was written, or would be, as values for JSON."""
    from splitops.files import DryRun

    if isinstance(result, DryRun):
        exists = [str(path) for path in result.exists]
        return {"bytes": result.bytes, "dry_run": True, "tasks": result.tasks, "exists": exists}
    return {"bytes": result.bytes, "out": str(result.files[0][0]), "resumed": result.resumed}


def _tell(result: Report | DryRun) -> None:
    """Print what was written, or would be."""
    from splitops.files import DryRun

    screen = console()
    if isinstance(result, DryRun):
        screen.print(str(result))
        for path in result.exists:
            screen.print(f"{one_line(str(path))} exists already", soft_wrap=True)
        return
    screen.print(f"wrote {result.bytes} bytes to {one_line(str(result.files[0][0]))}", soft_wrap=True)
    if result.resumed:
        screen.print(f"{result.resumed} of {result.bytes} bytes were copied before")
