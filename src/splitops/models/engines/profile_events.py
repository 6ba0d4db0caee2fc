"""Profile events of operators that splitops evaluates itself, collected in a context variable."""

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
    """Append the events of operators that run in the block to ``events``. None disables collection."""
    token = _RECORDER.set(events)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def get_event_list() -> list[Event] | None:
    """Return the list that collects events in this context, or None if none is set."""
    return _RECORDER.get()


@contextmanager
def record_event(events: list[Event], operator: str, node: str) -> Iterator[None]:
    """Time an operator that runs in the block, and append its event to ``events`` unless it raises."""
    begin, clock = time.time(), time.perf_counter()
    yield
    events.append(Event(operator, node, OWN, begin, time.perf_counter() - clock))
