"""What ``splitops shard`` and ``splitops reshard`` share: their options, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import console, json_option, one_line, print_json, say_written, table
from splitops.cli._files import RunOptions, add_sources, run_options, show_end, show_warnings, summary
from splitops.cli._models import links_option, strict_option
from splitops.cli._options import added
from splitops.cli._paths import NEW_FILE, Existing, absence, add_path, is_missing

if TYPE_CHECKING:
    from splitops.files import DryRun, Report
    from splitops.sharding import RankFit
    from splitops.sharding.planning import Runnable

_RANKS_SHOWN = 8
"""The number of ranks in a preview without --ranks."""


like_option = click.option(
    "--like",
    type=Existing(file_okay=False),
    help="For a distributed checkpoint of PyTorch's: a checkpoint whose files the whole is to have.",
)


shard_options = added(
    click.option("--ranks", type=click.IntRange(1), help="Number of ranks."),
    click.option(
        "--plan",
        "plan_",
        metavar="auto|FILE",
        help="Sharding rules (TOML or JSON), or `auto` to derive them from config.json.  "
        "[default: the plan stored with the ranks; otherwise auto]",
    ),
    click.option(
        "--layout",
        metavar="hf|dcp|vllm",
        help="Layout of the ranks' files.  [default: the plan's; otherwise hf]",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder to write; it must not exist.",
    ),
    click.option(
        "--svg",
        type=NEW_FILE,
        help="Only draw what each rank holds.",
    ),
    click.option(
        "--html",
        type=NEW_FILE,
        help="Only draw it as a page.",
    ),
    click.option(
        "--list",
        "listed",
        is_flag=True,
        help="Only list which numbers of ranks fit, repeat heads, need padding, or are impossible.",
    ),
    links_option,
    strict_option,
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
    svg: Path | None,
    html: Path | None,
    listed: bool,
    allow_links: bool,
    strict: bool,
    how: RunOptions,
    as_json: bool,
    like: Path | None = None,
) -> None:
    """Plan, show and carry out a cut."""
    from splitops.ground.writing import write_whole
    from splitops.sharding import find_ranks, plan
    from splitops.sharding.explaining import HEADING, draw, page, rows_of

    reject_digests(how)
    reading: dict[str, Any] = {"layout": layout, "like": like, "allow_links": allow_links, "strict": strict}
    if listed and any(value is not None for value in (ranks, out, svg, html)):
        raise click.UsageError("--list goes without --ranks, --out, --svg and --html.")
    drawn = svg is not None or html is not None
    preview = how.dry_run or drawn or listed
    for name, value in (("--ranks", ranks), ("--out", out)):
        if value is None and not preview:
            raise click.UsageError(f"Missing option '{name}'.")
    if plan_ not in (None, "auto") and is_missing(Path(plan_)):
        raise click.BadParameter(absence(Path(plan_)), param_hint="'--plan'")
    if plan_ not in (None, "auto"):
        add_path(Path(plan_), "--plan")
    if listed:
        _list(folder, find_ranks(folder, plan_, **reading), as_json=as_json)
        return
    made = plan(folder, plan_, ranks=ranks or _RANKS_SHOWN, **reading)
    add_sources((*made.checkpoint.sources, *(other.source for other in made.checkpoint.others)))
    for path, drawing in ((svg, draw), (html, page)):
        if path is not None:
            write_whole(path, drawing(made).encode())
    result = carry_out(made, None if drawn else out, how)
    if as_json:
        facts = {"layout": made.layout, "ranks": made.ranks, "rank_bytes": list(made.rank_bytes)}
        rules = [row.as_dict() for row in rows_of(made)]
        tell_json(folder, {**facts, "rules": rules, "warnings": list(made.warnings)}, result)
        return
    screen = console()
    tensors = len(made.placements.tensors)
    heading = f"{one_line(str(folder))}: {tensors} tensors for {made.ranks} ranks, layout {made.layout}"
    screen.print(heading, style="bold", soft_wrap=True)
    if preview:
        found = table(*HEADING, right=("bytes",))
        for row in rows_of(made):
            found.add_row(*row.cells)
        screen.print(found)
    low, high = min(made.rank_bytes), max(made.rank_bytes)
    each = f"{high}" if low == high else f"{low} to {high}"
    screen.print(f"each rank holds {each} bytes", soft_wrap=True)
    show_warnings(made.warnings)
    say_written(svg, html)
    tell(result)


def _list(folder: Path, found: Sequence[RankFit], *, as_json: bool) -> None:
    """Print which numbers of ranks work."""
    if as_json:
        print_json([each.as_dict() for each in found])
        return
    rows = table("ranks", "verdict", "what repeats, what is padded, or why not", right=("ranks",))
    for each in found:
        rows.add_row(str(each.ranks), each.verdict, one_line(each.note, 300))
    console().print(f"{one_line(str(folder))}: numbers of ranks", style="bold", soft_wrap=True)
    console().print(rows)


def merge_ranks(
    folder: Path, out: Path, like: Path | None, how: RunOptions, *, as_json: bool, **options: bool
) -> None:
    """Merge a folder of ranks; ``options`` are those of :func:`splitops.sharding.merge`."""
    from splitops.sharding import merge

    reject_digests(how)
    made = merge(folder, like=like, **options)
    result = carry_out(made, out, how)
    if as_json:
        tell_json(folder, {"warnings": list(made.checkpoint.warnings)}, result)
        return
    show_warnings(made.checkpoint.warnings)
    tell(result)


def reject_digests(how: RunOptions) -> None:
    """Reject digests of single files, which a folder is not."""
    if how.options["sha256"]:
        raise click.UsageError("--sha256 is for single files: --verify reads ranks back.")


def carry_out(made: Runnable, out: Path | None, how: RunOptions) -> Report | DryRun | None:
    """Write a folder, or return what would be written; None without a folder."""
    return None if out is None else how.run(made.file_plan(out))


def tell_json(folder: Path, facts: dict[str, Any], result: Report | DryRun | None) -> None:
    """Print what is made of a folder, and what was written, or would be, as JSON."""
    from splitops.files import Report

    facts = {"from": str(folder), **facts}
    if result is not None:
        facts |= summary(result)
        if isinstance(result, Report):
            facts |= {"out": str(result.files[0][0]), "resumed": result.resumed}
    print_json(facts)


def tell(result: Report | DryRun | None) -> None:
    """Print what was written, or would be."""
    from splitops.files import Report

    if result is None:
        return
    if isinstance(result, Report):
        to = one_line(str(result.files[0][0]))
        new = result.resumed < result.bytes or not result.bytes
        said = f"wrote {result.bytes} bytes to {to}" if new else f"{to} has all {result.bytes} bytes"
        console().print(said, soft_wrap=True)
    show_end(result)
