"""Reads what was written before, as if hostile."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from splitops.comparison import protocol
from splitops.comparison.records import CompareError, Report
from splitops.errors import ModelError, shown_path
from splitops.ground.reading import read_whole

_MAX_BYTES: Final = 1 << 28
"""Reports have some kilobytes for each case."""


def read_report(path: Path) -> Report:
    """Read the JSON that ``splitops compare --json`` printed."""
    return protocol.read_report(read_bytes(path), f"{shown_path(path)} is")


def read_bytes(path: Path) -> bytes:
    """Read a file of at most 256 MiB."""
    try:
        return read_whole(path, limit=_MAX_BYTES)
    except ModelError as error:
        raise CompareError(error.message) from error
