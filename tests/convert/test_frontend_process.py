"""OpenVINO's frontend runs in a process of its own: its crash is an error, and nothing is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
import splitops_compare
from splitops.models.engines import is_installed, openvino_process
from splitops.models.engines.engine import EngineError

pytestmark = pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")

# OpenVINO takes this DFT for one of another shape, rejects the MatMul, and reads its missing result in Clip.
CRASHES = """
    <ir_version: 8, opset_import: ["": 17]>
    spectrum (float[N, 8, 1] x) => (float[N, 5] y)
    <int64 n = {8}, float[5, 1] w = {1, 1, 1, 1, 1}, float low = {0.5}> {
        f = DFT<axis = 1, onesided = 1>(x, n)
        s = ReduceSumSquare<axes = [-1], keepdims = 0>(f)
        p = MatMul(s, w)
        y = Clip(p, low)
    }"""

RELU = """
    <ir_version: 8, opset_import: ["": 17]>
    plain (float[N] x) => (float[N] y) { z = Celu(x)  y = Relu(z) }"""


@pytest.mark.parametrize(
    "ask", ["splitops.convert(model, to='openvino')", "splitops.session(model, 'openvino')"]
)
def test_a_crash_of_the_frontend_is_an_error_that_names_model_layer_and_signal(
    tmp_path: Path, ask: str
) -> None:
    path = tmp_path / "spectrum.onnx"
    onnx.save(onnx.parser.parse_model(CRASHES), path)
    script = f"import splitops; model = {str(path)!r}\ntry: {ask}\nexcept splitops.ModelError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "signal SIGSEGV" in done.stdout
    assert str(path) in done.stdout
    if "convert" in ask:
        assert "'p' (MatMul)" in done.stdout


def test_what_comes_after_a_crash_is_read_by_a_new_process() -> None:
    with pytest.raises(EngineError, match="SIGSEGV"):
        splitops.convert(onnx.parser.parse_model(CRASHES), to="openvino")
    made = splitops.convert(onnx.parser.parse_model(RELU), to="openvino")
    assert made.graph.list_layers("Result")


def test_conversions_share_a_process() -> None:
    splitops.convert(onnx.parser.parse_model(RELU), to="openvino")
    engine = openvino_process._get_process()._engine
    splitops.convert(onnx.parser.parse_model(RELU), to="openvino")
    assert openvino_process._get_process()._engine is engine
    assert engine is not None
    assert not engine.ended


_HOOK = """
import os, sys
def note(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.exec", "os.system")):
        frame, files = sys._getframe(1), []
        while frame:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        own = tuple(os.environ["OWN"].split(os.pathsep))
        foreign = "" if any(name.startswith(own) for name in files) else ":foreign"
        with open(os.environ["SEEN"], "a") as file:
            file.write(f"{event}{foreign}\\n")
sys.addaudithook(note)
"""


def _seen(tmp_path: Path, script: str) -> list[str]:
    """Return what a process and its children open and start, as their audit events say."""
    (tmp_path / "sitecustomize.py").write_text(_HOOK)
    seen = tmp_path / "seen"
    seen.touch()
    # In continuous integration, and by those who have declined, OpenVINO sends nothing.
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")}
    # A clone may have these names too.
    packages = [
        os.path.join(os.path.dirname(package.__file__), "") for package in (splitops, splitops_compare)
    ]
    own = os.pathsep.join(packages)
    environment |= {"SEEN": str(seen), "OWN": own, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    return seen.read_text().split()


def test_a_conversion_opens_no_socket_and_starts_no_process_but_ours(tmp_path: Path) -> None:
    path = tmp_path / "plain.onnx"
    onnx.save(onnx.parser.parse_model(RELU), path)
    script = f"""
import splitops
made = splitops.convert({str(path)!r}, to="openvino")
splitops.session(made).close()
splitops.session({str(path)!r}, "openvino").close()
"""
    assert _seen(tmp_path, script) == ["subprocess.Popen"]


def test_a_comparison_opens_no_socket_and_starts_no_process_but_ours(tmp_path: Path) -> None:
    script = """
import splitops_compare
asked = {"implementations": ["openvino", "onnxruntime"], "shrink_seconds": 0}
report = splitops_compare.compare(cases=["split-18/ceil/5-into-4/float32/static"], **asked)
assert {peer.state.value for peer in report.implementations} == {"ok"}
"""
    seen = set(_seen(tmp_path, script))
    # Its own processes ask each other by a pair of sockets; what the workers do is seen too.
    assert (
        {"subprocess.Popen", "os.fork"}
        <= seen
        <= {"subprocess.Popen", "os.fork", "socket.__new__", "socket.sendmsg"}
    )


def test_what_openvino_sends_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "plain.onnx"
    onnx.save(onnx.parser.parse_model(RELU), path)
    # A thread of OpenVINO sends, and is cancelled if it has not begun after a second: convert until it has.
    script = f"""
import openvino, os, time
end = time.monotonic() + 100
while ":foreign" not in open(os.environ["SEEN"]).read() and time.monotonic() < end:
    openvino.convert_model({str(path)!r})
"""
    seen = _seen(tmp_path, script)
    assert any(event.startswith(("os.", "socket.")) and event.endswith(":foreign") for event in seen)


def test_inputs_that_no_node_reads_stay_in_their_order() -> None:
    """The frontend drops them, and whoever feeds the model by its inputs would be rejected."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] before, float[3,4] x, int64 after) => (float[3,4] y) { y = LpNormalization(x) }""")
    converted = splitops.convert(model, to="openvino")
    assert [layer.name for layer in converted.inputs] == ["before", "x", "after"]
    feeds = {"before": np.zeros(2, np.float32), "x": np.ones((3, 4), np.float32), "after": np.array(0)}
    np.testing.assert_allclose(splitops.run(converted, feeds)["y"], np.full((3, 4), 0.5), rtol=1e-6)
