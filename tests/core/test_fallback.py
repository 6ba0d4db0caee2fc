"""The corpus, the properties and the NumPy behaviours hold without the native core too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import splitops
from splitops import native

HERE = Path(__file__).parent
SUITE = ("test_conformance.py", "test_properties.py", "test_numpy.py", "test_out.py")
SOURCES = str(Path(splitops.__file__).parents[1])


@pytest.mark.skipif(not native.available, reason="the native core is not in use: every test runs without it")
def test_everything_holds_without_the_native_core() -> None:
    environment = os.environ | {"SPLITOPS_NATIVE": "0", "HYPOTHESIS_PROFILE": "brief", "PYTHONPATH": SOURCES}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in SUITE)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "splitops native core: not in use" in done.stdout
    assert " passed" in done.stdout
