"""What report writes loads in onnxruntime and OpenVINO, and gives the same outputs there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from conversion_cases import CELLS
from conversion_results import equal, outputs
from conversion_runtimes import run_apart
from onnx import ModelProto

import splitops
import splitops.models
from splitops.models.convert import convert, convert_with_report

_RAW_STRINGS = "OpenVINO's CPU plugin moves strings as raw memory"

# Where a runtime itself rejects or misreads what the specification allows: labels of the cases, the target,
# and why. An entry that is no longer needed fails the test.
_KNOWN: dict[str, list[tuple[str, str, str]]] = {
    "onnxruntime": [
        (r"Split-18: (5 into 4|4 parts of any size)", "onnx:18", "onnxruntime rejects parts beyond the axis"),
        (r"Split-18: 4 parts, 2 declared", "onnx:18", "onnxruntime rejects fewer outputs than num_outputs"),
        (r"Split-18: 2\*\*62 .*", "onnx:18", "onnxruntime counts num_outputs in 32 bits"),
        (r"Split-1[38]: bfloat16", "onnx:1[38]", "onnxruntime's Python interface takes no bfloat16"),
        (r"SplitToSequence-24: bfloat16", "onnx:24", "onnxruntime's SplitToSequence has no bfloat16"),
    ],
    "openvino": [(r"Split-.*: string", "openvino", _RAW_STRINGS)],
}


def _explains(entry: tuple[str, str, str], key: tuple[str, str]) -> bool:
    return bool(re.fullmatch(entry[0], key[0]) and re.fullmatch(entry[1], key[1]))


def _is_older_than_runtime(model: Any) -> bool:
    """Whether a model uses what onnxruntime, which starts at opset 7, never had."""
    return isinstance(model, ModelProto) and any(
        node.op_type in ("Split", "Cast") and model.opset_import[0].version == 1 for node in model.graph.node
    )


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_every_cell_runs_the_same(runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    jobs, expected = [], {}
    for case, target in CELLS:
        if (target == "openvino") is not (runtime == "openvino"):
            continue
        report = convert_with_report(case.build(), to=target)
        if not report.complete or _is_older_than_runtime(report.model):
            continue
        path = tmp_path / f"{len(jobs)}{'.xml' if target == 'openvino' else '.onnx'}"
        splitops.models.save(report.model, path)
        feeds = [{name: np.asarray(value) for name, value in feed.items()} for feed in case.feeds]
        jobs.append((len(jobs), str(path), feeds))
        expected[len(expected)] = case, target
    found = run_apart(runtime, jobs, tmp_path)
    assert len(found) == len(jobs) > 40
    wrong = {
        (case.label, target): found[key] if isinstance(found[key], str) else "other values"
        for key, (case, target) in expected.items()
        if isinstance(found[key], str) or not equal(found[key], outputs(case, case.build()))
    }
    surprises = {
        key: reason
        for key, reason in wrong.items()
        if not any(_explains(entry, key) for entry in _KNOWN[runtime])
    }
    assert not surprises, "\n".join(f"{key}: {str(reason)[:150]}" for key, reason in surprises.items())
    for entry in _KNOWN[runtime]:
        assert any(_explains(entry, key) for key in wrong), f"{entry} works now"


def test_an_input_that_is_an_output_too_keeps_its_name_through_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    """OpenVINO's frontend converts the Relu: the names of what it gives are those of the source."""
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[2,4] x) => (float[2,4] x, float[2,2] a, float[2,2] c) {
            a, b = Split<axis = 1>(x)
            c = Relu(b) }""")
    made = convert(source, to="openvino")
    splitops.save(made, tmp_path / "m.xml")
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4) - 4}
    expected = splitops.run(source, feeds, engine="reference")
    for model in (made, tmp_path / "m.xml"):
        found = splitops.run(model, feeds, engine="reference")
        assert list(found) == list(expected) == ["x", "a", "c"]
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    program = (
        "import openvino, sys; model = openvino.Core().read_model(sys.argv[1]);"
        "print([sorted(port.get_names()) for port in (*model.inputs, *model.outputs)])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "m.xml")]
    seen = subprocess.run(command, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[['x'], ['x'], ['a'], ['c']]"
