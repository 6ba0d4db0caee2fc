"""Report the progress of long work to a listener. Without one, this costs almost nothing.

::

    with report_progress_to(lambda steps: print(steps)):
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
    """Progress of some work.

    Attributes:
        what: name of the work, such as ``"infer"``.
        done: number of completed steps.
        total: total number of steps, or None if it is unknown.
        at: name of the current step, or empty.
        unit: unit of a step, such as ``"bytes"``, or empty.
    """

    what: str
    done: int
    total: int | None
    at: str = ""
    unit: str = field(default="", repr=False)


Listener = Callable[[Steps | None], None]
"""Called with each report of progress, and with None at the end of the work."""


@dataclass(slots=True)
class _Listening:
    """A listener, and whether work is being reported to it. Work inside of that work is not reported."""

    listener: Listener
    busy: bool = False


_LISTENING: Final[ContextVar[_Listening | None]] = ContextVar("listening", default=None)


@contextmanager
def report_progress_to(listener: Listener) -> Iterator[None]:
    """Report the progress of work in the block to a listener, but only in this context (``contextvars``).

    Work inside of work that is being reported is not reported.

    Args:
        listener: called with :class:`Steps` for each report, and with None when the work ends. An exception
            that it raises stops the work.

    Examples:
        >>> heard = []
        >>> with report_progress_to(heard.append):
        ...     total = sum(track([1, 2], "add"))
        >>> heard
        [Steps(what='add', done=0, total=2, at=''), Steps(what='add', done=1, total=2, at=''), None]
    """
    token = _LISTENING.set(_Listening(listener))
    try:
        yield
    finally:
        _LISTENING.reset(token)


def track(items: Iterable[_Item], what: str) -> Iterable[_Item]:
    """Return an iterable that reports each of ``items`` as a step before yielding it.

    Return ``items`` itself if there is no listener or other work is being reported.
    """
    listening = _LISTENING.get()
    return items if listening is None or listening.busy else _report_items(items, what)


def _report_items(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    with report_progress(what, len(items) if isinstance(items, Sized) else None) as tell:
        for done, item in enumerate(items):
            tell(done)
            yield item


@contextmanager
def report_progress(what: str, total: int | None, unit: str = "") -> Iterator[Callable[..., None]]:
    """Yield a function that reports progress: ``report(done, at="", of=total)``.

    The arguments are the fields of :class:`Steps`; ``of`` replaces ``total``. The function does nothing if
    there is no listener or other work is being reported.

    Examples:
        >>> heard = []
        >>> with report_progress_to(heard.append), report_progress("ask", 2) as tell:
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
