"""``splitops refit``: a checkpoint with its fused tensors taken apart, or its parts fused."""

from __future__ import annotations

from pathlib import Path

import click

from splitops.cli._console import console, json_option, one_line
from splitops.cli._files import RunOptions, run_options, show_warnings
from splitops.cli._models import links_option, strict_option
from splitops.cli._paths import Existing, absence, add_path, is_missing
from splitops.cli._shards import carry_out, reject_digests, tell, tell_json
from splitops.errors import count_of


@click.command(short_help="Fuse or unfuse the tensors of a model's checkpoint.")
@click.argument("folder", metavar="MODEL_DIR", type=Existing(file_okay=False))
@click.option(
    "--plan",
    "plan_",
    metavar="unfuse|fuse|FILE",
    required=True,
    help="What to do, by config.json, or by rules of your own (TOML or JSON), which unfuse.",
)
@click.option("--invert", is_flag=True, help="Apply the rules of FILE the other way round: fuse.")
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
    how: RunOptions,
    as_json: bool,
) -> None:
    """Write the checkpoint in MODEL_DIR with its fused tensors taken apart, or with their parts fused.

    Queries, keys and values, also interleaved by head or group; gate and up projections, as halves or
    interleaved; stacked experts; transposed weights; renamed tensors. The same plan leads back to the same
    tensors. Files and index that transformers wrote have the same bytes again after unfuse and fuse. After
    fuse and unfuse they do if all parts of each fused tensor were in one file; otherwise some tensors are in
    another file. Small files are copied as they are, so change config.json if another class is to load the
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
        said = absence(Path(plan_)) if plan_ != "auto" else "unfuse and fuse go by config.json: choose one."
        raise click.BadParameter(said, param_hint="'--plan'")
    if plan_ not in ("unfuse", "fuse"):
        add_path(Path(plan_), "--plan")
    made = refit(folder, plan_, invert=invert, allow_links=allow_links, strict=strict)
    result = carry_out(made, out, how)
    if as_json:
        rules = [{"fused": fused, "from": before, "to": after} for fused, before, after in made.changed]
        tell_json(folder, {"rules": rules, "warnings": list(made.checkpoint.warnings)}, result)
        return
    for fused, before, after in made.changed:
        console().print(f"{one_line(fused)}: {before} to {count_of(after, 'tensor')}", soft_wrap=True)
    show_warnings(made.checkpoint.warnings)
    tell(result)
