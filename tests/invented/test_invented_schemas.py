"""A new version is one row: rows that nobody has published run, infer, check, convert and are documented.

Each script takes its steps in a process of its own, in which one row with a new meaning is in one table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from onnx.defs import onnx_opset_version

FOLDER = Path(__file__).parent
SCRIPTS = {
    "onnx_schema": (
        "onnx",
        f"replace(SPLIT_18, since_version={onnx_opset_version()}, count_rule=SizeRule.EVEN)",
    ),
    "openvino_schema": ("openvino", "replace(SPLIT_1, since_version=20, count_rule=SizeRule.CEIL)"),
}
"""The domain and the row that is added to its table."""
STEPS = [
    (script, step)
    for script in SCRIPTS
    for step in re.findall(r"^def (step_\w+)", (FOLDER / f"{script}.py").read_text(), re.MULTILINE)
]


@cache
def outcomes(script: str) -> dict[str, str | None]:
    command = [sys.executable, FOLDER / "inventing.py", *SCRIPTS[script], script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("script", "step"), STEPS)
def test_one_row_is_enough(script: str, step: str) -> None:
    failure = outcomes(script)[step]
    assert failure is None, failure


def test_both_domains_take_every_step() -> None:
    assert len(STEPS) > 20
    needed = {"calls", "infers", "runs", "checks", "converts_to_it", "converts_from_it", "simplifies_to_it"}
    needed |= {"writes_and_reads_back", "differs", "is_documented", "commands_know_it"}
    for script in SCRIPTS:
        assert {f"step_{name}" for name in needed} <= {step for owner, step in STEPS if owner == script}
