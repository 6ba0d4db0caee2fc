"""``splitops shard``: shard a checkpoint over ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from splitops.cli._paths import Existing
from splitops.cli._shards import shard_folder, shard_options


@click.command(short_help="Shard a model's checkpoint over ranks.")
@click.argument("folder", metavar="MODEL_DIR", type=Existing())
@shard_options
def command(folder: Path, **options: Any) -> None:
    """Shard the checkpoint in MODEL_DIR over ranks. Each rank gets its part of every tensor.

    MODEL_DIR contains config.json and either model.safetensors or an index with its shards, or it is an ONNX
    model with external data. The rules of a plan match the names of tensors and set how these are sharded. If
    a tensor cannot be sharded over this number of ranks, the error lists the numbers that are possible.
    Either all ranks are written, or none. Memory use is bounded. `splitops merge` restores the same files,
    byte by byte.

    With --pad, sizes that do not fit are padded with zeros: the intermediate sizes and the vocabulary, in all
    of their tensors, scales and zero points. The model computes the same results, config.json has the new
    sizes, and a merge removes the padding.

    \b
    Examples:
      splitops shard model --list
      splitops shard model --ranks 8 --plan auto --out model-8
      splitops shard model --ranks 8 --plan plan.toml --dry-run --svg ranks.svg
      splitops shard model --ranks 4 --plan plan.toml --out model-4 --memory 256M --verify
      splitops shard model --ranks 6 --pad --out model-6
      splitops shard model --ranks 1 --pad-for 8 --out model-for-8
      splitops merge model-4 --out model-again
    """
    shard_folder(folder, **options)
