"""The times of operators that are evaluated here, reported to a listener, at no cost where nobody does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from splitops.models.engines import OWN
from splitops.models.engines.engine import Event

_RECORDER: Final[ContextVar[list[Event] | None]] = ContextVar("recorder", default=None)


@contextmanager
def collect_events(events: list[Event] | None) -> Iterator[None]:
    """Add an event to a list for each operator that is evaluated here in the block; None records nothing."""
    token = _RECORDER.set(events)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def get_event_list() -> list[Event] | None:
    """Return the list to which events are added in this context; None where nobody listens."""
    return _RECORDER.get()


@contextmanager
def record_event(events: list[Event], operator: str, node: str) -> Iterator[None]:
    """Add an event for an operator that is evaluated in the block."""
    begin, clock = time.time(), time.perf_counter()
    yield
    events.append(Event(operator, node, OWN, begin, time.perf_counter() - clock))
