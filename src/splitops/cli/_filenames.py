"""Safe file names for the tensors and outputs of a model, whose names are arbitrary text."""

from __future__ import annotations

import unicodedata
from typing import Final

_MAX_NAME: Final = 120
"""Maximum bytes of a name to which ``_``, a number or a suffix may be added. Most file systems allow 255."""
_PORTS: Final = {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
_RESERVED: Final = frozenset({"con", "prn", "aux", "nul"} | _PORTS)
"""Device names in lower case. Windows does not accept them as file names."""


def make_safe_names(names: list[str], suffixes: list[str]) -> list[str]:
    """Return a unique file name for each name, to which any of ``suffixes`` can be added.

    Characters other than letters, digits and ``._-+`` become ``_``. Dots and hyphens at the beginning are
    removed, long names are shortened, and device names of Windows are prefixed with ``_``. If a name is
    already in use, with any case, ``-2``, ``-3`` and so on is appended.

    Examples:
        >>> make_safe_names(["../../x", "y:0", "Y:0"], [".npy"])
        ['_.._x', 'y_0', 'Y_0-2']
    """
    used: set[str] = set()
    last: dict[str, int] = {}  # the last number of each name, so that many equal names take linear time
    result = []
    for name in names:
        stem = base = _make_safe(name)
        number = last.get(base.casefold(), 1)
        while any((stem + suffix).casefold() in used for suffix in suffixes):
            number += 1
            stem = f"{base}-{number}"
        last[base.casefold()] = number
        used.update((stem + suffix).casefold() for suffix in suffixes)
        result.append(stem)
    return result


def _make_safe(name: str) -> str:
    text = unicodedata.normalize("NFC", name[:_MAX_NAME])
    text = "".join(c if c.isalnum() or c in "._-+" else "_" for c in text)
    text = text.lstrip(".-") or "_"
    while len(text.encode(errors="replace")) > _MAX_NAME:
        text = text[:-1]
    return f"_{text}" if text.split(".")[0].casefold() in _RESERVED else text
