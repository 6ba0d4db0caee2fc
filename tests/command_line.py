"""The command line in the process of the tests."""

from __future__ import annotations

from inspect import signature

from click.testing import CliRunner, Result


def runner() -> CliRunner:
    """Return a runner that keeps stdout and stderr apart; click below 8.2 has to be asked."""
    separate = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    return CliRunner(**separate)


def printed(result: Result) -> str:
    """Return all that a command printed, to stdout and to stderr."""
    return result.stdout + result.stderr
