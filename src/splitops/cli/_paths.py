"""Paths that commands read: a missing file is wrong usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from splitops.cli._console import one_line

NEW_FILE: Final = click.Path(path_type=Path, dir_okay=False)
NEW_FOLDER: Final = click.Path(path_type=Path, file_okay=False)


class Existing(click.Path):
    """An existing file or folder, or an address; a misspelt name is wrong usage."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if is_missing(path):
            self.fail(absence(path), param, ctx)
        return path


def is_missing(path: Path) -> bool:
    """Return whether nothing is at a path of this machine. Other addresses are asked when they are read."""
    from splitops.files.addresses import is_address, target_path

    here = target_path(path)
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
    from splitops.files.addresses import written

    return f"{one_line(written(path))} does not exist."
