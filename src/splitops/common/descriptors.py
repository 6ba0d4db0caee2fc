"""File descriptors that are closed even after a Ctrl-C."""

from __future__ import annotations

import contextlib
import os
from typing import Any


class Descriptors(dict[Any, int]):
    """Open file descriptors, keyed by strings or integers that the caller chooses.

    Between a call that returns a descriptor and the assignment of the result, a Ctrl-C would leave the
    descriptor open. Here, no Python code runs between opening and storing it, or between removing and closing
    it.
    """

    def open(self, key: Any, path: str | os.PathLike[str], flags: int) -> None:
        """Open a file and store its descriptor.

        Args:
            key: key of the descriptor.
            path: path of the file. It is opened in binary mode on Windows, too.
            flags: flags of ``os.open``.

        Raises:
            OSError: the file cannot be opened.
            ValueError: the path is not valid.
        """
        flags |= getattr(os, "O_BINARY", 0)
        self.update(zip((key,), map(os.open, (path,), (flags,), (0o666,)), strict=False))

    def close(self) -> None:
        """Close each descriptor exactly once, even if several threads close them at the same time."""
        while self:
            with contextlib.suppress(KeyError):
                any(map(os.close, map(self.pop, list(self))))
