"""What the commands on tensor files share: their options, the progress bar, the reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import console, one_line, print_json, table
from splitops.cli._models import dry_run_option
from splitops.cli._operators import find_element_type, read_integers
from splitops.cli._options import BYTES, Read, gathered
from splitops.cli._paths import NEW_FILE, absence, add_path
from splitops.errors import FileError, count_of
from splitops.ground.progress import telling

if TYPE_CHECKING:
    from splitops.files import Contents, DryRun, FilePlan, Format, Report
    from splitops.files.sources import Source

_MAX_ROWS: Final = 32


def _read_raw(text: str) -> Format:
    """Read SHAPE:DTYPE[@OFFSET]."""
    from splitops.files.formats.raw import RawFormat

    described, at, offset = text.partition("@")
    shape, colon, dtype = described.rpartition(":")
    if not colon or (at and not (offset.isascii() and offset.isdigit() and len(offset) < 20)):
        raise click.BadParameter(f"{text!r} is not SHAPE:DTYPE[@OFFSET], such as 4096,1024:float32@128")
    sizes = read_integers(shape)
    if any(size < -1 for size in sizes):
        raise click.BadParameter(f"{shape!r} has a size below -1")
    return RawFormat(sizes, find_element_type(dtype), int(offset or 0))


def _read_format(text: str) -> Format:
    from splitops.files.formats import WRITTEN, get_format

    if text not in WRITTEN:
        raise click.BadParameter(f"{text!r} is not a format; these are {', '.join(WRITTEN)}")
    return get_format(text)


def read_file(file: Path, raw: Format | None, command: str, *, allow_links: bool = False) -> Contents:
    """Read what a tensor file holds.

    ``command`` is named in the message of a folder. Nothing at an address is wrong usage.
    """
    from splitops.files.addresses import is_address
    from splitops.files.planning import read

    if file.suffix.lower() != ".zarr" and file.is_dir():
        raise click.UsageError(_of_folder(file, command))
    try:
        return read(file, raw, allow_links=allow_links)
    except FileError as error:
        if is_address(file) and isinstance(error.__cause__, FileNotFoundError):
            raise click.UsageError(absence(file)) from error
        raise


def add_sources(sources: Iterable[Source]) -> None:
    """Note the files that a command reads, so that none of its options may replace one.

    Raises:
        click.UsageError: an option would.
    """
    for source in sources:
        add_path(source.path, "a source")


def _of_folder(folder: Path, command: str) -> str:
    from splitops.files.formats import detect_format
    from splitops.files.pickles import advise_on_pickles

    name, paths = one_line(str(folder)), sorted(folder.iterdir())
    for path in paths:
        try:
            detect_format(path)
        except FileError:
            continue
        return (
            f"{name} is a folder. Name one of its files, such as: splitops {command} {one_line(str(path))}. "
            f"To see how a checkpoint is cut: splitops shard {name} --dry-run. "
            f"To write its whole tensors by size: splitops split {name} --max-size 5GB"
        )
    advice = advise_on_pickles([path.name for path in paths]) or "Give a file."
    return f"{name} is a folder without tensor files. {advice}"


raw_option = click.option(
    "--raw",
    "raw",
    type=Read("raw", _read_raw),
    metavar="SHAPE:DTYPE[@OFFSET]",
    help="Read raw bytes as one array; one size may be -1 and follows from the file.",
)


format_option = click.option(
    "--to",
    type=Read("format", _read_format),
    metavar="FORMAT",
    help="The format to write, such as npy or safetensors.  [default: FILE's; of merge, as --out ends]",
)


class RunOptions:
    """How a plan is executed: whether it is a dry run, and the options of ``FilePlan.run``."""

    def __init__(self, *, dry_run: bool, **options: Any) -> None:
        self.dry_run, self.options = dry_run, options

    def run(self, plan: FilePlan) -> Report | DryRun:
        """Execute a plan, with a progress bar if stderr is a terminal."""
        if self.dry_run:
            return plan.dry_run(memory=self.options["memory"])
        with telling("copy", None, "bytes") as tell:
            report = plan.run(progress=lambda done, total: tell(done, of=total), **self.options)
        if report.replaced is not None:
            left = one_line(str(report.replaced))
            click.echo(f"splitops: replaced {left}, which a run that was stopped had left", err=True)
        return report


run_options = gathered(
    "how",
    RunOptions,
    dry_run_option,
    click.option("--overwrite", is_flag=True, help="Replace files of the same names."),
    click.option("--resume", is_flag=True, help="Resume an interrupted run, if there is one."),
    click.option("--verify", is_flag=True, help="Read everything back and compare checksums."),
    click.option(
        "--sync/--no-sync", default=True, help="Write the files to the disk before the command ends."
    ),
    click.option("--sha256", is_flag=True, help="Print the SHA-256 of each file."),
    click.option(
        "--checksums",
        metavar="FILE",
        type=NEW_FILE,
        help="Write the SHA-256 of each file, as sha256sum reads it, to FILE.",
    ),
    click.option("--memory", type=BYTES, default="64M", help="Memory for the buffers."),
    click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Let the workers of a Dask cluster copy, such as tcp://10.0.0.1:8786.",
    ),
)
"""Adds the options of a run to a command, which gets them as one argument named ``how``."""


def resumed(report: Report) -> str:
    """Return in words how much an earlier run had done."""
    if report.resumed == report.bytes:
        return "All of it was written before."
    return f"{report.resumed} of {report.bytes} bytes were copied before"


def show(
    plan: FilePlan, result: Report | DryRun, heading: str, facts: dict[str, Any], *, as_json: bool
) -> None:
    """Print what was written, or would be."""
    from splitops.files.addresses import format_location

    sizes = dict(result.files)
    digests = dict(zip(sizes, getattr(result, "sha256", ()), strict=False))
    if as_json:
        parts: list[dict[str, Any]] = []
        for part in plan.parts:
            found = {
                "file": format_location(part.path),
                "offset": part.offset,
                "size": part.size,
                "shape": list(part.shape),
            }
            if part.tensor:
                found["tensor"] = part.tensor
            if part.path in digests:
                found["sha256"] = digests[part.path]
            parts.append(found)
        print_json({**facts, "parts": parts, **summary(result)})
        return
    out = console()
    out.print(heading, style="bold", soft_wrap=True)
    rows = table("file", "offset", "size", "shape", "bytes", right=("offset", "size", "bytes"))
    for part in plan.parts[:_MAX_ROWS]:
        size = sizes.get(part.path)
        rows.add_row(
            one_line(format_location(part.path)),
            str(part.offset),
            str(part.size),
            str(part.shape),
            "" if size is None else str(size),
        )
    out.print(rows)
    if len(plan.parts) > _MAX_ROWS:
        more = len(plan.parts) - _MAX_ROWS
        out.print(f"... and {more} more, to {one_line(format_location(plan.parts[-1].path))}", soft_wrap=True)
    _show_digests(list(digests.items())[:_MAX_ROWS])
    show_end(result)


def summary(result: Report | DryRun) -> dict[str, Any]:
    """Return what was written, or would be, as values for JSON."""
    from splitops.files import DryRun
    from splitops.files.addresses import format_location

    if isinstance(result, DryRun):
        exists = [format_location(path) for path in result.exists]
        return {"bytes": result.bytes, "dry_run": True, "tasks": result.tasks, "exists": exists}
    return {"bytes": result.bytes, **({"resumed": result.resumed} if result.resumed else {})}


def _show_digests(digests: Iterable[tuple[Path, str]]) -> None:
    from splitops.files.addresses import format_location

    for path, digest in digests:
        console().print(f"sha256 {digest}  {one_line(format_location(path))}", soft_wrap=True)


def show_end(result: Report | DryRun) -> None:
    """Print what a dry run would do, or how much an earlier run had done."""
    from splitops.files import DryRun
    from splitops.files.addresses import format_location

    if isinstance(result, DryRun):
        console().print(str(result))
        for path in result.exists[:_MAX_ROWS]:
            console().print(f"{one_line(format_location(path))} already exists", soft_wrap=True)
    elif result.resumed:
        console().print(resumed(result))


def show_warnings(warnings: Iterable[str]) -> None:
    """Print warnings, each on its line."""
    for warning in warnings:
        console().print(f"warning: {one_line(warning)}", soft_wrap=True)


def show_whole(
    file: Path,
    plan: FilePlan,
    result: Report | DryRun,
    max_size: int | None,
    *,
    as_json: bool,
) -> None:
    """Print which files with whole tensors were written, or would be; a dry run names the tensors of each."""
    from splitops.files import DryRun
    from splitops.files.addresses import format_location

    held: dict[Path, list[str]] = {path: [] for path, _ in result.files}
    for part in plan.parts:
        held[part.path].append(part.tensor)
    digests = dict(zip(held, getattr(result, "sha256", ()), strict=False))
    larger = [path for path, size in result.files if max_size is not None and size > max_size and held[path]]
    dry = isinstance(result, DryRun)
    if as_json:
        found: list[dict[str, Any]] = [
            {"file": format_location(path), "bytes": size, "tensors": held[path]}
            | ({"sha256": digests[path]} if path in digests else {})
            for path, size in result.files
        ]
        facts = {
            "from": format_location(file),
            "files": found,
            "larger": [format_location(path) for path in larger],
        }
        facts["warnings"] = list(plan.warnings)
        exists = (
            {"exists": [format_location(path) for path in result.exists]}
            if isinstance(result, DryRun)
            else {}
        )
        print_json(
            {**facts, "warnings": list(plan.warnings), "bytes": result.bytes, "dry_run": dry, **exists}
        )
        return
    out = console()
    heading = f"{one_line(format_location(file))}: {count_of(len(plan.parts), 'tensor')}"
    out.print(f"{heading}, {count_of(len(held), 'file')}", style="bold", soft_wrap=True)
    rows = table("file", "tensors", "bytes", right=("tensors", "bytes"))
    for path, size in result.files:
        rows.add_row(one_line(format_location(path)), str(len(held[path])), str(size))
    out.print(rows)
    for path in larger:
        note = f"is larger than {max_size} bytes and has a file of its own"
        out.print(f"note: tensor {one_line(repr(held[path][0]))} {note}", soft_wrap=True)
    show_warnings(plan.warnings)
    _show_digests(digests.items())
    for path, names in held.items() if dry else ():
        click.echo("".join(f"{one_line(path.name)}  {one_line(name)}\n" for name in names), nl=False)
    show_end(result)
