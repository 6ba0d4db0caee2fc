"""``splitops merge``: the parts of a tensor, or the files of a model, into one file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from splitops.cli._console import json_option, one_line
from splitops.cli._files import (
    RunOptions,
    format_option,
    raw_option,
    read_file,
    run_options,
    show,
    show_whole,
)
from splitops.cli._models import links_option, strict_option
from splitops.cli._paths import Existing
from splitops.cli._shards import like_option, merge_ranks
from splitops.errors import FileError

if TYPE_CHECKING:
    from splitops.files import Format


@click.command(short_help="Merge the parts of a tensor, a model's files, or its ranks.")
@click.argument("files", nargs=-1, required=True, type=Existing())
@click.option("--axis", type=int, default=0, help="The axis along which the parts lie.")
@click.option("--tensor", metavar="NAME", help="The tensor; needed where the files have more than one.")
@raw_option
@format_option
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write, or its address; of ranks, the folder.",
)
@like_option
@links_option
@strict_option
@run_options
@json_option
def command(
    files: tuple[Path, ...],
    axis: int,
    tensor: str | None,
    raw: Format | None,
    to: Format | None,
    out: Path,
    like: Path | None,
    allow_links: bool,
    strict: bool,
    how: RunOptions,
    as_json: bool,
) -> None:
    """Merge the tensor that FILES hold the parts of, in the order given, into one file.

    The inverse of `splitops split`: merged from all parts, the file has the bytes of the one that was split.
    Other tensors of the files are taken from the first.

    One folder of ranks, as `splitops shard` writes it, is merged into the checkpoint that it was cut
    from: the same files, byte by byte. The safetensors of a distributed checkpoint that PyTorch wrote are
    merged as well; --like says what files the whole is to have.

    A model in several files is merged into one: name its folder, its index, one of its numbered files, or
    all of them, and a file for --out. The ending of that file is its format, unless --to is another one.

    \b
    Examples:
      splitops merge parts/data.*.npy --axis 1 --out data.npy
      splitops merge parts/model.*.safetensors --tensor embed.weight --out model.safetensors
      splitops merge a.bin b.bin --raw 1024,-1:float16 --axis 1 --out data.bin
      splitops merge model-8 --out model
      splitops merge model-5GB --out model.safetensors
      splitops merge model-00001-of-00003.gguf --out model.gguf
    """
    from splitops.files.addresses import format_location
    from splitops.files.planning import plan_tensor_merge
    from splitops.files.whole import plan_one_file

    if tensor is None and raw is None and _is_whole(files, out, to):
        made = plan_one_file(files[0], out, to=to, allow_links=allow_links, strict=strict)
        show_whole(files[0], made, how.run(made), None, as_json=as_json)
        return
    if len(files) == 1 and files[0].is_dir() and files[0].suffix.lower() != ".zarr":
        merge_ranks(files[0], out, like, how, as_json=as_json, allow_links=allow_links, strict=strict)
        return
    for name, given in (("--like", like is not None), ("--strict", strict)):
        if given:
            raise click.UsageError(f"{name} is for a folder of ranks{' or of a model' * (name != '--like')}.")
    contents = [read_file(file, raw, "merge", allow_links=allow_links) for file in files]
    plan = plan_tensor_merge(contents, out, axis=axis, tensor=tensor, to=to)
    result = how.run(plan)
    [part] = plan.parts
    heading = f"{one_line(format_location(out))} {part.shape} from {len(files)} files along axis {axis}"
    facts = {"files": [format_location(file) for file in files], "axis": axis}
    show(plan, result, heading, facts, as_json=as_json)


def _is_whole(files: tuple[Path, ...], out: Path, to: Format | None) -> bool:
    """Return whether files are a model's that is to be one file; a folder of ranks is merged to a folder."""
    from splitops.files.formats import detect_format
    from splitops.files.whole import are_all_shards, is_shard_name
    from splitops.sharding.planning import are_ranks

    if len(files) > 1 or not files[0].is_dir():
        return are_all_shards(files) if len(files) > 1 else is_shard_name(files[0])
    if files[0].suffix.lower() == ".zarr" or are_ranks(files[0]):
        return False
    with contextlib.suppress(FileError):
        return to is not None or detect_format(out) is not None
    return False
