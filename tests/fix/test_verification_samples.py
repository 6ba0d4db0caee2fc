"""Which samples a verification takes, and what it compares with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from fix_helpers import parse

import splitops
from command_line import printed, runner
from splitops.cli import cli
from splitops.models.fix import fix
from splitops.models.verify import TrialVerdict, verify

RELEASE = pytest.importorskip("onnxruntime").__version__
HALVES = "(float[N] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }"
REPAIRED = {
    "no number": parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split(x) }"),
    "no number of an open axis": parse("(float[N] x) => (float[A] a, float[B] b) { a, b = Split(x) }"),
    "another version": parse(
        "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }", 13
    ),
    "int32": parse("(float[5] x) => (float[A] a, float[B] b) <int32[2] k = {2, 3}> { a, b = Split(x, k) }"),
    "-1": parse("(float[N] x) => (float[A] a, float[B] b) <int64[2] k = {2, -1}> { a, b = Split(x, k) }"),
    "an input of int32": parse("(float[5] x, int32[1] k) => (float[A] a) { a = Split(x, k) }"),
}
CHUNKS = """(float[N] x) => (float[A] a) <int64 k = {{{chunk}}}, int64 at = {{{at}}}> {{
    s = SplitToSequence(x, k) a = SequenceAt(s, at) }}"""


def run(*arguments: Any) -> Result:
    return runner().invoke(cli, [str(argument) for argument in arguments])


def write(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_model_is_compared_with_what_it_means_now(name: str, tmp_path: Path) -> None:
    source = REPAIRED[name]
    if name == "an input of int32":
        fixed = fix(source, "onnxruntime")
        given = {"x": np.arange(5, dtype=np.float32), "k": np.array([5], np.int32)}
        found = verify(source, fixed, "onnxruntime", inputs=given)
    else:
        found = verify(source, fix(source, "onnxruntime"), "onnxruntime")
        done = run(
            "fix", write(tmp_path, source), "--for", "onnxruntime", "--verify", "-o", tmp_path / "o.onnx"
        )
        assert done.exit_code == 0, printed(done)
        assert "the source cannot run (Split-1" in printed(done)
    assert found.holds
    assert "Split-1" in found.source_error
    assert found.source_error in str(found)
    assert found.as_dict()["source_error"] == found.source_error


def test_a_repaired_model_that_takes_no_made_input_asks_for_inputs(tmp_path: Path) -> None:
    source = parse("(float[50] x, int32[2] k) => (float[A] a, float[B] b) { a, b = Split(x, k) }")
    path = write(tmp_path, source)
    done = run("fix", path, "--for", "onnxruntime", "--verify")
    assert done.exit_code == 1
    assert "the model rejects all generated inputs: Split-18 [lengths." in printed(done)
    assert "set inputs (--input" in printed(done)
    np.save(tmp_path / "k.npy", np.array([20, 30], np.int32))
    inputs = ("--input", "x=ramp", "--input", f"k={tmp_path / 'k.npy'}")
    done = run("fix", path, "--for", "onnxruntime", "--verify", *inputs)
    assert done.exit_code == 0, printed(done)
    assert "1 identical; the source cannot run" in printed(done)


GIVEN = "(float[50] x, int64[2] k) => (float[A] a, float[B] b) { a, b = Split(x, k) }"


@pytest.mark.parametrize(
    "command", [("convert", "--to", "onnx:11"), ("convert", "--to", "onnx:13"), ("simplify",), ("fix",)]
)
def test_a_model_that_needs_other_inputs_is_not_compared_with_itself(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """Slices at opset 11 accept lengths that the split of the source rejects."""
    path = write(tmp_path, parse(GIVEN))
    name, *options = command
    done = run(name, path, *options, "--verify")
    assert done.exit_code == 1, printed(done)
    assert "the model rejects all generated inputs" in printed(done)
    for lengths, same in (([20, 30], True), ([20, 31], False)):
        np.save(tmp_path / "k.npy", np.array(lengths))
        inputs = ("--input", "x=ramp", "--input", f"k={tmp_path / 'k.npy'}")
        done = run(name, path, *options, "--verify", *inputs)
        assert done.exit_code == (0 if same else 1), printed(done)
        assert ("with 1 sample: 1 identical\n" in printed(done)) is same
        assert ("[lengths.sum]" in printed(done)) is not same
    assert "--input requires --verify" in printed(run(name, path, *options, *inputs))


def test_a_partial_fix_that_fails_in_its_runtime_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, parse("(complex64[4] x) => (complex64[A] a) { a = Split<num_outputs = 1>(x) }"))
    done = run("fix", path, "--for", "onnxruntime", "--verify", "--partial", "-o", tmp_path / "o.onnx")
    assert done.exit_code == 1
    assert printed(done).splitlines()[-1] == "Nothing was written: the fixed model failed in a runtime."


def test_a_repair_that_returns_something_else_is_seen() -> None:
    source = REPAIRED["no number"]
    wrong = parse("(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 4>(x) }")
    found = verify(source, wrong, "onnxruntime")
    assert not found.holds


@pytest.mark.parametrize(("chunk", "at"), [(2, 2), (3, 4), (2, -3), (1, 5)])
def test_chunks_that_are_read_late_are_sampled(chunk: int, at: int) -> None:
    source = parse(CHUNKS.format(chunk=chunk, at=at))
    found = verify(source, fix(source, "onnxruntime"), "onnxruntime")
    assert found.holds
    end = chunk * (at + 1 if at >= 0 else -at)
    assert {trial.sizes["N"] for trial in found.trials} >= {end - 1, end, end + 1}


def lstm(split: str) -> onnx.ModelProto:
    """An LSTM of an open batch, which ends onnxruntime if the batch is empty."""
    return parse(f"""(float[3, B, 4] x) => (float[P, Q, R] a, float[S, T, U] b)
        <float[1, 8, 4] w = {{{"0.5, " * 31} 0.5}}, float[1, 8, 2] r = {{{"0.25, " * 15} 0.25}}> {{
        y = LSTM<hidden_size = 2>(x, w, r) one = Constant<value_ints = [1]>()
        z = Squeeze(y, one) {split} }}""")


@pytest.mark.parametrize(
    "split",
    [
        "a, b = Split<axis = 0, num_outputs = 2>(z)",  # onnxruntime runs the source
        "a, b = Split<axis = 1, num_outputs = 2>(z)",
        "c, d, e, f = Split<axis = 0, num_outputs = 4>(x) g, h, i, j = Split<axis = 0, num_outputs = 4>(z) "
        "a = Identity(g) b = Identity(i)",  # and rejects this one
    ],
)
def test_what_ends_a_runtime_without_the_fix_does_not_block_a_fix(split: str) -> None:
    source = lstm(split)
    found = verify(source, fix(source, "onnxruntime"), "onnxruntime")
    assert found.holds, str(found)
    assert [str(trial.verdict) for trial in found.trials if 0 in trial.sizes.values()] != []


def test_an_empty_axis_that_only_the_fixed_model_fails_on_is_seen() -> None:
    source = parse("(float[N] x) => (float[N] y) { y = Relu(x) }")
    wrong = parse(
        "(float[N] x) => (float[N] y) <int64[1] k = {1}, int64[1] z = {0}> { t = Gather(x, z) y = Add(x, t) }"
    )
    found = verify(source, wrong, "onnxruntime")
    assert TrialVerdict.FAILED in {trial.verdict for trial in found.trials if 0 in trial.sizes.values()}


@pytest.mark.parametrize("name", ["npu.toml", "tensorrt", "onnxruntime==1.28"])
def test_what_cannot_be_run_is_verified_on_what_is_installed(name: str, tmp_path: Path) -> None:
    path, limits = write(tmp_path, parse(HALVES)), tmp_path / "npu.toml"
    limits.write_text('[[limits]]\ncode = "number"\nwhen = "num_outputs"\n')
    named = limits if name.endswith(".toml") else name
    done = run("fix", path, "--for", named, "--verify", "-o", tmp_path / "o.onnx")
    assert done.exit_code == 0, printed(done)
    asked = name.removesuffix(".toml").replace("==", " ")
    assert f"{asked} cannot be run here: the fixed model ran on onnxruntime {RELEASE} instead" in printed(
        done
    )
    assert "cannot be run here" not in printed(run("fix", path, "--for", "onnxruntime", "--verify"))


def test_given_inputs_are_the_sample(tmp_path: Path) -> None:
    path, data = write(tmp_path, parse(HALVES)), tmp_path / "x.npy"
    np.save(data, np.arange(7, dtype=np.float32))
    for value in (data, "ramp:7"):
        done = run("fix", path, "--for", "onnxruntime", "--verify", "--input", f"x={value}")
        assert done.exit_code == 0, printed(done)
        assert "with 1 sample: 1 identical" in printed(done)
    assert run("fix", path, "--input", "x=ramp:7").exit_code == 2
    assert run("fix", path, "--verify", "--input", "z=ramp:7").exit_code == 2
    assert run("fix", path, "--verify", "--input", "x=ramp:7,2").exit_code == 1


def test_a_sequence_as_an_input_is_verified_if_it_is_given() -> None:
    source = parse(
        "(seq(float[N]) s, float[M] x) => (float[A] a, float[B] b, float[C] y) "
        "<int64 k = {0}> { a, b = Split<num_outputs = 2>(x) y = SequenceAt(s, k) }"
    )
    fixed = fix(source, "onnxruntime")
    with pytest.raises(splitops.ModelError, match="cannot generate input"):
        verify(source, fixed, "onnxruntime")
    given = {"s": [np.zeros(2, np.float32)], "x": np.arange(3, dtype=np.float32)}
    assert verify(source, fixed, "onnxruntime", inputs=given).holds
