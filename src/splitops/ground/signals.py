"""Signals that end a process: held back while a block runs, and what a command does about them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGTERM", "SIGINT") if hasattr(signal, name)
)
"""Signals that end a command: a closed terminal, a scheduler or system that stops it, Ctrl-C."""


class Interrupted(KeyboardInterrupt):
    """A signal has ended a command; ``number`` says which."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


def code_of(error: KeyboardInterrupt) -> int:
    """Return the exit code of a process that this has ended: 128 and the number of the signal.

    Examples:
        >>> code_of(KeyboardInterrupt()), code_of(Interrupted(15))
        (130, 143)
    """
    return 128 + int(getattr(error, "number", signal.SIGINT))


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise :class:`Interrupted`; a second signal ends the process at once. It is the handler of commands."""
    for each in ENDING:
        if signal.getsignal(each) is interrupt:
            signal.signal(each, end_at_once)
    raise Interrupted(number)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End the process. This is a handler that nothing holds back: files stay as after ``kill -KILL``."""
    os._exit(128 + number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back the signals that end a process until the block is done, or has failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            # Ctrl-C is the last to be let through: it would leave the others held back.
            for number in reversed(ENDING):
                stack.enter_context(_held_back(number, pending))
            yield
    finally:
        if pending:
            signal.raise_signal(pending[0])


@contextlib.contextmanager
def _held_back(number: int, pending: list[int]) -> Iterator[None]:
    """Note a signal instead of handling it."""
    handler = signal.getsignal(number)
    # None was set by a program around Python, which could not put it back.
    if handler in (None, signal.SIG_IGN, end_at_once):
        yield
        return

    def note(found: int, frame: FrameType | None) -> None:
        if pending and handler is interrupt:
            end_at_once(found, frame)
        pending.append(found)

    signal.signal(number, note)
    try:
        yield
    finally:
        signal.signal(number, handler)
