"""``splitops unfuse``: unfuse the fused tensors of a checkpoint."""

from __future__ import annotations

from typing import Any

import click

from splitops.cli._fusion import fusion_options, rewrite_checkpoint


@click.command(short_help="Unfuse the fused tensors of a model's checkpoint.")
@fusion_options
def command(**options: Any) -> None:
    """Unfuse the fused tensors of the checkpoint in MODEL_DIR, and write the result to another folder.

    The rules unfuse queries, keys and values (also interleaved by head or group), and gate and up projections
    (halves or interleaved). They also unstack experts, transpose weights and rename tensors. `splitops fuse`
    restores the same tensors, and the files and the index of transformers byte by byte. Sidecar files are
    copied unchanged: edit config.json if another class loads the model. The command fails if a tensor does
    not match its rule.

    MODEL_DIR may be a LoRA adapter of PEFT. Each part gets the matrix A and its rows of the matrix B, and
    adapter_config.json is rewritten.

    \b
    Examples:
      splitops unfuse phi --out phi-unfused
      splitops unfuse model --plan rules.toml --out model-unfused --verify
      splitops unfuse adapter --base phi --out adapter-unfused
    """
    from splitops.sharding import unfuse

    rewrite_checkpoint(unfuse, **options)
