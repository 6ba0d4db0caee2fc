"""``splitops inspect``: show the tensors in a file, and the split nodes of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    escape,
    format_place,
    format_shapes,
    json_option,
    make_console,
    make_table,
    print_json,
    print_written,
)
from splitops.cli._files import add_sources, raw_option, read_file
from splitops.cli._models import links_option
from splitops.cli._paths import NEW_FILE, Existing
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.files import Contents, Format
    from splitops.models.infer import SplitNode

_MAX_ROWS: Final = 200


@click.command(short_help="Show the tensors in a file, and the splits of a model.")
@click.argument("file", type=Existing(), required=False)
@raw_option
@click.option("--svg", type=NEW_FILE, help="Also draw the layout of the file.")
@click.option(
    "--check",
    "checksums",
    metavar="FILE",
    type=Existing(),
    help="Check all files listed in FILE, which was written by --checksums or sha256sum.",
)
@links_option
@json_option
def command(
    file: Path | None,
    raw: Format | None,
    svg: Path | None,
    checksums: Path | None,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Show the tensors in FILE: their types, shapes and offsets. The elements are not read.

    For a model (.onnx or .xml), also show its split nodes, with the shapes of their parts if they can be
    inferred.

    With --check, read all files in a list of checksums. The exit code is 1 if a file differs, or if it is
    outside the folder of the list and --allow-links is not set.

    \b
    Examples:
      splitops inspect model.safetensors
      splitops inspect data.npz --json
      splitops inspect model.onnx
      splitops inspect model.safetensors --svg layout.svg
      splitops inspect --check model-8.sha256
    """
    if checksums is not None:
        if file is not None or raw is not None or svg is not None:
            raise click.UsageError("--check cannot be combined with FILE, --raw or --svg.")
        _check_files(checksums, allow_links, as_json=as_json)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    from splitops.common.atomic_write import write_atomically
    from splitops.files.layout_diagram import draw
    from splitops.files.urls import is_url

    contents = read_file(file, raw, "inspect", allow_links=allow_links)
    add_sources(contents.sources)
    splits = None
    if contents.format.name in ("onnx", "openvino") and not is_url(file):
        from splitops.models.infer import find_splits

        splits = find_splits(file, allow_links=allow_links)
    if svg is not None:
        write_atomically(svg, draw(contents).encode())
    if as_json:
        found = {} if splits is None else {"splits": list(map(_split_to_json, splits))}
        print_json(_to_json(file, contents) | found)
    else:
        _print(file, contents)
        if splits is not None:
            _print_splits(splits)
        print_written(svg)


def _check_files(checksums: Path, allow_links: bool, *, as_json: bool) -> None:
    """Check the files in a list of checksums, print the wrong ones, and exit with 1 if there are any."""
    from splitops.files.checksums import check

    found = list(check(checksums, allow_links=allow_links))
    wrong = [each for each in found if each.problem is not None]
    if as_json:
        files = [{"file": each.name, "problem": each.problem} for each in found]
        print_json({"checksums": str(checksums), "files": files, "differ": len(wrong)})
    else:
        out = make_console()
        for each in wrong:
            out.print(f"{escape(each.name)}: {escape(str(each.problem))}", soft_wrap=True)
        same = count_of(len(found) - len(wrong), "file")
        out.print(f"{escape(str(checksums))}: {same} correct, {len(wrong)} wrong", soft_wrap=True)
    if wrong:
        raise click.exceptions.Exit(1)


def _to_json(file: Path, contents: Contents) -> dict[str, Any]:
    tensors = [
        {
            "name": tensor.name,
            "dtype": str(tensor.dtype or tensor.code),
            "shape": list(tensor.shape),
            **({"order": "F"} if tensor.fortran else {}),
            **({"source": tensor.file} if tensor.file else {}),
            "offset": tensor.offset,
            "bytes": tensor.size,
        }
        for tensor in contents.tensors
    ]
    return {
        "file": str(file),
        "format": contents.format.name,
        "bytes": contents.sources[0].size,
        "tensors": tensors,
    }


def _print(file: Path, contents: Contents) -> None:
    out = make_console()
    size = sum(tensor.size for tensor in contents.tensors)
    tensors = count_of(len(contents.tensors), "tensor")
    out.print(
        f"{escape(str(file))}: {contents.format.name}, {tensors}, {size} bytes",
        style="bold",
        soft_wrap=True,
    )
    if not contents.tensors:
        return
    rows = make_table("tensor", "type", "shape", "offset", "bytes", right=("offset", "bytes"))
    for tensor in contents.tensors[:_MAX_ROWS]:
        kind = escape(str(tensor.dtype or tensor.code)) + (", Fortran order" if tensor.fortran else "")
        rows.add_row(escape(tensor.name), kind, str(tensor.shape), str(tensor.offset), str(tensor.size))
    out.print(rows)
    if len(contents.tensors) > _MAX_ROWS:
        out.print(f"... and {len(contents.tensors) - _MAX_ROWS} more")


def _split_to_json(split: SplitNode) -> dict[str, Any]:
    data = split.facts[0] if split.facts else None
    parts = None if split.inference is None else split.inference.parts
    return {
        "node": split.where.node,
        "graph": split.where.graph,
        "operator": split.operator,
        "axis": split.axis,
        "lengths": _get_lengths(split),
        "split": str(split),
        "data": None if data is None else _shape_to_json(data.shape),
        "outputs": list(split.outputs),
        "parts": None if parts is None else list(map(_shape_to_json, parts)),
        "error": None if split.error is None else split.error.message,
    }


def _get_lengths(split: SplitNode) -> list[int | None] | None:
    """Return the lengths of a split node, with None for unknown ones, or None if there are no lengths."""
    if split.binding is None:
        return None
    division = split.binding.division
    lengths = split.binding.lengths if division is None else division.lengths
    return list(lengths) if lengths else None


def _shape_to_json(shape: Sequence[object] | None) -> list[int | str] | None:
    return None if shape is None else [size if isinstance(size, int) else str(size) for size in shape]


def _print_splits(splits: list[SplitNode]) -> None:
    out = make_console()
    out.print(f"{count_of(len(splits), 'split node')}", style="bold")
    rows = make_table("node", "split", "data", "parts")
    for split in splits[:_MAX_ROWS]:
        data = split.facts[0] if split.facts else None
        shapes = "" if data is None else format_shapes([data.shape])
        rows.add_row(
            format_place(split.where), escape(str(split), 200), escape(shapes, 200), _format_parts(split)
        )
    if splits:
        out.print(rows)
    if len(splits) > _MAX_ROWS:
        out.print(f"... and {len(splits) - _MAX_ROWS} more")


def _format_parts(split: SplitNode) -> str:
    """Format the shapes of the parts, the length and element shape of a sequence, or the error of a split."""
    if split.inference is None:
        return escape("" if split.error is None else split.error.message, 400)
    if split.inference.parts is not None:
        return escape(format_shapes(split.inference.parts), 400)
    count, element = split.inference.count, format_shapes([split.inference.element])
    return escape(f"sequence: {count} of {element}", 400)
