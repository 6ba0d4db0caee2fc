"""``--verify`` and the command: what holds is said to hold, and a model that is not fixed is seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from fix_helpers import parse

import splitops
from splitops.cli import cli
from splitops.models.check.limits import Repair
from splitops.models.fix import Reason, driver, fix, fix_with_report
from splitops.models.fix.limits import Issue
from splitops.models.fix.writing import FixWriter, RewriteResult
from splitops.models.formats.openvino import Builder
from splitops.models.verify import TrialVerdict, verify

RELEASE = pytest.importorskip("onnxruntime").__version__
OPEN = "(float[N] x) => (float[A] a, float[B] b, float[C] c) { a, b, c = Split<num_outputs = 3>(x) }"
UNBIND = """(float[2, 3] x) => (seq(float) s) <int64 k = {1}> {
    s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }"""


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_a_fixed_model_is_verified_at_the_sizes_where_its_division_changes() -> None:
    model = parse(OPEN)
    found = verify(model, fix(model, "onnxruntime"), "onnxruntime")
    assert found.holds
    assert {trial.verdict for trial in found.trials} == {TrialVerdict.SAME}
    assert {trial.sizes["N"] for trial in found.trials} == {0, 1, 2, 3, 4, 6}


def test_a_model_that_is_not_fixed_is_seen() -> None:
    model = parse(OPEN)
    found = verify(model, model, "onnxruntime")
    assert not found.holds
    assert found.failures[-1].verdict is TrialVerdict.FAILED
    assert "num_outputs" in str(found.failures[-1])


def test_a_runtime_that_returns_something_else_is_seen() -> None:
    model = parse(
        "(float[2,3] x) => (seq(float[A,B]) y) <int64 one = {1}> { y = SplitToSequence<keepdims = 0>(x, one)}"
    )
    found = verify(model, model, "onnxruntime")
    assert [trial.verdict for trial in found.failures] == [TrialVerdict.DIFFERENT]


def test_a_model_that_takes_no_input_says_why() -> None:
    model = parse(
        "(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {2, 3}> { y = Neg(x) a, b = Split(y, k) }"
    )
    with pytest.raises(
        splitops.ModelError, match=r"the model rejects all generated inputs: Split-18 \[lengths\.sum\]"
    ):
        verify(model, model, "onnxruntime")


EVEN = parse("(float[N] x) => (float[A] a, float[B] b) { a, b = Split(x) }", 13)
EXPLICIT = parse("(float[N] x) => (float[A] a, float[B] b) <int64[2] k = {2, 5}> { a, b = Split(x, k) }")
WIDE = parse("(float[N, 100000] x) => (float[A, B] y) { y = Split<num_outputs = 300>(x) }")


@pytest.mark.parametrize(
    ("model", "same", "rejected"),
    [
        (EVEN, {0, 2, 4}, {1, 3}),
        (EXPLICIT, {7}, {0, 1, 2, 3, 6, 8, 14}),
        (WIDE, {0, 1, 2, 3}, {299, 300, 301, 600}),
    ],
)
def test_sizes_that_the_source_does_not_take_are_not_compared(
    model: onnx.ModelProto, same: set[int], rejected: set[int]
) -> None:
    found = verify(model, fix(model, "onnxruntime"), "onnxruntime")
    assert found.holds
    found = {
        verdict: {t.sizes["N"] for t in found.trials if t.verdict is verdict} for verdict in TrialVerdict
    }
    assert (found[TrialVerdict.SAME], found[TrialVerdict.REJECTED]) == (same, rejected)


THIRD = "(float[3] x) => (float[A] y, float z) <float d = {{{0}}}> {{ y = Div(x, d) z = Identity(x) }}"
PAIR = "(int32[4] x) => (seq(int32[A]) s) <int64 k = {{{0}}}> {{ s = SplitToSequence(x, k) }}"
DIFFER = r"\d of {} values differ, first at \[\d\]: \S+, not \S+"


@pytest.mark.parametrize(
    ("source", "made", "verdict", "text"),
    [
        (THIRD.format(3), THIRD.format(3.000001), TrialVerdict.ROUNDED, ""),
        (THIRD.format(3), THIRD.format(3.1), TrialVerdict.DIFFERENT, rf"output 'y': {DIFFER.format(3)}"),
        (PAIR.format(2), PAIR.format(1), TrialVerdict.DIFFERENT, "output 's': 4 elements, not 2"),
        (
            "(int32[4] x) => (int32[4] y) { y = Identity(x) }",
            "(int32[4] x) => (int32[4] y) { y = Neg(x) }",
            TrialVerdict.DIFFERENT,
            rf"output 'y': {DIFFER.format(4)}",
        ),
    ],
)
def test_results_that_differ(source: str, made: str, verdict: TrialVerdict, text: str) -> None:
    (trial,) = verify(parse(source), parse(made), "onnxruntime").trials
    assert trial.verdict is verdict
    assert re.fullmatch(text, trial.text)


def test_a_model_that_the_runtime_rejects_has_one_trial() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }", 1)
    (trial,) = verify(model, model, "onnxruntime").trials
    assert trial.verdict is TrialVerdict.FAILED
    assert "Split" in trial.text


def test_the_end_of_the_process_is_an_answer() -> None:
    model = parse("(float[6] x) => (float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    model.graph.node[0].output[0] = ""
    found = verify(model, model, "onnxruntime")
    assert "SIG" in str(found.failures[0])


def test_floats_of_other_operators_are_told_apart_from_bits() -> None:
    model = parse(
        "(float[N] x) => (float[A] p, float[B] q) "
        "{ a, b = Split<num_outputs = 2>(x) p = Erf(a) c = Exp(b) q = Softmax<axis = 0>(c) }"
    )
    found = verify(model, fix(model, "onnxruntime"), "onnxruntime")
    assert found.holds
    assert not found.failures


def test_openvino_ir_is_verified() -> None:
    pytest.importorskip("openvino")
    builder = Builder("m")
    data = builder.parameter("x", "string", "2,5")
    ports = [data, builder.const(np.array(1)), builder.const(np.array([2, -1, 0]))]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=3)):
        builder.result(part, f"p{index}")
    model = builder.model()
    assert verify(model, fix(model, "openvino"), "openvino").holds


@pytest.mark.parametrize("dtype", [np.dtype(">f4"), np.dtype("S1")], ids=["byte order", "byte strings"])
def test_given_inputs_are_converted_as_in_a_run(dtype: np.dtype[Any]) -> None:
    kind = "string" if dtype.kind == "S" else "float"
    model = parse(f"({kind}[N] x) => ({kind}[A] a, {kind}[B] b) {{ a, b = Split<num_outputs = 2>(x) }}")
    given = np.array(list("12345")).astype(dtype)
    found = verify(model, fix(model, "onnxruntime"), "onnxruntime", inputs={"x": given})
    assert [trial.verdict for trial in found.trials] == [TrialVerdict.SAME]


@pytest.mark.parametrize("names", [["x", "y"], ["of x", "y"], ["y", "x"]])
def test_inputs_of_openvino_ir_have_any_of_their_names_or_none(names: list[str]) -> None:
    pytest.importorskip("openvino")
    builder = Builder("m")
    first = builder.parameter("x", "f32", "2,5", names=["of x"])
    second = builder.parameter("y", "f32", "2,5", names=[])
    (change,) = builder.layer("Subtract", [first, second], {"auto_broadcast": "numpy"})
    ports = [change, builder.const(np.array(1)), builder.const(np.array([2, -1, 0]))]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=3)):
        builder.result(part, f"p{index}")
    model = builder.model()
    values = {"x": np.ones((2, 5), np.float32), "y": np.full((2, 5), 3, np.float32)}
    feeds = {name: values[name[-1]] for name in names}
    assert verify(model, fix(model, "openvino"), "openvino").holds
    assert verify(model, fix(model, "openvino"), "openvino", inputs=feeds).holds


def test_what_cannot_be_verified() -> None:
    model = parse(OPEN)
    with pytest.raises(splitops.ModelError, match="cannot verify models on"):
        verify(model, fix(model, "tensorrt"), "tensorrt")
    sequence = parse("(seq(float[N]) s, int64 i) => (float[M] x) { x = SequenceAt(s, i) }")
    with pytest.raises(splitops.ModelError, match="cannot generate input 's'"):
        verify(sequence, fix(sequence, "onnxruntime"), "onnxruntime")


def write(folder: Path, body: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(parse(body).SerializeToString())
    return path


def test_the_command_writes_a_verified_model(tmp_path: Path) -> None:
    path, out = write(tmp_path, OPEN), tmp_path / "fixed.onnx"
    done = run("fix", path, "--verify", "-o", out)
    assert done.exit_code == 0, done.output
    assert f"1 split rewritten for onnxruntime {RELEASE}. No split left to fix.\n" in done.output
    assert f"Verified on onnxruntime {RELEASE} with 6 samples: 6 identical\n" in done.output
    assert done.output.endswith(f"Written to {out}\n")
    onnx.checker.check_model(onnx.load(out))
    found = json.loads(run("fix", path, "--for", "onnxruntime", "--verify", "--json").output)
    (split,) = found["splits"]
    assert (split["status"], split["reasons"][0]["code"]) == ("rewritten", "onnxruntime.open-axis")
    assert split["where"]["node"] == "Split -> a"
    assert split["cost"]
    (verified,) = found["verified"]
    assert {trial["verdict"] for trial in verified["trials"]} == {"identical"}


def test_without_a_file_to_write_the_command_that_writes_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, OPEN)
    done = run("fix", path)
    assert (done.exit_code, list(tmp_path.iterdir())) == (0, [path])
    assert done.output.endswith(f"Write it: splitops fix {path} -o {tmp_path / 'model.fixed.onnx'}\n")
    out = tmp_path / "fixed.onnx"
    done = run("fix", path, "--dry-run", "-o", out)
    assert done.output.endswith(f"Would write {out}.\n")
    assert not out.exists()


def test_a_model_that_needs_no_fix_is_told_so(tmp_path: Path) -> None:
    path = write(tmp_path, "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    assert run("fix", path).output.endswith(
        f"No problems found (1 split checked for onnxruntime {RELEASE}).\n"
    )


def test_the_command_rejects_an_unfixable_split_unless_a_partial_fix_will_do(tmp_path: Path) -> None:
    path, out = write(tmp_path, UNBIND), tmp_path / "fixed.onnx"
    done = run("fix", path, "--for", "onnxruntime", "-o", out)
    assert done.exit_code == 1
    assert "onnxruntime.unbind" in done.output
    assert done.output.endswith(
        "Nothing was written: 1 split cannot be fixed. To fix the others: --partial.\n"
    )
    assert not out.exists()
    assert run("fix", path, "--for", "onnxruntime", "--partial", "-o", out).exit_code == 0
    assert splitops.load(out) == splitops.load(path)
    done = run("fix", path, "--for", "onnxruntime", "--unbind", "as-written", "-o", out, "--verify")
    assert done.exit_code == 0, done.output
    assert run("fix", path, "--for", "onnxruntime", "--unbind", "as-pytorch", "--verify").exit_code == 2
    assert run("fix", path, "--for", "caffe").exit_code == 2
    assert run("fix", path, "--for", "onnxruntime", "-o", tmp_path / "m.xml").exit_code == 2


def test_a_split_is_fixed_for_several_runtimes_at_once(tmp_path: Path) -> None:
    body = "(float[2, 6] x) => (float[A, Z] a) { a = Split<num_outputs = 2>(x) }"
    path, out = write(tmp_path, body), tmp_path / "fixed.onnx"
    done = run("fix", path, "-o", out, "--for", "onnxruntime", "--for", "opencv", "--json")
    assert done.exit_code == 0, done.output
    (split,) = json.loads(done.output)["splits"]
    codes = {reason["code"] for reason in split["reasons"]}
    assert codes == {"onnxruntime.fewer-outputs", "opencv.fewer-outputs", "opencv.default-axis"}
    assert run("check", out, "--for", "onnxruntime", "--for", "opencv").output.startswith("No problems found")


def test_forms_that_never_agree_are_unfixable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round finds the limit again, as if the form for one runtime met a limit of another."""
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    reason = Reason("onnxruntime.open-axis", "again")
    monkeypatch.setattr(driver, "find_issues", lambda *_, **__: [Issue(reason, (Repair.AXIS,))])
    monkeypatch.setattr(FixWriter, "_write_axis", lambda self, node, site: RewriteResult("the same"))
    report = fix_with_report(model, "onnxruntime", partial=True)
    assert [split.code for split in report.unfixable] == ["onnxruntime.open-axis"]
    with pytest.raises(splitops.ModelError, match="again"):
        fix(model, "onnxruntime")


