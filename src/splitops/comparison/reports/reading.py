"""Reads what was written before, as if hostile."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from splitops.comparison import protocol
from splitops.comparison.records import CompareError, Report
from splitops.errors import shown_path

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
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CompareError(f"cannot read {shown_path(path)}: {reason}") from error
    if len(content) > _MAX_BYTES:
        raise CompareError(f"{shown_path(path)} is longer than {_MAX_BYTES} bytes")
    return content
