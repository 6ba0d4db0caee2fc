"""``splitops split``: a tensor in a file into a file a part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from splitops.cli._console import json_option, one_line
from splitops.cli._filenames import safe_names
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
from splitops.cli._operators import ELEMENT_TYPE, SplitOptions, split_options
from splitops.cli._options import BYTES
from splitops.cli._paths import NEW_FOLDER, Existing
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import display_name

if TYPE_CHECKING:
    from splitops.files import Format


@click.command(short_help="Split a tensor, or a model by size, in files of any size.")
@click.argument("file", type=Existing())
@split_options
@click.option("--tensor", metavar="NAME", help="The tensor; needed where FILE has more than one.")
@click.option(
    "--max-size",
    type=BYTES,
    metavar="SIZE",
    help="Write whole tensors, in files of at most SIZE, such as 5GB. FILE may be a model's folder.",
)
@click.option("--keep-others", is_flag=True, help="Copy the other tensors of FILE into each part.")
@click.option(
    "--dtype",
    type=ELEMENT_TYPE,
    help="The element type where .npy cannot say it, such as bfloat16 for 2-byte items.",
)
@raw_option
@format_option
@click.option(
    "-o",
    "--out",
    type=NEW_FOLDER,
    default=Path(),
    show_default=False,
    help="Folder for the parts, or an address; it is created if needed.  [default: the current folder]",
)
@click.option(
    "--prefix",
    help="Beginning of the parts' file names.  [default: the name of FILE, _ for all but letters, digits and "
    "one of ._-+]",
)
@links_option
@strict_option
@run_options
@json_option
def command(
    file: Path,
    options: SplitOptions,
    tensor: str | None,
    max_size: int | None,
    keep_others: bool,
    dtype: ElementType | None,
    raw: Format | None,
    to: Format | None,
    out: Path,
    prefix: str | None,
    allow_links: bool,
    strict: bool,
    how: RunOptions,
    as_json: bool,
) -> None:
    """Split a tensor in FILE and write PREFIX.0.npy, PREFIX.1.npy and so on, or as FILE's name ends.

    FILE is a .npy, .npz, .safetensors, .gguf, .onnx (external data), .xml (OpenVINO IR), .h5 or .zarr
    file, or raw bytes; some may be compressed (.npy.gz) or at an address (s3://...). Only bounded buffers of
    it are in memory. The indices have leading zeros, so that the files sort in order. The parts keep its
    element type, byte order and memory order bit for bit, and the tensor's name. They appear all together or
    not at all; files of the same names are an error without --overwrite.

    With --max-size, split no tensor: write whole ones to files of at most that size. Safetensors get the
    index that transformers and diffusers read, GGUF files the split keys of llama.cpp. The small files of a
    model's folder are copied. `splitops merge` makes one file of them.

    \b
    Examples:
      splitops split data.npy --axis 1 --sizes 2,4
      splitops split data.npy --axis -1 --chunk 4096 --memory 256M --verify
      splitops split model.safetensors --tensor embed.weight --parts 4 --out parts
      splitops split s3://bucket/data.npy --axis 1 --parts 4 --out parts
      splitops split data.npy.gz --axis 1 --parts 4 --out s3://bucket/parts
      splitops split data.bin --raw 1024,-1:float16 --axis 1 --parts 2
      splitops split data.npy --sizes -1,2
      splitops split data.npy --parts 3 --op openvino:Split-1
      splitops split model --max-size 5GB --out model-5GB
    """
    from splitops.files.addresses import format_location
    from splitops.files.planning import plan_tensor_split

    if max_size is not None:
        if options != SplitOptions() or any((tensor, keep_others, dtype, raw)):
            raise click.UsageError("--max-size keeps tensors whole. Leave out the options that cut a tensor.")
        from splitops.files.whole import plan_contents_by_size, read_all_tensors

        whole, others, warnings = read_all_tensors(file, allow_links=allow_links, strict=strict)
        stem = _stem(whole.sources[0].path, prefix)
        made = plan_contents_by_size(whole, out, max_size, stem=stem, to=to, others=others, warnings=warnings)
        show_whole(file, made, how.run(made), max_size, as_json=as_json)
        return
    if strict:
        raise click.UsageError("--strict is for a model's folder, with --max-size.")
    row = options.resolve()
    contents = read_file(file, raw, "split", allow_links=allow_links)
    stored = contents.get_tensor(tensor)
    plan = plan_tensor_split(
        contents,
        out,
        lambda shape, element_type: options.plan(shape, element_type)[1],
        tensor=tensor,
        element_type=dtype,
        prefix=_stem(file, prefix),
        keep_others=keep_others,
        to=to,
    )
    result = how.run(plan)
    axis = (options.axis or 0) % len(stored.shape)
    kind = str(stored.dtype or stored.code)
    name = f"{one_line(format_location(file))} {one_line(stored.name)}".rstrip()
    heading = f"{display_name(row)}: {name} {stored.shape} {kind} along axis {axis}"
    facts = {
        "file": format_location(file),
        **({"tensor": stored.name} if stored.name else {}),
        "operator": str(row),
        "domain": row.domain,
        "shape": list(stored.shape),
        "dtype": kind,
        "axis": axis,
    }
    show(plan, result, heading, facts, as_json=as_json)


def _stem(file: Path, prefix: str | None) -> str:
    """Return what the names of the parts begin with: the given prefix, if it is valid."""
    from splitops.files.folders import stem_of
    from splitops.files.streams import strip_compression

    [stem] = safe_names([stem_of(strip_compression(file)) if prefix is None else prefix], [""])
    if prefix not in (None, stem):
        raise click.BadParameter(
            f"{one_line(repr(prefix))} cannot begin a file name: it takes letters, digits and ._-+, "
            "and the folder is set by --out.",
            param_hint="--prefix",
        )
    return stem
