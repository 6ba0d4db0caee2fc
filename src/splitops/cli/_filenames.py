"""File names for results whose own names may be anything."""

from __future__ import annotations

import unicodedata
from typing import Final

_MAX_NAME: Final = 120
"""Bytes of a file name; file systems take 255, and suffixes come after it."""
_PORTS: Final = {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
_RESERVED: Final = frozenset({"con", "prn", "aux", "nul"} | _PORTS)
"""Names that Windows takes for devices."""


def safe_names(names: list[str], suffixes: list[str]) -> list[str]:
    """Return a file name without suffix for each name, so that all files differ and stay in their folder.

    Letters, digits and ``._-+`` are kept, everything else becomes ``_``. Names that differ only in case, or
    not at all after this, get ``-2``, ``-3`` and so on.

    The suffixes may follow a name; they only tell names apart.

    Examples:
        >>> safe_names(["../../x", "y:0", "Y:0"], [".npy"])
        ['_.._x', 'y_0', 'Y_0-2']
    """
    taken: set[str] = set()
    last: dict[str, int] = {}  # where counting goes on, so that many alike names stay linear
    result = []
    for name in names:
        stem = base = _safe(name)
        number = last.get(base.casefold(), 1)
        while any((stem + suffix).casefold() in taken for suffix in suffixes):
            number += 1
            stem = f"{base}-{number}"
        last[base.casefold()] = number
        taken.update((stem + suffix).casefold() for suffix in suffixes)
        result.append(stem)
    return result


def _safe(name: str) -> str:
    text = unicodedata.normalize("NFC", name[:_MAX_NAME])
    text = "".join(c if c.isalnum() or c in "._-+" else "_" for c in text)
    text = text.lstrip(".-") or "_"
    while len(text.encode(errors="replace")) > _MAX_NAME:
        text = text[:-1]
    return f"_{text}" if text.split(".")[0].casefold() in _RESERVED else text
