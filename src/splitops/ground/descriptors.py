"""Descriptors of open files, and who closes them."""

from __future__ import annotations

import contextlib
import os
from typing import Any


class Descriptors(dict[Any, int]):
    """Open descriptors by any key, which their owner closes.

    A descriptor that a call returns has no owner until it is assigned: a Ctrl-C in between leaves it open.
    Here no Python runs between opening a file and owning it, nor between giving it up and closing it.
    """

    def open(self, key: Any, path: str | os.PathLike[str], flags: int) -> None:
        """Open a file.

        Args:
            key: by which the descriptor is found.
            path: of the file, whose bytes Windows would otherwise take for lines of text.
            flags: of ``os.open``.

        Raises:
            OSError: it cannot be opened so.
            ValueError: the path cannot be one.
        """
        flags |= getattr(os, "O_BINARY", 0)
        self.update(zip((key,), map(os.open, (path,), (flags,), (0o666,)), strict=False))

    def close(self) -> None:
        """Close what is left, each once, even if others close it too."""
        while self:
            with contextlib.suppress(KeyError):
                any(map(os.close, map(self.pop, list(self))))
