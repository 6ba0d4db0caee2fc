"""``splitops shard``: a checkpoint into a folder of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from splitops.cli._paths import Existing
from splitops.cli._shards import cut, shard_options


@click.command(short_help="Cut a model's checkpoint into ranks.")
@click.argument("folder", metavar="MODEL_DIR", type=Existing())
@shard_options
def command(folder: Path, **options: Any) -> None:
    """Cut the checkpoint in MODEL_DIR into ranks, each with its part of every tensor.

    MODEL_DIR holds model.safetensors, or an index with its shards, and config.json; or it is an ONNX model
    with external data. The rules of a plan say by name how tensors are cut; what cannot be cut so is rejected
    with the numbers that would do. The folder of the ranks appears whole or not at all, and only bounded
    buffers are in memory. `splitops merge` returns the same files, byte by byte.

    \b
    Examples:
      splitops shard model --list
      splitops shard model --ranks 8 --plan auto --out model-8
      splitops shard model --ranks 8 --plan plan.toml --dry-run --svg who.svg
      splitops shard model --ranks 4 --plan plan.toml --out model-4 --memory 256M --verify
      splitops merge model-4 --out model-again
    """
    cut(folder, **options)
