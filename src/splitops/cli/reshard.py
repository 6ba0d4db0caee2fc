"""``splitops reshard``: change the number of ranks, the plan or the layout of a sharded checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from splitops.cli._paths import Existing
from splitops.cli._shards import like_option, shard_folder, shard_options


@click.command(short_help="Change the number of ranks of a sharded checkpoint.")
@click.argument("folder", metavar="DIR", type=Existing())
@like_option
@shard_options
def command(folder: Path, **options: Any) -> None:
    """Reshard the ranks in DIR over another number of ranks or by another plan.

    `splitops merge` must support the ranks in DIR. The result is the same as that of merge followed by shard,
    but the bytes are copied only once. The plan is that of DIR, unless --plan names another one. If DIR has
    no manifest, its ranks and the new ranks have the same plan.

    \b
    Examples:
      splitops reshard model-8 --ranks 4 --out model-4
      splitops reshard model-8 --ranks 16 --dry-run
    """
    from splitops.sharding.planning import check_ranks

    check_ranks(folder)
    shard_folder(folder, **options)
