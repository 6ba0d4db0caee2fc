"""Work that may end its process, done in a fork."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def in_a_fork(work: Callable[[int], object]) -> tuple[bytes, int]:
    """Return what a function wrote to the descriptor that it gets, and the wait status of its process.

    What it prints to standard error is dropped.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            work(writing)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    return said, os.waitpid(child, 0)[1]


def end_after(seconds: int) -> None:
    """Let this process end by SIGALRM in so many seconds, also while C code runs."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's handler runs between lines of Python
    signal.alarm(seconds)
