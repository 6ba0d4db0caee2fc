"""``splitops check`` and ``splitops infer``: reports, exit codes, files."""

from __future__ import annotations

import json
import os
import re
import shlex
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
    assert (done.exit_code, done.output) == (0, "No problems found (1 split checked).\n")


def test_an_invalid_model_is_exit_code_1(model: Any) -> None:
    done = run("check", model(BAD))
    assert done.exit_code == 1
    assert "[lengths.sum] at model '" in done.output
    assert "/model.onnx', node 'Split -> a', input 'split'" in done.output
    assert "1 error, 0 warnings" in done.output


def test_a_runtime_without_a_form_does_not_hide_what_can_be_fixed(model: Any) -> None:
    path = model(
        "(float[6] x) => (seq(float[A]) s) <int16[2] k = {2, 4}> { s = SplitToSequence<axis = 0>(x, k) }"
    )
    done = run("check", path)
    assert "[opencv.sequence]" in done.output
    assert "[1 of 4 fixable]" in done.output
    assert run(*shlex.split(done.output.splitlines()[-1].removeprefix("Fix: splitops "))).exit_code == 0


def test_a_target_makes_its_limits_errors(model: Any) -> None:
    path = model(CEIL)
    assert run("check", path).exit_code == 0
    done = run("check", path, "--for", "onnxruntime", "--json")
    assert done.exit_code == 1
    (finding,) = json.loads(done.output)["findings"]
    assert (finding["code"], finding["outcome"]) == ("onnxruntime.ceil-negative-part", "error")
    assert run("check", path, "--for", "nonesuch").exit_code == 2


