"""Progress of long work, reported to a listener; it costs nothing without one.

::

    with progressing(lambda steps: print(steps)):
        splitops.convert("large.onnx", to=13)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Steps:
    """How far some work is.

    Attributes:
        what: the work, such as ``"infer"``.
        done: how many of its steps are done.
        total: how many there are; None where that is not known.
        at: what is at work now, where it has a name.
        unit: what a step is, ``"bytes"`` for one; empty where it has no name.
    """

    what: str
    done: int
    total: int | None
    at: str = ""
    unit: str = field(default="", repr=False)


Listener = Callable[[Steps | None], None]
"""Called with the progress before each step, and with None where the work has ended."""


@dataclass(slots=True)
class _Listening:
    """A listener, and whether it hears of some work already: what is part of that is not told again."""

    listener: Listener
    busy: bool = False


_LISTENING: Final[ContextVar[_Listening | None]] = ContextVar("listening", default=None)


@contextmanager
def progressing(listener: Listener) -> Iterator[None]:
    """Tell a function of the progress of all work in the block, and in its context alone.

    Args:
        listener: called before each step, with the name of the work (``what``), how many steps are ``done``,
            the ``total`` where it is known, and what is ``at`` work now; called with None at the end of each
            work. What it raises ends the work.

    Examples:
        >>> heard = []
        >>> with progressing(heard.append):
        ...     total = sum(counted([1, 2], "add"))
        >>> heard
        [Steps(what='add', done=0, total=2, at=''), Steps(what='add', done=1, total=2, at=''), None]
    """
    token = _LISTENING.set(_Listening(listener))
    try:
        yield
    finally:
        _LISTENING.reset(token)


def counted(items: Iterable[_Item], what: str) -> Iterable[_Item]:
    """Return the items of a loop, told of one by one; where nobody listens, the iterable itself."""
    listening = _LISTENING.get()
    return items if listening is None or listening.busy else _told(items, what)


def _told(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    with telling(what, len(items) if isinstance(items, Sized) else None) as tell:
        for done, item in enumerate(items):
            tell(done)
            yield item


@contextmanager
def telling(what: str, total: int | None, unit: str = "") -> Iterator[Callable[..., None]]:
    """Give the block a function that tells how many steps are done, what is at work, and of how many steps.

    The total is None where it is not known.

    Examples:
        >>> heard = []
        >>> with progressing(heard.append), telling("ask", 2) as tell:
        ...     tell(1, "somebody")
        >>> heard
        [Steps(what='ask', done=1, total=2, at='somebody'), None]
    """
    listening = _LISTENING.get()
    if listening is None or listening.busy:
        yield lambda done, at="", of=None: None
        return
    listening.busy = True
    try:
        yield lambda done, at="", of=total: listening.listener(Steps(what, done, of, at, unit))
    finally:
        listening.busy = False
        listening.listener(None)
