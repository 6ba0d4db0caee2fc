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
    """Read the JSON that ``splitops compare --json`` printed.

    Raises:
        CompareError: the file cannot be read, or is not a report.
    """
    content = read_bytes(path)
    try:
        return protocol.read_report(content)
    except CompareError as error:
        raise CompareError(f"{shown_path(path)}: {error.message}") from error


def read_bytes(path: Path) -> bytes:
    """Read a file of bounded size.

    Raises:
        CompareError: it cannot be read, or is longer than 256 MiB.
    """
    try:
        return read_whole(path, limit=_MAX_BYTES)
    except ModelError as error:
        raise CompareError(error.message) from error
