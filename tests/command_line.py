"""The command line in the process of the tests."""

from __future__ import annotations

from inspect import signature

from click.testing import CliRunner


def runner() -> CliRunner:
    """Return a runner that keeps stdout and stderr apart; click below 8.2 has to be asked."""
    separate = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    return CliRunner(**separate)
