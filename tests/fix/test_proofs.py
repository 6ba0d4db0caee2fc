"""``--prove`` and the command: what holds is said to hold, and a model that is not legal is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from legal_helpers import parse

import splitops
from splitops.cli import cli
from splitops.models.fix import Legalization, legalize
from splitops.models.formats.openvino import Builder
from splitops.models.proving import Verdict, prove

pytest.importorskip("onnxruntime")
OPEN = "(float[N] x) => (float[A] a, float[B] b, float[C] c) { a, b, c = Split<num_outputs = 3>(x) }"
UNBIND = """(float[2, 3] x) => (seq(float) s) <int64 k = {1}> {
    s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }"""


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_a_legal_model_is_proved_at_the_sizes_where_its_division_changes() -> None:
    model = parse(OPEN)
    proof = prove(model, legalize(model, "onnxruntime", report=True))
    assert proof.holds
    assert {trial.verdict for trial in proof.trials} == {Verdict.SAME}
    assert {trial.sizes["N"] for trial in proof.trials} == {0, 1, 2, 3, 4, 6}


def test_a_model_that_is_not_legal_is_seen_to_be_none() -> None:
    model = parse(OPEN)
    proof = prove(model, Legalization("onnxruntime", model, ()))
    assert not proof.holds
    assert proof.failures[-1].verdict is Verdict.FAILED
    assert "num_outputs" in str(proof.failures[-1])


def test_a_runtime_that_gives_something_else_is_seen() -> None:
    model = parse(
        "(float[2,3] x) => (seq(float[A,B]) y) <int64 one = {1}> { y = SplitToSequence<keepdims = 0>(x, one)}"
    )
    proof = prove(model, Legalization("onnxruntime", model, ()))
    assert [trial.verdict for trial in proof.failures] == [Verdict.DIFFERENT]


def test_a_model_that_takes_no_input_says_why() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {2, 3}> { a, b = Split(x, k) }")
    with pytest.raises(
        splitops.ModelError, match=r"no input .* that the model takes: Split-18 \[lengths.sum\]"
    ):
        prove(model, Legalization("onnxruntime", model, ()))


EVEN = parse("(float[N] x) => (float[A] a, float[B] b) { a, b = Split(x) }", 13)
EXPLICIT = parse("(float[N] x) => (float[A] a, float[B] b) <int64[2] k = {2, 5}> { a, b = Split(x, k) }")
WIDE = parse("(float[N, 100000] x) => (float[A, B] y) { y = Split<num_outputs = 300>(x) }")


@pytest.mark.parametrize(
    ("model", "same", "refused"),
    [
        (EVEN, {0, 2, 4}, {1, 3}),
        (EXPLICIT, {7}, {0, 1, 2, 3, 6, 8, 14}),
        (WIDE, {0, 1, 2, 3}, {299, 300, 301, 600}),
    ],
)
def test_sizes_that_the_source_does_not_take_are_not_compared(
    model: onnx.ModelProto, same: set[int], refused: set[int]
) -> None:
    proof = prove(model, Legalization("onnxruntime", legalize(model, "onnxruntime"), ()))
    assert proof.holds
    found = {verdict: {t.sizes["N"] for t in proof.trials if t.verdict is verdict} for verdict in Verdict}
    assert (found[Verdict.SAME], found[Verdict.REFUSED]) == (same, refused)


THIRD = "(float[3] x) => (float[A] y, float z) <float d = {{{0}}}> {{ y = Div(x, d) z = Identity(x) }}"
PAIR = "(int32[4] x) => (seq(int32[A]) s) <int64 k = {{{0}}}> {{ s = SplitToSequence(x, k) }}"


@pytest.mark.parametrize(
    ("source", "made", "verdict", "text"),
    [
        (THIRD.format(3), THIRD.format(3.000001), Verdict.ROUNDED, ""),
        (THIRD.format(3), THIRD.format(3.1), Verdict.DIFFERENT, "output 'y': other values"),
        (PAIR.format(2), PAIR.format(1), Verdict.DIFFERENT, "output 's': 2 elements and 4"),
        (
            "(int32[4] x) => (int32[4] y) { y = Identity(x) }",
            "(int32[4] x) => (int32[4] y) { y = Neg(x) }",
            Verdict.DIFFERENT,
            "output 'y': other values",
        ),
    ],
)
def test_results_that_differ(source: str, made: str, verdict: Verdict, text: str) -> None:
    (trial,) = prove(parse(source), Legalization("onnxruntime", parse(made), ())).trials
    assert (trial.verdict, trial.text) == (verdict, text)


def test_a_model_that_the_runtime_refuses_has_one_trial() -> None:
    model = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }", 1)
    (trial,) = prove(model, Legalization("onnxruntime", model, ())).trials
    assert trial.verdict is Verdict.FAILED
    assert "Split" in trial.text


def test_the_end_of_the_process_is_an_answer() -> None:
    model = parse("(float[6] x) => (float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    model.graph.node[0].output[0] = ""
    proof = prove(model, Legalization("onnxruntime", model, ()))
    assert "SIG" in str(proof.failures[0])


def test_floats_of_other_operators_are_told_apart_from_bits() -> None:
    model = parse(
        "(float[N] x) => (float[A] p, float[B] q) "
        "{ a, b = Split<num_outputs = 2>(x) p = Erf(a) c = Exp(b) q = Softmax<axis = 0>(c) }"
    )
    proof = prove(model, legalize(model, "onnxruntime", report=True))
    assert proof.holds
    assert not proof.failures


def test_openvino_ir_is_proved() -> None:
    pytest.importorskip("openvino")
    builder = Builder("m")
    data = builder.parameter("x", "string", "2,5")
    ports = [data, builder.const(np.array(1)), builder.const(np.array([2, -1, 0]))]
    for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=3)):
        builder.result(part, f"p{index}")
    model = builder.model()
    assert prove(model, legalize(model, "openvino", report=True)).holds


def test_what_cannot_be_proved() -> None:
    model = parse(OPEN)
    with pytest.raises(splitops.ModelError, match="cannot be run here"):
        prove(model, legalize(model, "tensorrt", report=True))
    sequence = parse("(seq(float[N]) s, int64 i) => (float[M] x) { x = SequenceAt(s, i) }")
    with pytest.raises(splitops.ModelError, match="no input can be made for 's'"):
        prove(sequence, legalize(sequence, "onnxruntime", report=True))


def write(folder: Path, body: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(parse(body).SerializeToString())
    return path


def test_the_command_writes_a_proved_model(tmp_path: Path) -> None:
    path, out = write(tmp_path, OPEN), tmp_path / "legal.onnx"
    done = run("legalize", path, "--for", "onnxruntime", "--prove", "-o", out)
    assert done.exit_code == 0, done.output
    assert "0 legal, 1 restated, 0 illegal for onnxruntime" in done.output
    assert "6 trials: 6 same bits" in done.output
    onnx.checker.check_model(onnx.load(out))
    found = json.loads(run("legalize", path, "--for", "onnxruntime", "--prove", "--json").output)
    (site,) = found["sites"]
    assert (site["fate"], site["reasons"][0]["code"]) == ("restated", "onnxruntime.open-axis")
    assert site["where"]["node"] == "Split -> a"
    assert site["cost"]
    assert {trial["verdict"] for trial in found["proof"]} == {"same bits"}


def test_the_command_refuses_and_keeps(tmp_path: Path) -> None:
    path, out = write(tmp_path, UNBIND), tmp_path / "legal.onnx"
    done = run("legalize", path, "--for", "onnxruntime", "-o", out)
    assert done.exit_code == 1
    assert "onnxruntime.unbind" in done.output
    assert not out.exists()
    assert run("legalize", path, "--for", "onnxruntime", "--keep-illegal", "-o", out).exit_code == 0
    assert splitops.load(out) == splitops.load(path)
    done = run("legalize", path, "--for", "onnxruntime", "--unbind", "as-written", "-o", out, "--prove")
    assert done.exit_code == 0, done.output
    assert run("legalize", path, "--for", "onnxruntime", "--unbind", "as-pytorch", "--prove").exit_code == 2
    assert run("legalize", path, "--for", "caffe").exit_code == 2
    assert run("legalize", path, "--for", "onnxruntime", "-o", tmp_path / "m.xml").exit_code == 2


def test_check_fix_legalises_for_each_target_in_turn(tmp_path: Path) -> None:
    body = "(float[2, 6] x) => (float[A, Z] a) { a = Split<num_outputs = 2>(x) }"
    path, out = write(tmp_path, body), tmp_path / "fixed.onnx"
    targets = ["--target", "onnxruntime", "--target", "opencv"]
    done = run("check", path, "--fix", "-o", out, *targets, "--json")
    assert done.exit_code == 0, done.output
    codes = [reason["code"] for site in json.loads(done.output)["repairs"] for reason in site["reasons"]]
    assert codes == ["onnxruntime.fewer-outputs", "opencv.default-axis"]


def test_check_fix_without_a_target_keeps_splits(tmp_path: Path) -> None:
    body = "(string[4] x) => (string[A] a, string[B] b) { a, b = Split<num_outputs = 2>(x) }"
    path, out = write(tmp_path, body), tmp_path / "fixed.onnx"
    run("check", path, "--fix", "-o", out)
    assert splitops.load(out) == splitops.load(path)
