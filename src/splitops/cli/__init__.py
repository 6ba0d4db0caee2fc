"""The command line. Every module here without a leading underscore is one command.

A command module holds a ``click.Command`` named ``command``; it is found by its file name (``_`` becomes
``-``) and imported when it is needed. It imports what is heavy (rich, onnx, openvino) inside its functions.
"""

from __future__ import annotations

import io
import signal
import sys
from types import FrameType
from typing import NoReturn

from splitops.cli._group import INTERRUPTED, cli

__all__ = ["cli", "main"]

_TERMINATED = 128 + signal.SIGTERM


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows "?", not a traceback
    try:
        cli.main(prog_name="splitops")
    except KeyboardInterrupt:  # before or after the command itself, which has its own answer
        sys.exit(INTERRUPTED)
    sys.exit(0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A second Ctrl-C must not stop the first one's removal of temporary files.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(_TERMINATED)
