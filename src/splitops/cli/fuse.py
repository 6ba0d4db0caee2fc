"""``splitops refit``: unfuse the fused tensors of a checkpoint, or fuse them."""

from __future__ import annotations

from pathlib import Path

import click

from splitops.cli._console import escape, json_option, make_console
from splitops.cli._files import CliRunOptions, print_warnings, run_options
from splitops.cli._models import links_option, strict_option
from splitops.cli._paths import Existing, add_path, describe_missing, is_missing
from splitops.cli._shards import print_result, print_result_json, reject_digests, run_plan
from splitops.errors import count_of


@click.command(short_help="Fuse or unfuse the tensors of a model's checkpoint.")
@click.argument("folder", metavar="MODEL_DIR", type=Existing(file_okay=False))
@click.option(
    "--plan",
    "plan_",
    metavar="unfuse|fuse|FILE",
    required=True,
    help="unfuse or fuse by config.json, or unfuse by the rules in FILE (TOML or JSON).",
)
@click.option("--invert", is_flag=True, help="Fuse by the rules in FILE.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to write; it must not exist.",
)
@links_option
@strict_option
@run_options
@json_option
def command(
    folder: Path,
    plan_: str,
    invert: bool,
    out: Path,
    allow_links: bool,
    strict: bool,
    how: CliRunOptions,
    as_json: bool,
) -> None:
    """Unfuse or fuse the tensors of the checkpoint in MODEL_DIR, and write it to another folder.

    Fused tensors are queries, keys and values (also interleaved by head or group), gate and up projections
    (halves or interleaved), stacked experts, transposed weights and renamed tensors. The inverse restores the
    same tensors. Unfuse followed by fuse also restores the files and the index of transformers byte by byte.
    Fuse followed by unfuse does so if all parts of each fused tensor are in one file; otherwise, some tensors
    end up in another file. Sidecar files are copied unchanged: edit config.json if another class loads the
    model. The command fails if a tensor does not match its rule.

    \b
    Examples:
      splitops refit phi --plan unfuse --out phi-unfused
      splitops refit mixtral --plan fuse --out mixtral-stacked --dry-run
      splitops refit model --plan rules.toml --invert --out model-fused --verify
    """
    from splitops.sharding import refit

    reject_digests(how)
    if plan_ not in ("unfuse", "fuse") and is_missing(Path(plan_)):
        text = "Use unfuse or fuse." if plan_ == "auto" else describe_missing(Path(plan_))
        raise click.BadParameter(text, param_hint="'--plan'")
    if plan_ not in ("unfuse", "fuse"):
        add_path(Path(plan_), "--plan")
    made = refit(folder, plan_, invert=invert, allow_links=allow_links, strict=strict)
    result = run_plan(made, out, how)
    if as_json:
        rules = [{"fused": fused, "from": before, "to": after} for fused, before, after in made.changed]
        print_result_json(folder, {"rules": rules, "warnings": list(made.checkpoint.warnings)}, result)
        return
    for fused, before, after in made.changed:
        make_console().print(f"{escape(fused)}: {before} to {count_of(after, 'tensor')}", soft_wrap=True)
    print_warnings(made.checkpoint.warnings)
    print_result(result)
