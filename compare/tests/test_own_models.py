"""A user's own model: its splits cut out, and the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest

import splitops_compare
from splitops.errors import ModelError
from splitops_compare.data import VerdictKind
from splitops_compare.driver.user_models import make_model_cases

MODELS = Path(__file__).parents[2] / "examples/models"


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[N, 6] x, int64[2] lengths) => (float[A, B] a, float[C, D] d, seq(float) s) {
            y = Relu (x)
            a, b = Split <axis = 1> (y, lengths)
            c, d, e = Split <axis = 1, num_outputs = 3> (y)
            s = SplitToSequence <axis = 1, keepdims = 0> (y)
        }""")


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "lengths": np.array([2, 4])}


def test_each_split_has_the_sizes_and_values_that_it_has_there() -> None:
    make_lengths_spec, by_number, sequence, whole = make_model_cases(model(), feeds())
    assert make_lengths_spec.spec is not None
    assert make_lengths_spec.spec.lengths == [2, 4]
    assert make_lengths_spec.spec.shape == (2, 6)
    assert not make_lengths_spec.spec.constant
    assert make_lengths_spec.spec.dynamic
    assert by_number.spec is not None
    assert by_number.spec.attributes == {"num_outputs": 3}
    assert by_number.spec.constant
    assert (sequence.operator, sequence.is_valid) == ("SplitToSequence-11", True)
    assert whole.outputs == ("a", "d", "s")
    assert set(whole.inputs) == {"x", "lengths"}


def test_a_split_that_is_not_known_before_is_asked_in_the_whole_alone() -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[6] x) => (float[A] a, float[B] b, float[3] c, int64[1, C] k) {
            i = NonZero (x)
            k, l = Split <axis = 1, num_outputs = 2> (i)
            j = Squeeze (i)
            y = Gather (x, j)
            a, b = Split <num_outputs = 2> (y)
            c, d = Split <num_outputs = 2> (x)
        }""")
    found = make_model_cases(onnx_ir.from_proto(made), {"x": np.arange(6, dtype=np.float32)})
    assert [case.spec and case.spec.shape for case in found] == [(6,), None]


def test_what_no_model_of_its_own_states_is_asked_in_the_whole_alone() -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[6] x) => (float[6] y) {
            y = Relu (x)
            s = SplitToSequence (x)
        }
        <domain: "local", opset_import: ["": 18]>
        nobody_calls <axis, keepdims> () => (a, b, s) {
            c = Constant <value_ints = [1, 2, 3]> ()
            a, b = Split <axis: int = @axis, num_outputs = 2> (c)
            s = SplitToSequence <keepdims: int = @keepdims> (c)
        }""")
    made.graph.node[1].output[0] = ""
    (whole,) = make_model_cases(made, {"x": np.arange(6, dtype=np.float32)})
    assert whole.spec is None


def test_an_ir_is_cut_too() -> None:
    *cuts, whole = make_model_cases(MODELS / "feature_split.xml")
    assert cuts
    assert {case.format for case in (*cuts, whole)} == {"ir"}
    assert whole.weights


def test_a_model_is_asked_as_a_whole_and_in_parts() -> None:
    pytest.importorskip("onnxruntime")
    report = splitops_compare.compare(
        model=model(), inputs=feeds(), implementations=["onnxruntime"], shrink_seconds=0
    )
    assert {entry.verdicts["onnxruntime"].kind for entry in report.cases} == {VerdictKind.AGREES}
    assert report.cases[-1].id == "model"
    assert len(report.cases) == 4


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08hello")
    for path in (tmp_path / "m.onnx", tmp_path / "none.onnx", tmp_path / "m.txt"):
        with pytest.raises(ModelError) as caught:
            make_model_cases(path)
        assert "\n" not in str(caught.value)


def test_rounding_is_told_from_other_values() -> None:
    from dataclasses import replace

    from splitops_compare.data import Outcome
    from splitops_compare.driver.judge import judge

    *_, whole = make_model_cases(model(), feeds())
    assert whole.expected is not None
    first = whole.expected[0]
    assert isinstance(first, np.ndarray)
    for change, word in ((np.float32(1e-6), VerdictKind.AGREES), (np.float32(1), VerdictKind.DIFFERS)):
        values = (first + change, *whole.expected[1:])
        outcome = Outcome(kind="ok", values=values, types=whole.expected_types)
        assert judge(whole, outcome, lambda _: None).kind is word
        assert judge(replace(whole, exact=True), outcome, lambda _: None).kind is VerdictKind.DIFFERS
