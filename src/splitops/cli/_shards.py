"""Options and output shared by ``shard``, ``reshard``, ``fuse``, ``unfuse`` and the merging of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import (
    escape,
    json_option,
    make_console,
    make_table,
    print_json,
    print_written,
)
from splitops.cli._files import CliRunOptions, add_sources, print_end, print_warnings, run_options, summarise
from splitops.cli._models import links_option, strict_option
from splitops.cli._options import add_options
from splitops.cli._paths import NEW_FILE, Existing, add_path, describe_missing, is_missing

if TYPE_CHECKING:
    from splitops.files import DryRun, Report
    from splitops.sharding import RankFit
    from splitops.sharding.planning import Runnable

_RANKS_SHOWN = 8
"""Number of ranks in a preview without --ranks."""


like_option = click.option(
    "--files-like",
    "like",
    type=Existing(file_okay=False),
    help="For a distributed checkpoint of PyTorch: write tensors to the same files as this checkpoint.",
)


plan_option = click.option(
    "--plan",
    "plan_",
    metavar="auto|FILE",
    help="Sharding rules (TOML or JSON), or `auto` to derive them from config.json.  "
    "[default: the plan stored with the ranks; otherwise auto]",
)


shard_options = add_options(
    click.option("--ranks", type=click.IntRange(1), help="Number of ranks."),
    plan_option,
    click.option(
        "--pad",
        is_flag=True,
        help="Pad intermediate and vocabulary sizes with zeros, so that they fit the number of ranks.",
    ),
    click.option(
        "--pad-for",
        metavar="INTEGER",
        type=click.IntRange(1),
        help="Pad for another number of ranks. With --ranks 1, the rank is a complete model for an engine.",
    ),
    click.option(
        "--layout",
        metavar="hf|dcp|vllm",
        help="Layout of the ranks' files.  [default: the layout of the plan, otherwise hf]",
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
        help="Only draw which rank stores which elements, as SVG.",
    ),
    click.option(
        "--html",
        type=NEW_FILE,
        help="Only draw which rank stores which elements, as an HTML page.",
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
"""Decorator that adds the options of ``shard`` and ``reshard``."""


def shard_folder(
    folder: Path,
    ranks: int | None,
    plan_: str | None,
    pad: bool,
    pad_for: int | None,
    layout: str | None,
    out: Path | None,
    svg: Path | None,
    html: Path | None,
    listed: bool,
    allow_links: bool,
    strict: bool,
    how: CliRunOptions,
    as_json: bool,
    like: Path | None = None,
) -> None:
    """Run ``shard`` or ``reshard`` on a folder. The parameters are the options of the command."""
    from splitops.common.atomic_write import write_atomically
    from splitops.sharding import find_ranks, plan
    from splitops.sharding.explaining import HEADING, draw, make_page, make_rows

    reject_digests(how)
    reading: dict[str, Any] = {"layout": layout, "like": like, "allow_links": allow_links, "strict": strict}
    if listed and any(value is not None for value in (ranks, out, svg, html)):
        raise click.UsageError("--list cannot be combined with --ranks, --out, --svg or --html.")
    if pad_for is not None and (pad or listed):
        raise click.UsageError("--pad-for cannot be combined with --pad or --list.")
    drawn = svg is not None or html is not None
    preview = how.dry_run or drawn or listed
    for name, value in (("--ranks", ranks), ("--out", out)):
        if value is None and not preview:
            raise click.UsageError(f"Missing option '{name}'.")
    if out is not None and _is_file_name(out):
        what = f"{out} is a file name, but ranks are written into a folder"
        raise click.BadParameter(what, param_hint="'--out'")
    check_plan(plan_)
    if listed:
        _print_rank_fits(folder, find_ranks(folder, plan_, pad=pad, **reading), as_json=as_json)
        return
    count = ranks or _RANKS_SHOWN
    made = plan(folder, plan_, ranks=count, pad_for=count if pad else pad_for, **reading)
    add_sources((*made.checkpoint.sources, *(other.source for other in made.checkpoint.others)))
    for path, drawing in ((svg, draw), (html, make_page)):
        if path is not None:
            write_atomically(path, drawing(made).encode())
    result = run_plan(made, None if drawn else out, how)
    if as_json:
        facts = {"layout": made.layout, "ranks": made.ranks, "rank_bytes": list(made.rank_bytes)}
        rules = [row.as_dict() for row in make_rows(made)]
        print_result_json(folder, {**facts, "rules": rules, "warnings": list(made.warnings)}, result)
        return
    screen = make_console()
    tensors = len(made.placements.tensors)
    heading = f"{escape(str(folder))}: {tensors} tensors for {made.ranks} ranks, layout {made.layout}"
    screen.print(heading, style="bold", soft_wrap=True)
    if preview:
        found = make_table(*HEADING, right=("bytes",))
        for row in make_rows(made):
            found.add_row(*row.cells)
        screen.print(found)
    low, high = min(made.rank_bytes), max(made.rank_bytes)
    each = f"{high}" if low == high else f"{low} to {high}"
    screen.print(f"each rank stores {each} bytes", soft_wrap=True)
    print_warnings(made.warnings)
    print_written(svg, html)
    print_result(result)


def check_plan(plan: str | None) -> None:
    """Check that the file of a plan exists, and register it as a file that the command reads."""
    if plan is not None and plan != "auto":
        if is_missing(Path(plan)):
            raise click.BadParameter(describe_missing(Path(plan)), param_hint="'--plan'")
        add_path(Path(plan), "--plan")


def _print_rank_fits(folder: Path, found: Sequence[RankFit], *, as_json: bool) -> None:
    """Print, for each number of ranks, whether the checkpoint can be sharded over that many."""
    if as_json:
        print_json([each.as_dict() for each in found])
        return
    rows = make_table("ranks", "verdict", "what repeats, what is padded, or why not", right=("ranks",))
    for each in found:
        rows.add_row(str(each.ranks), each.verdict, escape(each.note, 300))
    make_console().print(f"{escape(str(folder))}: numbers of ranks", style="bold", soft_wrap=True)
    make_console().print(rows)


def merge_ranks(
    folder: Path,
    out: Path,
    plan: str | None,
    like: Path | None,
    how: CliRunOptions,
    *,
    as_json: bool,
    **options: bool,
) -> None:
    """Merge the ranks in a folder into ``out``. ``options`` are those of :func:`splitops.sharding.merge`."""
    from splitops.sharding import merge

    reject_digests(how)
    if _is_file_name(out):
        what = f"{out} is a file name, but ranks are merged into a folder. Use --out MODEL, and then"
        raise click.BadParameter(f"{what} splitops merge MODEL --out {out}", param_hint="'--out'")
    check_plan(plan)
    made = merge(folder, plan, like=like, **options)
    result = run_plan(made, out, how)
    if as_json:
        print_result_json(folder, {"warnings": list(made.checkpoint.warnings)}, result)
        return
    print_warnings(made.checkpoint.warnings)
    print_result(result)


def _is_file_name(out: Path) -> bool:
    """Return whether a path has the extension of a model file and is not an existing folder."""
    return out.suffix.lower() in (".safetensors", ".gguf", ".onnx") and not out.is_dir()


def reject_digests(how: CliRunOptions) -> None:
    """Reject ``--sha256`` for a command that writes a folder."""
    if how.options["sha256"]:
        raise click.UsageError("--sha256 works only for single files. Use --verify or --checksums.")


def run_plan(made: Runnable, out: Path | None, how: CliRunOptions) -> Report | DryRun | None:
    """Run or dry-run a plan into the folder ``out``, and return the result. Do nothing if ``out`` is None."""
    return None if out is None else how.run(made.plan_files(out))


def print_result_json(folder: Path, facts: dict[str, Any], result: Report | DryRun | None) -> None:
    """Print the facts of a plan as JSON, with the result of its run or dry run unless that is None."""
    from splitops.files import Report

    facts = {"from": str(folder), **facts}
    if result is not None:
        facts |= summarise(result)
        if isinstance(result, Report):
            facts |= {"out": str(result.files[0][0]), "resumed": result.resumed}
    print_json(facts)


def print_result(result: Report | DryRun | None) -> None:
    """Print the result of a run or dry run, unless it is None."""
    from splitops.files import Report

    if result is None:
        return
    if isinstance(result, Report):
        to = escape(str(result.files[0][0]))
        new = result.resumed < result.bytes or not result.bytes
        text = f"wrote {result.bytes} bytes to {to}" if new else f"{to} already has all {result.bytes} bytes"
        make_console().print(text, soft_wrap=True)
    print_end(result)
