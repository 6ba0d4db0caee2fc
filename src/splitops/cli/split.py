"""``splitops split``: split a tensor into one file per part, or a model into files of limited size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from splitops.cli._console import escape, json_option
from splitops.cli._filenames import make_safe_names
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
from splitops.cli._operators import ELEMENT_TYPE, SplitOptions, split_options
from splitops.cli._options import BYTES
from splitops.cli._paths import NEW_FOLDER, Existing
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import display_name

if TYPE_CHECKING:
    from splitops.files import Format


@click.command(short_help="Split a tensor into parts, or a model into files of limited size.")
@click.argument("file", type=Existing())
@split_options
@click.option("--tensor", metavar="NAME", help="Tensor to split; required if FILE has several.")
@click.option(
    "--max-size",
    type=BYTES,
    metavar="SIZE",
    help="Write complete tensors to files of at most SIZE, such as 5GB. FILE may be a model's folder.",
)
@click.option("--keep-other-tensors", is_flag=True, help="Copy the other tensors of FILE into each part.")
@click.option(
    "--dtype",
    type=ELEMENT_TYPE,
    help="Element type that .npy cannot declare, such as bfloat16 for 2-byte items.",
)
@raw_option
@format_option
@click.option(
    "-o",
    "--out",
    type=NEW_FOLDER,
    default=Path(),
    show_default=False,
    help="Folder or URL for the parts; it is created if needed.  [default: the current folder]",
)
@click.option(
    "--prefix",
    help="Prefix of the file names of the parts.  [default: the name of FILE, with _ instead of characters "
    "other than letters, digits and ._-+]",
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
    keep_other_tensors: bool,
    dtype: ElementType | None,
    raw: Format | None,
    to: Format | None,
    out: Path,
    prefix: str | None,
    allow_links: bool,
    strict: bool,
    how: CliRunOptions,
    as_json: bool,
) -> None:
    """Split a tensor in FILE into PREFIX.0.npy, PREFIX.1.npy and so on, with the extension of FILE.

    FILE is a .npy, .npz, .safetensors, .gguf, .onnx (external data), .xml (OpenVINO IR), .h5 or .zarr file,
    or raw bytes. Some formats may be compressed (.npy.gz) or at a URL (s3://...). Memory use is bounded.
    The numbers in file names have leading zeros, so that the files sort in order. The parts have the name,
    element type, byte order and memory order of the tensor. Either all parts are written, or none. Existing
    files are replaced only with --overwrite.

    With --max-size, no tensor is split: complete tensors are written to files of at most that size.
    Safetensors files get the index of transformers and diffusers. GGUF files get the split keys of llama.cpp.
    An ONNX model with external data gets several data files. The sidecar files of a model's folder are
    copied. `splitops merge` merges these files again.

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
      splitops split model.onnx --max-size 2GB --out model-2GB
    """
    from splitops.files.plan_builder import plan_tensor_split
    from splitops.files.urls import format_location

    if max_size is not None:
        if options != SplitOptions() or any((tensor, keep_other_tensors, dtype, raw)):
            raise click.UsageError(
                "--max-size does not split tensors. Leave out the options that split a tensor."
            )
        from splitops.files.max_size import plan_contents_by_size, read_all_tensors

        whole, others, warnings = read_all_tensors(file, allow_links=allow_links, strict=strict)
        stem = _make_stem(whole.sources[0].path, prefix)
        made = plan_contents_by_size(whole, out, max_size, stem=stem, to=to, others=others, warnings=warnings)
        print_file_contents(file, made, how.run(made), max_size, as_json=as_json)
        return
    if strict:
        raise click.UsageError("--strict requires --max-size, and the folder of a model.")
    schema = options.resolve()
    contents = read_file(file, raw, "split", allow_links=allow_links)
    stored = contents.get_tensor(tensor)
    plan = plan_tensor_split(
        contents,
        out,
        lambda shape, element_type: options.plan(shape, element_type)[1],
        tensor=tensor,
        element_type=dtype,
        prefix=_make_stem(file, prefix),
        keep_other_tensors=keep_other_tensors,
        to=to,
    )
    result = how.run(plan)
    axis = (options.axis or 0) % len(stored.shape)
    kind = str(stored.dtype or stored.code)
    name = f"{escape(format_location(file))} {escape(stored.name)}".rstrip()
    heading = f"{display_name(schema)}: {name} {stored.shape} {kind} along axis {axis}"
    facts = {
        "file": format_location(file),
        **({"tensor": stored.name} if stored.name else {}),
        "operator": str(schema),
        "domain": schema.domain,
        "shape": list(stored.shape),
        "dtype": kind,
        "axis": axis,
    }
    print_parts(plan, result, heading, facts, as_json=as_json)


def _make_stem(file: Path, prefix: str | None) -> str:
    """Return ``prefix`` after checking it or, if it is None, a safe prefix made from the name of ``file``."""
    from splitops.files.folders import stem_of
    from splitops.files.streams import strip_compression

    [stem] = make_safe_names([stem_of(strip_compression(file)) if prefix is None else prefix], [""])
    if prefix not in (None, stem):
        raise click.BadParameter(
            f"{escape(repr(prefix))} cannot begin a file name. Use letters, digits and ._-+. The folder "
            "is set by --out.",
            param_hint="--prefix",
        )
    return stem
