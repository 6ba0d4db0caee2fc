"""Sessions and the processes around them: Ctrl-C, forks, and what is left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import onnx.parser
import pytest

import splitops
import splitops.models.engines
from splitops.models.engines.engine import EngineError

pytestmark = [
    pytest.mark.skipif(
        not splitops.models.engines.is_installed("onnxruntime"), reason="onnxruntime is not installed"
    ),
    pytest.mark.skipif(sys.platform == "win32", reason="processes end otherwise there"),
]

DOUBLED = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 18]>
    g (float[N] x) => (float[n] a, float[m] b) {
        y = Add(x, x)
        a, b = Split<num_outputs = 2>(y) }""")


def inputs(value: float) -> dict[str, Any]:
    return {"x": np.full(4, value, np.float32)}


def test_an_interrupted_answer_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with splitops.session(DOUBLED, "onnxruntime", isolate=True) as ready:
        assert ready.run(inputs(1))["a"].tolist() == [2, 2]

        def interrupted(file: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(pickle, "load", interrupted)
            patch.setattr(subprocess.Popen, "kill", lambda process: None)  # it lives on for a moment
            with pytest.raises(KeyboardInterrupt):
                ready.run(inputs(2))
        with pytest.raises(EngineError, match="has ended its process with"):
            ready.run(inputs(3))


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals")
def test_a_signal_without_a_name_is_an_error_of_the_engine() -> None:
    with splitops.session(DOUBLED, "onnxruntime", isolate=True) as ready:
        process = ready._runtime._process  # type: ignore[attr-defined]
        process.send_signal(signal.SIGRTMIN + 6)
        process.wait()
        with pytest.raises(EngineError, match=f"with signal {signal.SIGRTMIN + 6}"):
            ready.run(inputs(1))
        assert ready.run(inputs(1))["a"].tolist() == [2, 2]


def test_ctrl_c_does_not_reach_an_isolated_engine() -> None:
    with splitops.session(DOUBLED, "onnxruntime", isolate=True) as ready:
        worker = ready._runtime._process.pid  # type: ignore[attr-defined]
        assert os.getpgid(worker) != os.getpgid(0)


@pytest.mark.parametrize("isolate", [False, True])
def test_the_child_of_a_fork_is_told_to_make_its_own_session(isolate: bool) -> None:
    ready = splitops.session(DOUBLED, "onnxruntime", isolate=isolate)
    ready.run(inputs(1))
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(there)
            with pytest.raises(
                EngineError, match="onnxruntime cannot be used after a fork: make the session in"
            ):
                ready.run(inputs(2))
            ready.close()
            with splitops.session(DOUBLED, "reference") as own:
                assert own.run(inputs(3))["b"].tolist() == [6, 6]
            os.read(here, 1)  # lives on until the parent has closed its session
            os._exit(0)
        finally:
            os._exit(1)
    os.close(here)
    assert ready.run(inputs(4))["a"].tolist() == [8, 8]
    ready.close()
    os.close(there)
    assert os.waitpid(child, 0)[1] == 0


def test_no_process_outlives_a_program_that_forgets_its_session() -> None:
    script = f"""
import onnx, splitops
model = onnx.ModelProto.FromString({DOUBLED.SerializeToString()!r})
ready = splitops.session(model, "onnxruntime", isolate=True)
"""
    # What it writes errors to is the worker's too: the end of both is waited for.
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
