"""Options and implementation of ``splitops fuse`` and ``splitops unfuse``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from splitops.cli._console import escape, json_option, make_console
from splitops.cli._files import CliRunOptions, print_warnings, run_options
from splitops.cli._models import links_option, strict_option
from splitops.cli._options import add_options
from splitops.cli._paths import Existing
from splitops.cli._shards import check_plan, print_result, print_result_json, reject_digests, run_plan
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.sharding import FusePlan

fusion_options = add_options(
    click.argument("folder", metavar="MODEL_DIR", type=Existing(file_okay=False)),
    click.option(
        "--plan",
        "plan_",
        metavar="auto|FILE",
        default="auto",
        show_default=True,
        help="Rules (TOML or JSON), or `auto` to select them by config.json.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="Folder to write; it must not exist.",
    ),
    click.option(
        "--base",
        type=Existing(file_okay=False),
        help="For a LoRA adapter: folder of its base model, whose config.json selects the rules.",
    ),
    links_option,
    strict_option,
    run_options,
    json_option,
)
"""Decorator that adds the argument and the options of ``fuse`` and ``unfuse``."""


def rewrite_checkpoint(
    make_plan: Callable[..., FusePlan],
    folder: Path,
    plan_: str,
    out: Path,
    base: Path | None,
    allow_links: bool,
    strict: bool,
    how: CliRunOptions,
    as_json: bool,
) -> None:
    """Run ``fuse`` or ``unfuse``. The parameters after ``make_plan`` are those of :data:`fusion_options`."""
    reject_digests(how)
    check_plan(plan_)
    fuse_plan = make_plan(folder, plan_, base=base, allow_links=allow_links, strict=strict)
    result = run_plan(fuse_plan, out, how)
    if as_json:
        rules = [{"fused": fused, "from": before, "to": after} for fused, before, after in fuse_plan.changed]
        print_result_json(folder, {"rules": rules, "warnings": list(fuse_plan.checkpoint.warnings)}, result)
        return
    for fused, before, after in fuse_plan.changed:
        make_console().print(f"{escape(fused)}: {before} to {count_of(after, 'tensor')}", soft_wrap=True)
    print_warnings(fuse_plan.checkpoint.warnings)
    print_result(result)
