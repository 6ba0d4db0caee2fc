"""``splitops reshard``: a folder of ranks into another number of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from splitops.cli._paths import Existing
from splitops.cli._shards import cut, like_option, shard_options


@click.command(short_help="Cut ranks into another number of ranks.")
@click.argument("folder", metavar="DIR", type=Existing())
@like_option
@shard_options
def command(folder: Path, **options: Any) -> None:
    """Cut the ranks in DIR, which `splitops shard` or PyTorch wrote, into another number of them, or by
    another plan.

    The same as a merge and a cut one after the other, in one pass over the bytes. The plan is that of DIR,
    unless --plan declares another one.

    \b
    Examples:
      splitops reshard model-8 --ranks 4 --out model-4
      splitops reshard model-8 --ranks 16 --dry-run
    """
    from splitops.sharding.planning import prove_ranks

    prove_ranks(folder)
    cut(folder, **options)
