"""Every engine gives what the reference gives, bit for bit, or both reject: on all cases of the comparison.

Each engine runs in a process of its own, which may end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import pytest
from agreement_worker import allowed, same

from splitops.errors import Where
from splitops.models.engines import is_installed
from splitops.models.sessions.fallback import analyse

WORKER = Path(__file__).with_name("agreement_worker.py")
ENGINES = ["auto", "onnxruntime", "openvino"]
FEWEST = {"listed": 550, "hostile": 1800, "250": 250}
"""So many runs there are at least: a worker that runs nothing proves nothing."""


@pytest.mark.parametrize("cases", FEWEST)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_agrees_with_the_reference(engine: str, cases: str) -> None:
    for runtime in ("onnxruntime", "openvino") if engine == "auto" else (engine,):
        if not is_installed(runtime):
            pytest.skip(f"{runtime} is not installed")
    done = subprocess.run(
        [sys.executable, str(WORKER), engine, cases], capture_output=True, text=True, timeout=600, check=False
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in lines if "differs" in line] == []
    if done.returncode:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else done.stderr[-2000:]
        pytest.fail(f"the process ended at {lines[-1] if lines else None}: {how}")
    assert lines[-1]["runs"] >= FEWEST[cases]


@pytest.mark.parametrize(
    ("release", "size", "given"),
    [
        ("1.28.0", "16777216", True),
        ("1.28.0", "16777217", False),
        ("1.28.0", "N", False),
        ("1.29.0", "16777217", True),
    ],
)
def test_old_releases_of_onnxruntime_divide_no_axis_that_they_round(
    release: str, size: str, given: bool
) -> None:
    """They divide by num_outputs in float32: the first of 6 parts of 2147483647 has 357913952 positions."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[0, {size}] x) => (float[0, a] y, float[0, b] z) {{
            y, z = Split<axis = 1, num_outputs = 2>(x)
        }}""")
    engine: Any = SimpleNamespace(name="onnxruntime", version=release)
    assert (not analyse(model, Where(), engine).reasons) == given


def test_a_difference_is_noticed() -> None:
    right = {"a": np.arange(3, dtype=np.float32), "s": [np.array(["é"], object)]}
    assert same(right, {"a": np.arange(3, dtype=np.float32), "s": [np.array(["é"], object)]})
    for wrong in (
        right | {"a": np.arange(3, dtype=np.float64)},
        right | {"a": np.arange(3, dtype=np.float32).reshape(1, 3)},
        right | {"a": np.array([0, 1, -2], np.float32)},
        right | {"s": []},
        right | {"s": [np.array(["e"], object)]},
        {"a": right["a"]},
        ("rule", "lengths.sum"),
    ):
        assert not same(right, wrong)
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert same(("rule", "lengths.sum"), ("rule", "lengths.sum"))
    assert not same(("rule", "lengths.sum"), ("rule", "lengths.count"))
    assert not same(("rule", "lengths.sum"), ("engine", "fails"))
    assert same(("model", "another operator fails"), ("engine", "fails"))


def test_only_an_engine_that_is_asked_for_may_reject() -> None:
    assert allowed("openvino", ("engine", ""))
    for engine, found in (("auto", ("engine", "")), ("openvino", ("rule", "lengths.sum")), ("openvino", {})):
        assert not allowed(engine, found)
