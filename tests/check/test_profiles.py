"""Every limit of a runtime is true today: the runtime itself is asked, in a process of its own."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from drive import described
from proofs import MODULES, PROOFS, RECORDED, Model, holds_here

import splitops
from splitops.models.check import LIMITS, RUNTIMES, Limit, Outcome, check
from splitops.models.check.limits import parse_release
from splitops.models.infer import AbstractTensor, infer

DRIVE = Path(__file__).with_name("drive.py")
PROVABLE = [limit for limit in LIMITS if limit.evidence is not None and limit.runtime not in RECORDED]


def drive(driver: str, model: Model, inputs: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    """What a runtime does with a model; None where the process ends before it can say."""
    path = folder / ("model.onnx" if isinstance(model, onnx.ModelProto) else "model.xml")
    if isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString())
    else:
        splitops.save(model, path)
    stored = {name: own.astype(str) if own.dtype == object else own for name, own in inputs.items()}
    np.savez(folder / "inputs.npz", **stored)
    command = [sys.executable, str(DRIVE), driver, str(path), str(folder / "inputs.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout.rsplit("\n", 2)[-2])
    return found


def ours(limit: Limit, model: Model, inputs: Mapping[str, Any]) -> Any:
    """What the definition says: of onnx's shape inference the shapes, else the outputs."""
    if limit.runtime == "onnx":
        known = [infer(model)[value.name] for value in model.graph.output]  # type: ignore[union-attr]
        outputs: Any = [np.array(k.shape) for k in known if isinstance(k, AbstractTensor)]
    else:
        outputs = list(splitops.run(model, inputs).values())
    return json.loads(json.dumps(described(outputs)))


def test_every_limit_has_a_proof_or_says_that_it_has_none() -> None:
    assert {limit.code for limit in PROVABLE} == set(PROOFS)
    untested = {limit.runtime for limit in LIMITS if limit.evidence is None and limit.quirk is None}
    assert untested == {"tensorrt", "coreml", "nnapi", "webnn", "qnn", "dml"}
    assert all(limit.source or limit.runtime in RECORDED for limit in LIMITS)
    assert RUNTIMES == ("onnxruntime", "onnx", "openvino", "opencv", "tensorrt")


@pytest.mark.parametrize("limit", PROVABLE, ids=lambda limit: limit.code)
def test_the_runtime_does_what_the_profile_says(limit: Limit, tmp_path: Path) -> None:
    pytest.importorskip(MODULES.get(limit.runtime, limit.runtime))
    proof = PROOFS[limit.code]
    model = proof.model()
    found = {finding.code: finding for finding in check(model, [limit.runtime])}
    assert limit.code in found
    assert (str(found[limit.code].severity) == "error") is proof.sure

    said = drive(limit.runtime, model, proof.inputs, tmp_path)
    if limit.code == "onnx.more-outputs" and parse_release(version("onnx")) < (1, 21):
        return  # its builds do not look: what is written outside of a vector ends the process, or does not
    if not holds_here(limit):
        assert said is not None, "it crashed"
        others = [each for each in LIMITS if each is not limit and each.code in found and holds_here(each)]
        right = said.get("outputs") == ours(limit, model, proof.inputs)
        assert right or others, "it is no longer fixed"  # another limit of this release may make it wrong
        return
    match limit.outcome:
        case Outcome.ERROR:
            assert said is not None, "it crashed"
            assert "error" in said, said
        case Outcome.WRONG:
            assert said is not None, "it crashed"
            assert said.get("outputs") != ours(limit, model, proof.inputs)
        case Outcome.CRASH if limit.code == "openvino.negative-remainder":
            assert said is not None
            sizes = [output["shape"][0] for output in said["outputs"]]
            assert sum(sizes) > proof.inputs["x"].size, "no more is read than there is"
        case Outcome.CRASH:
            assert said is None, said
    for driver in proof.drivers:
        assert drive(driver, model, proof.inputs, tmp_path) is None


def test_the_driver_can_tell_a_good_model(tmp_path: Path) -> None:
    """A proof that cannot fail proves nothing: a model that meets no limit runs everywhere, and right."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[6] x) => (float[A] a, float[B] b) '
        "{ a, b = Split<num_outputs = 2>(x) }"
    )
    inputs = {"x": np.arange(6, dtype=np.float32)}
    assert check(model) == []
    for limit in {limit.runtime: limit for limit in PROVABLE}.values():
        if importlib.util.find_spec(MODULES.get(limit.runtime, limit.runtime)) is not None:
            said = drive(limit.runtime, model, inputs, tmp_path)
            assert said is not None
            assert said.get("outputs") == ours(limit, model, inputs), limit.runtime
