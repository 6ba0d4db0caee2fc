"""``splitops-compare --export`` writes cases as folders, which ONNX's own runner of tests loads and runs."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from splitops.cli import cli
from splitops.errors import Rule, RuleError
from splitops.models import run
from splitops.onnx.backend import SplitopsBackend
from splitops_compare.cases import list_cases

CASES = [
    "split-18/ceil/5-into-4/float32/static",
    "splittosequence-11/chunk/6-by-3/float32/static",
    "split-18/axis.range/2x6-into-2/float32/static/axis=2",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export") / "cases"
    words = [word for case in CASES for word in ("--case", case)]
    done = CliRunner().invoke(cli, ["compare", *words, "--export", str(made)])
    assert done.exit_code == 0, done.output
    assert "4 valid tests and 1 invalid test written" in done.output
    return made


def run_by_onnx(tests: list[Any]) -> unittest.TestResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onnx.backend.test.runner.load_model_tests", lambda kind: [])  # onnx's own take long
        runner = Runner(SplitopsBackend, __name__)
    for one in tests:
        runner._add_model_test(one, "Split")
    result = unittest.TestResult()
    runner.test_suite.run(result)
    return result


def test_the_runner_of_onnx_passes_the_valid_cases(folder: Path) -> None:
    tests = load_model_tests(str(folder), "valid")
    assert len(tests) == 4  # their baselines too
    result = run_by_onnx(tests)
    ran = result.testsRun - len(result.skipped)  # there is one for each device
    assert (ran, result.failures, result.errors) == (4, [], [])


def test_a_wrong_output_fails_in_the_runner_of_onnx(folder: Path) -> None:
    (found,) = [one for one in load_model_tests(str(folder), "valid") if "chunk_6_by_3" in one.name]
    place = Path(found.model_dir or "") / "test_data_set_0" / "output_0.pb"
    kept = place.read_bytes()
    try:
        place.write_bytes(kept.replace(b"\x00\x00\xa0\x40", b"\x00\x00\xa0\x41"))  # 5 becomes 20
        assert len(run_by_onnx([found]).failures) == 1
    finally:
        place.write_bytes(kept)


def test_an_invalid_case_has_the_rule_beside_it(folder: Path) -> None:
    (place,) = (folder / "invalid").iterdir()
    expected = json.loads((place / "expected.json").read_text())
    assert expected["case"] == CASES[2]
    assert expected["rule"] == Rule.AXIS_RANGE == list_cases()[CASES[2]].rule
    assert not list(place.glob("test_data_set_0/output_*"))
    with pytest.raises(RuleError, match=r"axis\.range"):
        run(place / "model.onnx", {})


def test_export_runs_no_implementation() -> None:
    done = CliRunner().invoke(cli, ["compare", "onnxruntime", "--export", "folder"])
    assert done.exit_code == 2
    assert "runs no implementation" in done.output
