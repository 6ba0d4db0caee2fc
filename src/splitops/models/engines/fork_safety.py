"""Fork safety: a forked child must not destroy compiled programs, as it lacks the runtime's threads."""

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
    """Keep a program alive in forked children, where destroying it would hang, and return it."""
    _PROGRAMS.add(program)
    return program