def test_without_a_runtime_only_broken_rules_are_repaired(tmp_path: Path) -> None:
    body = "(float[5] x) => (float[A] a, float[B] b, float[C] c, float[D] d) { a, b, c, d = Split(x) }"
    path = write(tmp_path, body)
    (split,) = fix_with_report(path, ()).splits
    assert (split.code, split.after) == ("lengths.missing", "Split-18(axis=0, num_outputs=4)")
    (split,) = fix_with_report(path).splits  # onnxruntime, which is installed
    assert split.after == "Split-18(axis=0, split=[2, 2, 1, 0])"


def test_without_an_installed_runtime_the_command_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitops.models.engines.is_installed", lambda name: False)
    path = write(tmp_path, "(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }")
    done = run("fix", path)
    assert "1 split rewritten. No split left to fix.\n" in done.output
    assert "Only rules were checked. To check the limits of a runtime, name it with --for.\n" in done.output
    done = run("fix", path, "--verify")
    assert (done.exit_code, "--verify needs a runtime: name one with --for." in done.output) == (2, True)


def test_a_release_is_named_if_it_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, UNBIND)
    done = run("fix", path, "--for", "tensorrt", "--for", "onnxruntime", "--unbind", "as-written")
    told = f"for tensorrt, onnxruntime {RELEASE}. 1 split cannot be fixed.\n"
    assert f"0 splits rewritten {told}" in done.output, done.output
