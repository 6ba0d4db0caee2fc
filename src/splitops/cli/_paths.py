"""Parameter types for paths, and the check that a command replaces no file that it reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from splitops.cli._console import escape

NEW_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_PATHS: Final = "splitops.paths"
"""Key in the ``meta`` of a click context under which the paths that the command uses are stored."""


class NewFile(click.Path):
    """The path of a file to write. It must differ from all other paths that :func:`add_path` registers."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        add_path(path, _get_label(param), written=True)
        return path


NEW_FILE: Final = NewFile()


class Existing(click.Path):
    """The path of an existing file or folder, or a URL, which is not opened yet."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if is_missing(path):
            self.fail(describe_missing(path), param, ctx)
        add_path(path, _get_label(param))
        return path


def _get_label(param: click.Parameter | None) -> str:
    if param is None:
        return "the path"
    return param.opts[-1] if param.param_type_name == "option" else param.human_readable_name


def add_path(path: Path, label: str, *, written: bool = False) -> None:
    """Register a path that the running command reads or writes, and check that no path replaces another.

    ``label`` is the option or argument that names the path. ``--out`` may name the file of MODEL.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return
    known: list[tuple[Path, str, bool]] = context.meta.setdefault(_PATHS, [])
    for other, its_label, is_written in known:
        if {label, its_label} == {"MODEL", "--out"}:
            continue  # the result may replace the model
        if written and _may_replace(path, other, read=not is_written):
            raise _make_replace_error(path, label, its_label, is_written)
        if is_written and not written and _may_replace(other, path, read=True):
            raise _make_replace_error(other, its_label, label, written)
    known.append((path, label, written))


def has_file_to_replace() -> bool:
    """Return whether a path that the running command has registered for writing exists."""
    context = click.get_current_context(silent=True)
    known: list[tuple[Path, str, bool]] = [] if context is None else context.meta.get(_PATHS, [])
    return any(is_written and os.path.lexists(path) for path, _, is_written in known)


def reject_read(paths: Iterable[Path], label: str) -> None:
    """Raise UsageError if ``paths``, which option ``label`` writes, would replace another argument's file."""
    context = click.get_current_context(silent=True)
    known: list[tuple[Path, str, bool]] = [] if context is None else context.meta.get(_PATHS, [])
    for path in paths:
        for other, its_label, is_written in known:
            if its_label != label and _may_replace(path, other, read=not is_written):
                raise _make_replace_error(path, label, its_label, is_written)


def _may_replace(path: Path, other: Path, *, read: bool) -> bool:
    """Return whether writing ``path`` replaces ``other`` or, with ``read``, a file in that folder."""
    from splitops.files.urls import is_url, resolve_target

    path, other = resolve_target(path), resolve_target(other)
    if is_url(path) or is_url(other):
        return path == other
    one, two = os.path.realpath(path), os.path.realpath(other)
    with contextlib.suppress(OSError):
        if os.path.samefile(one, two):
            return True
    return one == two or (read and os.path.dirname(one) == two and os.path.lexists(one))


def _make_replace_error(path: Path, label: str, other: str, is_written: bool) -> click.UsageError:
    what = "also writes" if is_written else "reads"
    return click.UsageError(
        f"{label} would replace {escape(str(path))}, which the command {what} ({other}). Choose another name."
    )


def is_missing(path: Path) -> bool:
    """Return whether a local path does not exist. Remote URLs count as existing until they are read."""
    from splitops.files.urls import is_url, resolve_target

    here = resolve_target(path)
    if is_url(here):
        return False
    try:
        here.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # reading it will raise an error with a better message
        return False
    return False


def describe_missing(path: Path) -> str:
    """Return the message for a path that does not exist.

    Examples:
        >>> describe_missing(Path("m.onnx"))
        'm.onnx does not exist.'
    """
    from splitops.files.urls import format_location

    return f"{escape(format_location(path))} does not exist."
