from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import splitops
from command_line import runner
from splitops.cli import cli

Invoke = Callable[..., Result]
Process = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def invoke() -> Invoke:
    """Run the command line in this process."""

    def run(*args: object) -> Result:
        return runner().invoke(cli, [str(arg) for arg in args], prog_name="splitops")

    return run


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The variables of a process that imports the same splitops as the tests."""
    source = str(Path(splitops.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def process(environment: dict[str, str]) -> Process:
    """Run the command line as a process of its own."""

    def run(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "splitops", *map(str, args)]
        settings: dict[str, object] = {
            "env": environment,
            "capture_output": True,
            "text": True,
            "timeout": 60,
        }
        return subprocess.run(command, check=False, **(settings | options))  # type: ignore[call-overload,no-any-return]

    return run


@pytest.fixture(autouse=True)
def _width_of_files(monkeypatch):
    """Test runners set COLUMNS to the width of their own terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
