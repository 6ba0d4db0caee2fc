"""The plan ``auto`` beside the plan that each kind of model of transformers declares, layer by layer."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PARTS = 4
SCRIPT = Path(__file__).with_name("transformers_plans.py")

DECLARED = 0
"""How many configuration classes declare a plan, in the release whose table is shipped."""
NOT_BUILT: dict[str, str] = {}
"""Those that cannot be built from a configuration of their own, with what transformers says."""


@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_auto_cuts_what_each_declared_plan_cuts() -> None:
    found = []
    for part in range(PARTS):
        done = subprocess.run(
            [sys.executable, SCRIPT, str(part), str(PARTS)], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert {name: wrong for each in found for name, wrong in each["differ"].items()} == {}