def test_fix_writes_a_new_model_with_the_same_outputs(model: Any, tmp_path: Path) -> None:
    path, out = model(CEIL), tmp_path / "fixed.onnx"
    before = path.read_bytes()
    done = run("fix", path, "-o", out, "--for", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert "  now: Split-18(axis=0, split=[2, 2, 1, 0])" in done.output
    assert path.read_bytes() == before
    inputs = {"x": np.arange(5, dtype=np.float32)}
    for name, array in splitops.run(path, inputs).items():
        np.testing.assert_array_equal(array, splitops.run(out, inputs)[name])
    assert run("fix", model(MISSING), "-o", out).exit_code == 0


def test_the_last_line_is_the_command_that_fixes(model: Any, tmp_path: Path) -> None:
    path, out = model(CEIL), tmp_path / "model.fixed.onnx"
    *_, summary, fix = run("check", path, "--for", "onnxruntime").output.splitlines()
    assert summary == "1 error, 0 warnings (1 split checked) [1 of 1 fixable]"
    assert fix == f"Fix: splitops fix {path} --for onnxruntime -o {out}"
    assert run(*shlex.split(fix.removeprefix("Fix: splitops "))).exit_code == 0
    assert run("check", out, "--for", "onnxruntime").exit_code == 0


def test_what_a_fix_would_not_cure_is_not_counted(model: Any) -> None:
    done = run("check", model(BAD), "--for", "onnxruntime").output
    assert "[0 of 1 fixable]" in done
    assert "Fix:" not in done
    both = f"(float[6] y, float[5] x) => (float[P] p, float[Q] q, {FOUR_WAYS.removeprefix('(')}"
    both = both.replace("{ a", "{ k = Constant<value_ints = [2, 3]>() p, q = Split(y, k) a")
    path = model(both)
    done = run("check", path, "--for", "onnxruntime").output
    assert "2 errors, 0 warnings (2 splits checked) [1 of 2 fixable]" in done
    assert f"Fix: splitops fix {path} --for onnxruntime --partial -o" in done


def test_each_finding_names_the_page_that_explains_it(model: Any) -> None:
    done = run("check", model(CEIL), "--for", "onnxruntime").output
    code = "onnxruntime.ceil-negative-part"
    assert f"  more: splitops rule {code}\n" in done
    assert "  more: splitops rule lengths.sum\n" in run("check", model(BAD)).output


def test_findings_are_selected_by_code_and_group(model: Any) -> None:
    path = model(CEIL)

    def codes(*options: str) -> set[str]:
        found = json.loads(run("check", path, *options, "--json").output)["findings"]
        return {finding["code"] for finding in found}

    every = codes()
    assert codes("--select", "onnxruntime,onnx.ceil-negative-part") == {
        "onnxruntime.ceil-negative-part",
        "onnx.ceil-negative-part",
    }
    assert codes("--ignore", "onnxruntime") == every - {"onnxruntime.ceil-negative-part"}
    assert codes("--select", "onnxruntime", "--select", "openvino", "--ignore", "openvino") == {
        "onnxruntime.ceil-negative-part"
    }
    assert run("check", path, "--for", "onnxruntime", "--ignore", "onnxruntime").exit_code == 0
    done = run("check", path, "--select", "lengts.sum")
    assert done.exit_code == 2
    assert "No such code 'lengts.sum'. Did you mean 'lengths.sum'?" in done.output


def test_several_models_are_checked(model: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    model(BAD).rename(bad)
    done = run("check", model(GOOD), bad, "--select", "lengths")
    assert done.exit_code == 1
    assert "1 error, 0 warnings (2 splits checked in 2 models) [0 of 1 fixable]\n" in done.output


def test_sarif(model: Any) -> None:
    done = run("check", model(BAD), "--output-format", "sarif")
    assert done.exit_code == 1
    log = json.loads(done.output)
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["lengths.sum"]


def test_annotations_of_github(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "a, 100%: b.onnx"
    model(CEIL).rename(path)
    done = run("check", path, "--for", "onnxruntime", "--output-format", "github")
    assert done.exit_code == 1
    error, notice = done.output.splitlines()
    shown = str(path).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    title = "Split-18 [onnxruntime.ceil-negative-part]"
    assert error.startswith(f"::error file={shown},title={title}::node 'Split -> a': ")
    assert notice.startswith(f"::notice file={shown},title=Fix::splitops fix '")
    assert "a, 100%25: b.onnx' --for onnxruntime" in notice


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


# Text that is not UTF-8 ---------------------------------------------------------------------------------

MARKED = """
    <ir_version: 10, opset_import: ["": 18, "MZdomain": 1], producer_name: "MZproducer", doc_string: "MZdoc",
     metadata_props: ["MZkey": "MZvalue"]>
    MZgraph (float[MZd, 4] MZx, bool MZcond) => (float[MZe, 2] MZa, float[n, k] MZb, float[q, w] MZf,
                                                 float[s, t] MZi) <float[2] MZw = {1, 2}, float[MZv, 4] MZmid>
    {
        [MZnode] MZmid = Identity
            <MZattr = 1, MZtext: string = "MZs", MZtensor: tensor = float[1] MZt {1}> (MZx)
        MZa, MZb = Split <axis = 1, num_outputs = 2> (MZmid)
        MZf = MZdomain.MZfunction <MZp = 1> (MZa)
        MZi = If (MZcond) <
            then_branch = MZthen () => (float[MZu, u] MZk) {
                MZk, MZl = Split <axis = 1, num_outputs = 2> (MZmid) },
            else_branch = MZelse () => (float[y, z] MZm) { MZm = Identity(MZb) }>
    }
    <domain: "MZdomain", opset_import: ["": 18]>
    MZfunction <MZp> (MZo) => (MZq) { MZq, MZr = Split <axis = 1, num_outputs = 2> (MZo) }
"""
FORMS = [
    ["check", "--json"],
    ["check", "--output-format", "sarif"],
    ["check", "--output-format", "github"],
    ["infer", "--json"],
    ["fix", "--for", "onnxruntime", "--json"],
    ["convert", "--to", "onnx:13", "--json"],
    ["simplify", "--json"],
    ["run", "--input", "MZx=ramp:2,4", "--json"],
    ["inspect", "--json"],
]


def marked() -> bytes:
    made = onnx.parser.parse_model(MARKED)
    for described in (made.graph, made.graph.node[0], made.graph.initializer[0], made.graph.input[0]):
        described.doc_string = "MZdoc"
    made.graph.input[0].type.denotation = "MZkind"
    made.graph.quantization_annotation.add(tensor_name="MZquantised")
    return made.SerializeToString()


@pytest.mark.parametrize("command", FORMS, ids=" ".join)
def test_text_that_is_not_utf8_is_an_error_in_every_form(command: list[str], tmp_path: Path) -> None:
    """Each text of a model in turn: one error, or none where it is not read, and never a traceback."""
    content, path, rejected = marked(), tmp_path / "m.onnx", 0
    places = [found.start() for found in re.finditer(b"MZ", content)]
    assert len(places) > 50
    for place in places:
        path.write_bytes(content[:place] + b"\xff\xfe" + content[place + 2 :])
        done = run(command[0], path, *command[1:])
        assert done.exception is None or isinstance(done.exception, SystemExit), content[place : place + 9]
        rejected += done.exit_code != 0
    assert rejected > 20
    path.write_bytes(content)
    assert run("check", path).exit_code == 0


def test_findings_of_a_path_that_is_not_utf8_are_shown_in_every_form(tmp_path: Path) -> None:
    path = tmp_path / (os.fsdecode(b"\xff\xfe") + ".onnx")
    path.write_bytes(text(CEIL)().SerializeToString())
    for form in ([], ["--json"], ["--output-format", "sarif"], ["--output-format", "github"]):
        done = run("check", path, "--for", "onnxruntime", *form)
        assert done.exit_code == 1, done.exception
        assert "ceil-negative-part" in done.output
