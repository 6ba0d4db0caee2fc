"""``splitops inspect``: show the tensors in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import console, json_option, one_line, print_json, say_written, table
from splitops.cli._files import raw_option, read_file
from splitops.cli._paths import NEW_FILE, Existing
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.files import Contents, Format

_MAX_ROWS: Final = 200


@click.command(short_help="Show the tensors in a file.")
@click.argument("file", type=Existing(), required=False)
@raw_option
@click.option("--svg", type=NEW_FILE, help="Draw the file's layout, too.")
@click.option(
    "--check",
    "checksums",
    metavar="FILE",
    type=Existing(),
    help="Read the files again whose SHA-256 are in FILE, as --checksums or sha256sum writes it.",
)
@json_option
def command(
    file: Path | None, raw: Format | None, svg: Path | None, checksums: Path | None, as_json: bool
) -> None:
    """Show the tensors in FILE: types, shapes, and where their bytes are. Nothing else of it is read.

    With --check, read everything again that a file of checksums names. Exit code 1 if a file differs.

    \b
    Examples:
      splitops inspect model.safetensors
      splitops inspect data.npz --json
      splitops inspect model.safetensors --svg layout.svg
      splitops inspect --check model-8.sha256
    """
    if checksums is not None:
        if file is not None or raw is not None or svg is not None:
            raise click.UsageError("--check goes without FILE, --raw and --svg: its file names all others.")
        _check(checksums, as_json=as_json)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    from splitops.files.picture import draw
    from splitops.ground.writing import write_whole

    contents = read_file(file, raw, "inspect")
    if svg is not None:
        write_whole(svg, draw(contents).encode())
    if as_json:
        print_json(_json(file, contents))
    else:
        _print(file, contents)
        say_written(svg)


def _check(checksums: Path, *, as_json: bool) -> None:
    """Say of each file of a file of checksums whether it is as it was."""
    from splitops.files.checksums import check

    found = list(check(checksums))
    wrong = [each for each in found if each.problem is not None]
    if as_json:
        files = [{"file": each.name, "problem": each.problem} for each in found]
        print_json({"checksums": str(checksums), "files": files, "differ": len(wrong)})
    else:
        out = console()
        for each in wrong:
            out.print(f"{one_line(each.name)}: {one_line(str(each.problem))}", soft_wrap=True)
        same = count_of(len(found) - len(wrong), "file")
        out.print(f"{same} as in {one_line(str(checksums))}, {len(wrong)} not", soft_wrap=True)
    if wrong:
        raise click.exceptions.Exit(1)


def _json(file: Path, contents: Contents) -> dict[str, Any]:
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
    out = console()
    size = sum(tensor.size for tensor in contents.tensors)
    tensors = count_of(len(contents.tensors), "tensor")
    out.print(
        f"{one_line(str(file))}: {contents.format.name}, {tensors}, {size} bytes",
        style="bold",
        soft_wrap=True,
    )
    rows = table("tensor", "type", "shape", "offset", "bytes", right=("offset", "bytes"))
    for tensor in contents.tensors[:_MAX_ROWS]:
        kind = one_line(str(tensor.dtype or tensor.code)) + (", Fortran order" if tensor.fortran else "")
        rows.add_row(one_line(tensor.name), kind, str(tensor.shape), str(tensor.offset), str(tensor.size))
    out.print(rows)
    if len(contents.tensors) > _MAX_ROWS:
        out.print(f"... and {len(contents.tensors) - _MAX_ROWS} more")
