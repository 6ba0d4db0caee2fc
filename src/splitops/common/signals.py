"""Signals that end a process: defer them during a block, and handle them in commands."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGTERM", "SIGINT") if hasattr(signal, name)
)
"""Signals that end a command: its terminal is closed, the system or a scheduler stops it, or Ctrl-C."""


class Interrupted(KeyboardInterrupt):
    """Raised in a command when a signal ends it. ``number`` is the number of the signal."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


def get_exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code after an interrupt: 128 plus the number of the signal.

    Examples:
        >>> get_exit_code(KeyboardInterrupt()), get_exit_code(Interrupted(15))
        (130, 143)
    """
    return 128 + int(getattr(error, "number", signal.SIGINT))


def handle_ending_signals() -> None:
    """Install :func:`interrupt` as the handler of all signals in :data:`ENDING` except an ignored SIGHUP.

    For commands only. A signal whose exception Python drops, as in destructors, is sent again.
    """
    for number in ENDING:
        if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)  # nohup ignores SIGHUP
    sys.unraisablehook = _repeat_lost_signal


def _repeat_lost_signal(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again if Python dropped the exception of its handler, as it does in destructors."""
    error = unraisable.exc_value
    if not isinstance(error, Interrupted):
        sys.__unraisablehook__(unraisable)
        return
    for each in ENDING:
        if signal.getsignal(each) is exit_at_once:
            signal.signal(each, interrupt)
    again = threading.Timer(0.01, _send_to_main_thread, [error.number])
    again.daemon = True
    again.start()


def _send_to_main_thread(number: int) -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)  # it may be waiting for a lock
    else:
        signal.raise_signal(number)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal in a command: raise :class:`Interrupted`. A second signal ends the process at once."""
    for each in ENDING:
        if signal.getsignal(each) is interrupt:
            signal.signal(each, exit_at_once)
    raise Interrupted(number)


def exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End the process immediately. This handler is never deferred: files are left as after ``kill -KILL``."""
    os._exit(128 + number)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Defer the signals that end a process until the block has finished or failed.

    Only the first of several signals is raised again. A second one ends a command without finishing the
    block. Signals that are ignored, or whose handler Python did not set, are not deferred. Does nothing
    outside of the main thread, which handles all signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            # Ctrl-C is restored last: its exception would keep the others from being restored.
            for number in reversed(ENDING):
                stack.enter_context(_defer_signal(number, pending))
            yield
    finally:
        if pending:
            signal.raise_signal(pending[0])


@contextlib.contextmanager
def _defer_signal(number: int, pending: list[int]) -> Iterator[None]:
    """Append the signal ``number`` to ``pending`` during the block, unless its handler must not be replaced.

    If the handler is :func:`interrupt` and another signal is pending, the process ends at once.
    """
    handler = signal.getsignal(number)
    # None is a handler of the embedding program, which Python could not restore.
    if handler in (None, signal.SIG_IGN, exit_at_once):
        yield
        return

    def note(found: int, frame: FrameType | None) -> None:
        if pending and handler is interrupt:
            exit_at_once(found, frame)
        pending.append(found)

    signal.signal(number, note)
    try:
        yield
    finally:
        signal.signal(number, handler)
