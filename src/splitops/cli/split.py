"""``splitops split``: one .npy file into the .npy files of its parts."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import numpy as np
import numpy.typing as npt

from splitops.cli._console import console, json_option, one_line, print_json, table
from splitops.cli._filenames import safe_names
from splitops.cli._npy import Header, MappedArray, blocks, header_bytes, mapped
from splitops.cli._operators import ELEMENT_TYPE, SplitOptions, display_name, split_options
from splitops.elements.types import ElementType, element_type_of
from splitops.errors import ModelError, shown_path
from splitops.execute import Plan
from splitops.operators import OperatorSchema
from splitops.writing import StagedFiles

_BLOCK: Final = 8 << 20
"""Bytes that are copied at a time."""
_OPEN_FILES: Final = 64
"""Parts that are written side by side, in one pass over the data."""
_MAX_FILES: Final = 100_000
_MAX_ROWS: Final = 32


@click.command(short_help="Split a .npy file into .npy files.")
@click.argument("file", type=click.Path(path_type=Path))
@split_options
@click.option(
    "--dtype",
    type=ELEMENT_TYPE,
    help="The element type where .npy cannot say it, such as bfloat16 for 2-byte items.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder for the parts, made if it is not there.  [default: the current folder]",
)
@click.option(
    "--prefix",
    help="Beginning of the parts' file names.  [default: the name of FILE, _ for what is no letter, digit or "
    "one of ._-+]",
)
@json_option
def command(
    file: Path,
    options: SplitOptions,
    dtype: ElementType | None,
    out: Path,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Split the array in FILE, a .npy file, and write PREFIX.0.npy, PREFIX.1.npy and so on.

    The indices have leading zeros, so that the files sort in order. FILE is mapped into memory and copied in
    blocks: it may be larger than memory. The parts keep its dtype, byte order and memory order bit for bit.
    They appear all together or not at all, and replace files of the same names.

    \b
    Examples:
      splitops split data.npy --axis 1 --sizes 2,4
      splitops split data.npy --parts 3 --out parts --prefix layer
      splitops split data.npy --axis -1 --chunk 4096
      splitops split data.npy --sizes -1,2
      splitops split data.npy --parts 3 --op openvino:Split-1
    """
    source = mapped(file)
    header = source.header
    element_type = _element_type(header, dtype, file)
    row, plan = options.plan(header.shape, element_type)
    if len(plan.sizes) > _MAX_FILES:
        raise ModelError(f"{len(plan.sizes)} parts would be as many files; at most {_MAX_FILES} are written")
    stem = _stem(file, prefix)
    digits = len(str(max(0, len(plan.sizes) - 1)))
    names = [f"{stem}.{index:0{digits}}.npy" for index in range(len(plan.sizes))]
    paths = [out / name for name in names]
    if file.resolve() in {path.resolve() for path in paths}:
        raise click.UsageError(
            f"A part would replace {one_line(str(file))} itself: change --prefix or --out."
        )
    with StagedFiles(make_folders=True) as files:
        _write(files, paths, source, plan)
    if as_json:
        print_json(_json(file, row, header, plan, paths))
    else:
        _print(file, row, header, plan, paths)


def _stem(file: Path, prefix: str | None) -> str:
    """Return what the names of the parts begin with: what is stated is taken as it is, or refused."""
    [stem] = safe_names([file.stem if prefix is None else prefix], [""])
    if prefix not in (None, stem):
        raise click.BadParameter(
            f"{one_line(repr(prefix))} cannot begin a file name: it takes letters, digits and ._-+, "
            "and the folder is stated by --out.",
            param_hint="--prefix",
        )
    return stem


def _element_type(header: Header, stated: ElementType | None, file: Path) -> ElementType | None:
    if stated is None:
        return element_type_of(header.dtype) or ElementType(str(header.dtype), bits=0)
    if stated.numpy.itemsize != header.dtype.itemsize or header.dtype.kind not in "Vu":
        native = element_type_of(header.dtype)
        if native is not stated:
            raise ModelError(f"{shown_path(file)}: its {header.dtype} items are not {stated}")
    return stated


def _write(staged: StagedFiles, paths: list[Path], source: MappedArray, plan: Plan) -> None:
    """Write the parts, side by side as long as they are few: each block of the data is read once."""
    header = source.header
    shape, axis = plan.shape, plan.axis
    # The bytes of a Fortran-ordered array are those of the row-major array with the axes reversed.
    ahead, behind = (shape[axis + 1 :], shape[:axis]) if header.fortran else (shape[:axis], shape[axis + 1 :])
    shapes = plan.shapes
    step = math.prod(behind) * header.dtype.itemsize
    rows = math.prod(ahead) if source.data.size else 0
    data = source.data.reshape(rows, shape[axis] * step) if rows else np.empty((0, 0), np.uint8)
    for first in range(0, len(paths), _OPEN_FILES):
        batch = range(first, min(first + _OPEN_FILES, len(paths)))
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(staged.open(paths[index])) for index in batch]
            for index, file in zip(batch, files, strict=True):
                file.write(header_bytes(shapes[index], header.dtype, fortran=header.fortran))
            _copy(data, [(plan.offsets[index] * step, plan.sizes[index] * step) for index in batch], files)


def _copy(data: npt.NDArray[np.uint8], ranges: list[tuple[int, int]], files: list[BinaryIO]) -> None:
    together = max(1, _BLOCK // max(1, data.shape[1]))
    for at in range(0, len(data), together):
        for (offset, length), file in zip(ranges, files, strict=True):
            for block in blocks(data[at : at + together], offset, offset + length, _BLOCK):
                file.write(block)


def _json(file: Path, row: OperatorSchema, header: Header, plan: Plan, paths: list[Path]) -> dict[str, Any]:
    parts = zip(paths, plan.offsets, plan.sizes, plan.shapes, strict=True)
    return {
        "file": str(file),
        "operator": str(row),
        "domain": row.domain,
        "shape": list(header.shape),
        "dtype": str(header.dtype),
        "axis": plan.axis,
        "parts": [
            {"file": str(path), "offset": offset, "size": size, "shape": list(shape)}
            for path, offset, size, shape in parts
        ],
    }


def _print(file: Path, row: OperatorSchema, header: Header, plan: Plan, paths: list[Path]) -> None:
    out = console()
    out.print(
        f"{display_name(row)}: {one_line(str(file))} {header.shape} {header.dtype} along axis {plan.axis}",
        style="bold",
        soft_wrap=True,
    )
    parts = table("file", "offset", "size", "shape", right=("offset", "size"))
    for path, offset, size, shape in list(zip(paths, plan.offsets, plan.sizes, plan.shapes, strict=True))[
        :_MAX_ROWS
    ]:
        parts.add_row(one_line(str(path)), str(offset), str(size), str(shape))
    out.print(parts)
    if len(paths) > _MAX_ROWS:
        out.print(f"... and {len(paths) - _MAX_ROWS} more, to {one_line(str(paths[-1]))}", soft_wrap=True)
