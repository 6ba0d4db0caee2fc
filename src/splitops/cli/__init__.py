"""The command line. Every module here without a leading underscore is one command.

A command module defines a ``click.Command`` named ``command``. Its file name is the name of the command
(``_`` becomes ``-``). It is imported on demand, and imports slow libraries (rich, onnx, openvino) in its
functions.
"""

from __future__ import annotations

import io
import sys
from typing import NoReturn

import click

from splitops.cli._group import cli
from splitops.common.signals import get_exit_code, handle_ending_signals

__all__ = ["cli", "main", "run_command"]


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit."""
    run_command(cli, "splitops")


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command with the arguments of the process, and exit. ``name`` is its name in messages."""
    handle_ending_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows "?", not a traceback
    try:
        command.main(prog_name=name)
    except KeyboardInterrupt as error:  # outside of the command itself, which handles its own interrupts
        sys.exit(get_exit_code(error))
    sys.exit(0)
