"""Paths that commands read: a missing file is wrong usage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from splitops.cli._console import one_line

NEW_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_PATHS: Final = "splitops.paths"
"""The key under which a command's context keeps the paths that it reads and writes."""


class NewFile(click.Path):
    """The path of a file to write. It is none that the same command reads or writes otherwise."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        add_path(path, _label(param), written=True)
        return path


NEW_FILE: Final = NewFile()


class Existing(click.Path):
    """An existing file or folder, or an address; a misspelt name is wrong usage."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if is_missing(path):
            self.fail(absence(path), param, ctx)
        add_path(path, _label(param))
        return path


def _label(param: click.Parameter | None) -> str:
    if param is None:
        return "the path"
    return param.opts[-1] if param.param_type_name == "option" else param.human_readable_name


def add_path(path: Path, label: str, *, written: bool = False) -> None:
    """Note a path that the running command reads or writes, and reject one that both would touch.

    Only ``--out`` may name the file of MODEL.

    Args:
        path: the file, folder or address.
        label: the option or argument that names it.
        written: whether the command writes it; else it reads it.

    Raises:
        click.UsageError: a file would be replaced that the command reads, or that it writes already.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return
    known: list[tuple[Path, str, bool]] = context.meta.setdefault(_PATHS, [])
    for other, its_label, is_written in known:
        if {label, its_label} == {"MODEL", "--out"}:
            continue  # what is made of a model may take its place
        if written and _touches(path, other, read=not is_written):
            raise _clash(path, label, its_label, is_written)
        if is_written and not written and _touches(other, path, read=True):
            raise _clash(other, its_label, label, written)
    known.append((path, label, written))


def replaces_any() -> bool:
    """Return whether a file exists that the running command is to write."""
    context = click.get_current_context(silent=True)
    known: list[tuple[Path, str, bool]] = [] if context is None else context.meta.get(_PATHS, [])
    return any(is_written and os.path.lexists(path) for path, _, is_written in known)


def reject_read(paths: Iterable[Path], label: str) -> None:
    """Reject files to write that the running command reads.

    Raises:
        click.UsageError: one of them is a file that an option or argument names.
    """
    context = click.get_current_context(silent=True)
    known: list[tuple[Path, str, bool]] = [] if context is None else context.meta.get(_PATHS, [])
    for path in paths:
        for other, its_label, is_written in known:
            if its_label != label and _touches(path, other, read=not is_written):
                raise _clash(path, label, its_label, is_written)


def _touches(path: Path, other: Path, *, read: bool) -> bool:
    """Return whether a file to write is another path, or one of the files in a folder that is read."""
    from splitops.files.addresses import is_address, resolve_target

    path, other = resolve_target(path), resolve_target(other)
    if is_address(path) or is_address(other):
        return path == other
    one, two = os.path.realpath(path), os.path.realpath(other)
    with contextlib.suppress(OSError):
        if os.path.samefile(one, two):
            return True
    return one == two or (read and os.path.dirname(one) == two and os.path.lexists(one))


def _clash(path: Path, label: str, other: str, is_written: bool) -> click.UsageError:
    what = "also write" if is_written else "read"
    return click.UsageError(
        f"{label} would replace {one_line(str(path))}, which the command would {what} ({other}). "
        "Choose another name."
    )


def is_missing(path: Path) -> bool:
    """Return whether nothing is at a path of this machine. Other addresses are asked when they are read."""
    from splitops.files.addresses import is_address, resolve_target

    here = resolve_target(path)
    if is_address(here):
        return False
    try:
        here.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # reading it says what is wrong
        return False
    return False


def absence(path: Path) -> str:
    """Return what is said of a path at which nothing is.

    Examples:
        >>> absence(Path("m.onnx"))
        'm.onnx does not exist.'
    """
    from splitops.files.addresses import format_location

    return f"{one_line(format_location(path))} does not exist."
