"""``splitops index``: write the index of a model's safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from splitops.cli._console import json_option, print_json, print_written
from splitops.cli._files import CliRunOptions, print_end, print_warnings, run_options, summarise
from splitops.cli._models import links_option, strict_option
from splitops.cli._paths import Existing


@click.command(short_help="Write the index of a model's safetensors files.")
@click.argument("folder", metavar="MODEL_DIR", type=Existing(file_okay=False))
@click.option("--include", multiple=True, metavar="GLOB", help="Also list files with such names.")
@click.option(
    "--allow-missing", is_flag=True, help="Write the index although numbers of the set are missing."
)
@links_option
@strict_option
@run_options
@json_option
def command(folder: Path, how: CliRunOptions, as_json: bool, **options: Any) -> None:
    """Write the index of the safetensors files in MODEL_DIR, from their headers.

    The index, such as model.safetensors.index.json, lists the files of a numbered set such as
    model-00001-of-00003.safetensors, or all files if none is numbered. The command fails if a tensor is in
    two files or if numbers of the set are missing. It warns about files that do not belong to the set. An
    index that agrees with the files is left unchanged. --overwrite replaces a stale one.

    \b
    Examples:
      splitops index model
      splitops index model --dry-run --json
      splitops index model --overwrite --include "model-mtp-*.safetensors"
    """
    from splitops.files import plan_index

    made = plan_index(folder, **options)
    if not as_json:
        print_warnings(made.warnings)
    result = how.run(made)
    digests = list(getattr(result, "sha256", ()))
    if as_json:
        facts = {"from": str(folder), "files": [str(path) for path in made.paths], "tensors": len(made.parts)}
        print_json({**facts, "warnings": list(made.warnings), "sha256": digests, **summarise(result)})
    elif made.paths:
        print_end(result)
        print_written(*(() if how.dry_run else made.paths))
        click.echo("".join(f"sha256 {digest}\n" for digest in digests), nl=False)
    else:
        click.echo("The index agrees with the files.")
