"""``splitops fuse``: fuse tensors of a checkpoint."""

from __future__ import annotations

from typing import Any

import click

from splitops.cli._fusion import fusion_options, rewrite_checkpoint


@click.command(short_help="Fuse tensors of a model's checkpoint.")
@fusion_options
def command(**options: Any) -> None:
    """Fuse tensors of the checkpoint in MODEL_DIR, and write the result to another folder.

    The rules fuse queries, keys and values (also interleaved by head or group), and gate and up projections
    (as halves or interleaved). They also stack experts, transpose weights and rename tensors. `splitops
    unfuse` restores the same tensors. It restores the same files if all parts of each fused tensor are in one
    file; otherwise, some tensors end up in another file. Sidecar files are copied unchanged: edit config.json
    if another class loads the model. The command fails if a tensor does not match its rule.

    MODEL_DIR may be a LoRA adapter of PEFT. If the matrices A of a fused module are equal, it gets one of
    them. Otherwise, they are concatenated and B becomes block-diagonal, and `splitops unfuse` returns modules
    of this higher rank. adapter_config.json is rewritten.

    \b
    Examples:
      splitops fuse mixtral --out mixtral-stacked --dry-run
      splitops fuse model --plan rules.toml --out model-fused --verify
      splitops fuse adapter --base phi --out adapter-fused
    """
    from splitops.sharding import fuse

    rewrite_checkpoint(fuse, **options)
