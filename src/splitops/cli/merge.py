"""``splitops merge``: merge the parts of a tensor, the files of a model, or the ranks of a checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from splitops.cli._console import escape, json_option
from splitops.cli._files import (
    CliRunOptions,
    format_option,
    print_file_contents,
    print_parts,
    raw_option,
    read_file,
    run_options,
)
from splitops.cli._models import links_option, strict_option
from splitops.cli._paths import Existing
from splitops.cli._shards import like_option, merge_ranks, plan_option
from splitops.errors import FileError

if TYPE_CHECKING:
    from splitops.files import Format


@click.command(short_help="Merge the parts of a tensor, a model's files, or its ranks.")
@click.argument("files", nargs=-1, required=True, type=Existing())
@click.option("--axis", type=int, default=0, help="Axis along which to concatenate the parts.")
@click.option("--tensor", metavar="NAME", help="Tensor to merge; required if the files have several.")
@raw_option
@format_option
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File or URL to write; for ranks, a folder.",
)
@plan_option
@click.option(
    "--external-data",
    is_flag=True,
    help="For an ONNX model: write its external data to one data file, OUT.data, not into the model.",
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
    plan_: str | None,
    external_data: bool,
    like: Path | None,
    allow_links: bool,
    strict: bool,
    how: CliRunOptions,
    as_json: bool,
) -> None:
    """Merge the parts of a tensor in FILES into one file. FILES must be in the order of the parts.

    This is the inverse of `splitops split`: the merged file has the same bytes as the file that was split. If
    FILES contain other tensors, those of the first file are copied.

    Ranks that `splitops shard` has written are merged into the original checkpoint: the same files, byte by
    byte. A distributed checkpoint of PyTorch in safetensors files, and ranks of Megatron-LM, vLLM, DeepSpeed
    or Meta's Llama as safetensors, can be merged, too. --plan sets the rules by which those ranks were
    sharded; --files-like sets the files to write.

    A model in several files is merged into one file: name its folder, its index, one of its numbered files,
    or all of them. The extension of --out determines the format of the file, unless --to is set.

    The external data of an ONNX model is merged into the model. A model of more than 2 GiB, which ONNX does
    not allow, gets one data file instead. The data of subgraphs, functions and node attributes is always
    stored in the model.

    \b
    Examples:
      splitops merge parts/data.*.npy --axis 1 --out data.npy
      splitops merge parts/model.*.safetensors --tensor embed.weight --out model.safetensors
      splitops merge a.bin b.bin --raw 1024,-1:float16 --axis 1 --out data.bin
      splitops merge model-8 --out model
      splitops merge iter_0001000 --plan auto --out model
      splitops merge model-5GB --out model.safetensors
      splitops merge model-00001-of-00003.gguf --out model.gguf
      splitops merge model.onnx --out one.onnx
    """
    from splitops.files.max_size import plan_one_file
    from splitops.files.plan_builder import plan_tensor_merge
    from splitops.files.urls import format_location

    of_ranks = {"--files-like": like, "--plan": plan_}
    if tensor is None and raw is None and _is_model_to_one_file(files, out, to):
        _reject_options(of_ranks, "a folder of ranks")
        made = plan_one_file(
            files[0], out, to=to, external_data=external_data, allow_links=allow_links, strict=strict
        )
        print_file_contents(files[0], made, how.run(made), None, as_json=as_json)
        return
    if external_data:
        raise click.UsageError("--external-data can be used only with an ONNX model.")
    if len(files) == 1 and files[0].is_dir() and files[0].suffix.lower() != ".zarr":
        merge_ranks(files[0], out, plan_, like, how, as_json=as_json, allow_links=allow_links, strict=strict)
        return
    _reject_options(of_ranks, "a folder of ranks")
    _reject_options({"--strict": strict}, "a folder of ranks or of a model")
    contents = [read_file(file, raw, "merge", allow_links=allow_links) for file in files]
    plan = plan_tensor_merge(contents, out, axis=axis, tensor=tensor, to=to)
    result = how.run(plan)
    [part] = plan.parts
    heading = f"{escape(format_location(out))} {part.shape} from {len(files)} files along axis {axis}"
    facts = {"files": [format_location(file) for file in files], "axis": axis}
    print_parts(plan, result, heading, facts, as_json=as_json)


def _is_model_to_one_file(files: tuple[Path, ...], out: Path, to: Format | None) -> bool:
    """Return whether ``files`` are the files of a model to merge into the single file ``out``."""
    from splitops.files.formats import detect_format
    from splitops.files.max_size import are_all_shards, is_shard_name
    from splitops.sharding.planning import is_rank_folder

    if len(files) > 1 or not files[0].is_dir():
        onnx = files[0].suffix.lower() == ".onnx"
        return are_all_shards(files) if len(files) > 1 else onnx or is_shard_name(files[0])
    if files[0].suffix.lower() == ".zarr" or is_rank_folder(files[0]):
        return False
    with contextlib.suppress(FileError):
        return to is not None or detect_format(out) is not None
    return False


def _reject_options(options: Mapping[str, object], kinds: str) -> None:
    for name, value in options.items():
        if value:
            raise click.UsageError(f"{name} can be used only with {kinds}.")
