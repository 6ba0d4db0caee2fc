"""``splitops check`` and ``splitops infer``: reports, exit codes, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from proofs import FOUR_WAYS, text

import splitops
from splitops.cli import cli

GOOD = "(float[N, 6] x) => (float[A, B] a, float[C, D] b) { a, b = Split<axis = 1, num_outputs = 2>(x) }"
BAD = "(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {2, 3}> { a, b = Split(x, k) }"
CEIL = f"(float[5] x) => {FOUR_WAYS}"
MISSING = "(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Any:
    def write(body: str) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(text(body)().SerializeToString())
        return path

    return write


def test_a_good_model(model: Any) -> None:
    done = run("check", model(GOOD))
    assert (done.exit_code, done.output) == (0, "nothing found\n")


def test_an_invalid_model_is_exit_code_1(model: Any) -> None:
    done = run("check", model(BAD))
    assert done.exit_code == 1
    assert "[lengths.sum] at model '" in done.output
    assert "/model.onnx', node 'Split -> a', input 'split'" in done.output
    assert "1 error, 0 warnings" in done.output


def test_a_target_makes_its_limits_errors(model: Any) -> None:
    path = model(CEIL)
    assert run("check", path).exit_code == 0
    done = run("check", path, "--target", "onnxruntime", "--json")
    assert done.exit_code == 1
    (finding,) = json.loads(done.output)["findings"]
    assert (finding["code"], finding["outcome"]) == ("onnxruntime.ceil-negative-part", "error")
    assert run("check", path, "--target", "nonesuch").exit_code == 2


def test_fix_writes_a_new_model_with_the_same_outputs(model: Any, tmp_path: Path) -> None:
    path, out = model(CEIL), tmp_path / "fixed.onnx"
    before = path.read_bytes()
    done = run("check", path, "--fix", "-o", out, "--target", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert "-> Split-18(axis=0, split=[2, 2, 1, 0])" in done.output
    assert path.read_bytes() == before
    inputs = {"x": np.arange(5, dtype=np.float32)}
    for name, array in splitops.run(path, inputs).items():
        np.testing.assert_array_equal(array, splitops.run(out, inputs)[name])
    assert run("check", model(MISSING), "--fix", "-o", out).exit_code == 0
    assert run("check", path, "--fix").exit_code == 2


def test_what_is_left_after_a_fix_is_found_in_the_file_that_was_written(model: Any, tmp_path: Path) -> None:
    done = run("check", model(BAD), "--fix", "-o", tmp_path / "fixed.onnx")
    assert done.exit_code == 1
    assert "fixed.onnx', node 'Split -> a', input 'split'" in done.output


def test_sarif(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "found.sarif"
    done = run("check", model(BAD), "--sarif", out)
    assert done.exit_code == 1
    assert done.output.endswith(f"Written to {out}\n")
    log = json.loads(out.read_text())
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["lengths.sum"]


def test_infer_shows_and_writes(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "shapes.onnx"
    done = run("infer", model(GOOD), "-o", out, "--all")
    assert done.exit_code == 0, done.output
    assert "float32[N, 3]" in done.output
    written = onnx.load(out)
    onnx.checker.check_model(written)
    assert written.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 3
    values = json.loads(run("infer", model(GOOD), "--json").output)["values"]
    (known,) = (value for value in values if value["name"] == "a")
    assert known == {"graph": None, "name": "a", "before": "float32[A, B]", "after": "float32[N, 3]"}


def test_infer_of_an_invalid_model_writes_nothing(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "shapes.onnx"
    done = run("infer", model(BAD), "-o", out)
    assert done.exit_code == 1
    assert "lengths.sum" in done.output
    assert not out.exists()
