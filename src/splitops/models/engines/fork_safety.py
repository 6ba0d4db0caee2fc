"""What the child of a fork inherits of runtimes: programs whose threads have stayed in its parent."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar
from weakref import WeakSet

_P = TypeVar("_P")
_PROGRAMS: Final[WeakSet[Any]] = WeakSet()
_KEPT: Final[list[Any]] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _KEPT.extend(_PROGRAMS))


def keep_alive_in_children(program: _P) -> _P:
    """Return a program that no child of a fork gives back: its runtime would wait for absent threads."""
    _PROGRAMS.add(program)
    return program
