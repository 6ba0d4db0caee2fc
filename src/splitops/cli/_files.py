"""Options and reports of the commands that read and write tensor files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import escape, make_console, make_table, print_json
from splitops.cli._models import dry_run_option
from splitops.cli._operators import find_element_type, read_ints
from splitops.cli._options import BYTES, Read, collect_options
from splitops.cli._paths import NEW_FILE, add_path, describe_missing
from splitops.common.progress import report_progress
from splitops.errors import FileError, count_of

if TYPE_CHECKING:
    from splitops.files import Contents, DryRun, FilePlan, Format, Report
    from splitops.files.sources import Source

_MAX_ROWS: Final = 32


def _read_raw(text: str) -> Format:
    """Parse ``SHAPE:DTYPE[@OFFSET]``."""
    from splitops.files.formats.raw import RawFormat

    described, at, offset = text.partition("@")
    shape, colon, dtype = described.rpartition(":")
    if not colon or (at and not (offset.isascii() and offset.isdigit() and len(offset) < 20)):
        raise click.BadParameter(f"{text!r} is not SHAPE:DTYPE[@OFFSET], such as 4096,1024:float32@128")
    sizes = read_ints(shape)
    if any(size < -1 for size in sizes):
        raise click.BadParameter(f"{shape!r} has a size below -1")
    return RawFormat(sizes, find_element_type(dtype), int(offset or 0))


def _read_format(text: str) -> Format:
    from splitops.files.formats import WRITTEN, get_format

    if text not in WRITTEN:
        raise click.BadParameter(f"unknown format {text!r}: use {', '.join(WRITTEN)}")
    return get_format(text)


def read_file(file: Path, raw: Format | None, command: str, *, allow_links: bool = False) -> Contents:
    """Read the descriptions of the tensors in a file or at a URL. ``raw`` is the format of raw bytes.

    The error for a folder with tensor files suggests running ``command``, a subcommand, with one of them.
    """
    from splitops.files.plan_builder import read
    from splitops.files.urls import is_url

    if file.suffix.lower() != ".zarr" and file.is_dir():
        raise click.UsageError(_describe_folder(file, command))
    try:
        return read(file, raw, allow_links=allow_links)
    except FileError as error:
        if is_url(file) and isinstance(error.__cause__, FileNotFoundError):
            raise click.UsageError(describe_missing(file)) from error
        raise


def add_sources(sources: Iterable[Source]) -> None:
    """Register the files that the running command reads, and check that it replaces none of them."""
    for source in sources:
        add_path(source.path, "a source")


def _describe_folder(folder: Path, command: str) -> str:
    from splitops.files.formats import detect_format
    from splitops.files.pickles import advise_on_pickles

    name, paths = escape(str(folder)), sorted(folder.iterdir())
    for path in paths:
        try:
            detect_format(path)
        except FileError:
            continue
        return (
            f"{name} is a folder. Name one of its files: splitops {command} {escape(str(path))}. "
            f"To see how a checkpoint would be sharded: splitops shard {name} --dry-run. "
            f"To write its tensors to files of limited size: splitops split {name} --max-size 5GB"
        )
    advice = advise_on_pickles([path.name for path in paths]) or "Name a file."
    return f"{name} is a folder without tensor files. {advice}"


raw_option = click.option(
    "--raw",
    "raw",
    type=Read("raw", _read_raw),
    metavar="SHAPE:DTYPE[@OFFSET]",
    help="Read raw bytes as one array. One size may be -1: it follows from the size of the file.",
)


format_option = click.option(
    "--to",
    type=Read("format", _read_format),
    metavar="FORMAT",
    help="Format to write, such as npy or safetensors.  [default: the format of FILE; for merge, of --out]",
)


class CliRunOptions:
    """Whether to dry-run a plan, and the options of ``FilePlan.run``."""

    def __init__(self, *, dry_run: bool, **options: Any) -> None:
        self.dry_run, self.options = dry_run, options

    def run(self, plan: FilePlan) -> Report | DryRun:
        """Run a plan and report its progress, or dry-run it. Return the result."""
        if self.dry_run:
            return plan.dry_run(memory=self.options["memory"])
        with report_progress("copy", None, "bytes") as tell:
            report = plan.run(progress=lambda done, total: tell(done, of=total), **self.options)
        if report.replaced is not None:
            left = escape(str(report.replaced))
            click.echo(f"splitops: replaced {left}, which an interrupted run had left", err=True)
        return report


run_options = collect_options(
    "how",
    CliRunOptions,
    dry_run_option,
    click.option("--overwrite", is_flag=True, help="Replace existing files."),
    click.option("--resume", is_flag=True, help="Resume an interrupted run, if there is one."),
    click.option("--verify", is_flag=True, help="Read the written files back and compare checksums."),
    click.option("--sync/--no-sync", default=True, help="Flush the files to disk before the command ends."),
    click.option("--sha256", is_flag=True, help="Print the SHA-256 of each file."),
    click.option(
        "--checksums",
        metavar="FILE",
        type=NEW_FILE,
        help="Write the SHA-256 of each file to FILE, in the format of sha256sum.",
    ),
    click.option("--memory", type=BYTES, default="64M", help="Maximum memory for buffers."),
    click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Copy on the workers of this Dask cluster, such as tcp://10.0.0.1:8786.",
    ),
)
"""Decorator that adds the options of a run to a command, which receives them as the argument ``how``."""


def describe_resumed(report: Report) -> str:
    """Return a sentence about the bytes that an earlier, interrupted run had copied."""
    if report.resumed == report.bytes:
        return "All bytes had been written before."
    return f"{report.resumed} of {report.bytes} bytes had been copied before."


def print_parts(
    plan: FilePlan, result: Report | DryRun, heading: str, facts: dict[str, Any], *, as_json: bool
) -> None:
    """Print the parts of a plan after its run or dry run: as JSON with ``facts``, or in a table."""
    from splitops.files.urls import format_location

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
        warned = {"warnings": list(plan.warnings)} if plan.warnings else {}
        print_json({**facts, "parts": parts, **warned, **summarise(result)})
        return
    out = make_console()
    out.print(heading, style="bold", soft_wrap=True)
    rows = make_table("file", "offset", "size", "shape", "bytes", right=("offset", "size", "bytes"))
    for part in plan.parts[:_MAX_ROWS]:
        size = sizes.get(part.path)
        rows.add_row(
            escape(format_location(part.path)),
            str(part.offset),
            str(part.size),
            str(part.shape),
            "" if size is None else str(size),
        )
    out.print(rows)
    if len(plan.parts) > _MAX_ROWS:
        more = len(plan.parts) - _MAX_ROWS
        out.print(f"... and {more} more, to {escape(format_location(plan.parts[-1].path))}", soft_wrap=True)
    print_warnings(plan.warnings)
    _print_digests(list(digests.items())[:_MAX_ROWS])
    print_end(result)


def summarise(result: Report | DryRun) -> dict[str, Any]:
    """Return the result of a run or dry run as JSON-serialisable values."""
    from splitops.files import DryRun
    from splitops.files.urls import format_location

    if isinstance(result, DryRun):
        exists = [format_location(path) for path in result.exists]
        return {"bytes": result.bytes, "dry_run": True, "tasks": result.tasks, "exists": exists}
    return {"bytes": result.bytes, **({"resumed": result.resumed} if result.resumed else {})}


def _print_digests(digests: Iterable[tuple[Path, str]]) -> None:
    from splitops.files.urls import format_location

    for path, digest in digests:
        make_console().print(f"sha256 {digest}  {escape(format_location(path))}", soft_wrap=True)


def print_end(result: Report | DryRun) -> None:
    """Print the summary of a dry run and the existing files, or the bytes that an earlier run had copied."""
    from splitops.files import DryRun
    from splitops.files.urls import format_location

    if isinstance(result, DryRun):
        make_console().print(str(result))
        for path in result.exists[:_MAX_ROWS]:
            make_console().print(f"{escape(format_location(path))} already exists", soft_wrap=True)
    elif result.resumed:
        make_console().print(describe_resumed(result))


def print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        make_console().print(f"warning: {escape(warning)}", soft_wrap=True)


def print_file_contents(
    file: Path,
    plan: FilePlan,
    result: Report | DryRun,
    max_size: int | None,
    *,
    as_json: bool,
) -> None:
    """Print the files of a plan that does not split tensors.

    The tensors in each file are listed for a dry run, and always in JSON. Files that exceed ``max_size``
    because of a single large tensor are reported.
    """
    from splitops.files import DryRun
    from splitops.files.urls import format_location

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
    out = make_console()
    heading = f"{escape(format_location(file))}: {count_of(len(plan.parts), 'tensor')}"
    out.print(f"{heading}, {count_of(len(held), 'file')}", style="bold", soft_wrap=True)
    rows = make_table("file", "tensors", "bytes", right=("tensors", "bytes"))
    for path, size in result.files:
        rows.add_row(escape(format_location(path)), str(len(held[path])), str(size))
    out.print(rows)
    for path in larger:
        note = f"is larger than {max_size} bytes and has a file of its own"
        out.print(f"note: tensor {escape(repr(held[path][0]))} {note}", soft_wrap=True)
    print_warnings(plan.warnings)
    _print_digests(digests.items())
    for path, names in held.items() if dry else ():
        click.echo("".join(f"{escape(path.name)}  {escape(name)}\n" for name in names), nl=False)
    print_end(result)
