"""Reports of large models: what is the same is said once, and what matters comes first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from splitops import Where
from splitops.models.convert import Change, Status
from splitops.models.verify import Trial, TrialVerdict, Verification

LAYERS = 12


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Layers that are all alike: a weight, a Reshape that opset 9 cannot say, a split and its Concat."""
    nodes, weights = [], [numpy_helper.from_array(np.array([0, 6]), "shape")]
    value = "x"
    for number in range(LAYERS):
        weights.append(numpy_helper.from_array(np.full(6, number, np.float32), f"w{number}"))
        nodes += [
            helper.make_node("Add", [value, f"w{number}"], [f"a{number}"], f"add{number}"),
            helper.make_node(
                "Reshape", [f"a{number}", "shape"], [f"r{number}"], f"shape{number}", allowzero=1
            ),
            helper.make_node(
                "Split", [f"r{number}"], [f"p{number}", f"q{number}"], f"cut{number}", axis=1, num_outputs=2
            ),
            helper.make_node("Concat", [f"p{number}", f"q{number}"], [f"c{number}"], f"glue{number}", axis=1),
        ]
        value = f"c{number}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [0, 6])], [info(value, TensorProto.FLOAT, [0, 6])], weights
    )
    path = tmp_path / "layers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def lines_with(text: str, words: str) -> list[str]:
    return [line for line in text.splitlines() if words in line]


def test_infer_names_equal_values_in_one_row_and_parts_first(invoke, model):
    result = invoke("infer", model)
    assert result.exit_code == 0
    rows = lines_with(result.output, "float32[")
    assert " ".join(rows[0].split()) == "p0, q0, p1 and 21 more float32[0, 3]"
    assert "w0" not in result.output  # it is set already
    stated = json.loads(invoke("infer", model, "--json").output)["values"]
    new = sum(value["before"] != value["after"] for value in stated)
    assert f"{len(stated)} values, {new} with a new or more exact type or shape" in result.output


def test_infer_shows_what_is_new_before_the_rest(invoke, model):
    output = invoke("infer", model, "--all").output
    (weights,) = lines_with(output, "w0, w1, w2 and 9 more")
    assert output.index("p0, q0") < output.index("a0, r0") < output.index(weights)


def test_convert_groups_rejections_and_shows_them_first(invoke, model):
    result = invoke("convert", model, "--to", "onnx:9")
    assert result.exit_code == 1
    rejected, converted = lines_with(result.output, "rejected  "), lines_with(result.output, "converted  ")
    assert len(rejected) == len(converted) == 1
    assert "shape0, shape1, shape2 and 9 more" in rejected[0]
    assert "cut0, cut1, cut2 and 9 more" in converted[0]
    assert result.output.index(rejected[0]) < result.output.index(converted[0])
    found = json.loads(invoke("convert", model, "--to", "onnx:9", "--json").stdout)["changes"]
    assert len(found) == 2 * LAYERS


def test_convert_shows_what_is_kept_once(invoke, model):
    (kept,) = lines_with(invoke("convert", model, "--to", "onnx:19").output, "kept")
    assert "cut0, cut1, cut2 and 9 more" in kept


@pytest.mark.parametrize(
    ("before", "split"),
    [
        ("Split-18(axis=1, num_outputs=2)", True),
        ("openvino VariadicSplit-1(axis=1, split_lengths=[6, 2, -1])", True),
        ("SplitToSequence", True),
        ("Reshape-14", False),
        ("ConcatFromSequence-11", False),
    ],
)
def test_a_change_tells_whether_it_is_one_of_a_split(before, split):
    assert Change(Where(), Status.KEPT, before).is_split is split


def test_simplify_groups_what_it_does_everywhere(invoke, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (row,) = lines_with(invoke("simplify", model).output, "cancel-split-concat")
    assert "glue0, glue1, glue2 and 9 more" in row
    assert "r0, r1, r2 and 9 more" in row


def test_check_groups_what_it_finds_everywhere(invoke, model):
    broken = onnx.load(model)
    for node in broken.graph.node:
        if node.op_type == "Split":
            next(a for a in node.attribute if a.name == "axis").i = 5
    onnx.save(broken, model)
    output = invoke("check", model, "--for", "onnxruntime").output
    (line,) = lines_with(output, "error: ")
    assert f"at {LAYERS} places: cut0, cut1, cut2 and 9 more" in line
    assert f"{LAYERS} errors" in output
    found = json.loads(invoke("check", model, "--for", "onnxruntime", "--json").output)["findings"]
    assert len([finding for finding in found if finding["severity"] == "error"]) == LAYERS


@pytest.mark.parametrize(
    "command", [["infer"], ["convert", "--to", "onnx:13"], ["simplify"], ["fix", "--for", "onnxruntime"]]
)
def test_what_is_not_shown_is_counted(invoke, tmp_path, monkeypatch, command):
    path, (name, *options) = tmp_path / "m.onnx", command
    onnx.save(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["": 18]>
            g (float[6] x, float[5] y) => (float[6] z, float[u] p, float[v] q, float[w] r, float[k] s) {
                a, b = Split<num_outputs = 2>(x)
                z = Concat<axis = 0>(a, b)
                c = Identity(y)
                d = Concat<axis = 0>(c)
                p, q, r, s = Split<num_outputs = 4>(d) }"""),
        path,
    )
    assert "more;" not in invoke(name, path, *options).output
    monkeypatch.setattr(f"splitops.cli.{name}._MAX_ROWS", 1)
    assert re.search(r"^\.\.\. and [1-9] more; --json lists all$", invoke(name, path, *options).output, re.M)


def test_tensors_that_are_not_shown_are_counted(invoke, tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.zeros(2), c=np.zeros(2))
    monkeypatch.setattr("splitops.cli.inspect._MAX_ROWS", 1)
    assert "... and 2 more" in invoke("inspect", tmp_path / "x.npz").output


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A model without a split."""
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
        ),
        tmp_path / "m.onnx",
    )
    return tmp_path / "m.onnx"


def test_a_model_without_splits_is_told(invoke, without):
    assert "The model has no split.\n" in invoke("fix", without).output
    result = invoke("convert", without, "--to", "onnx:18")
    assert result.output == "to onnx:18\nThe model has no split, and nothing else changed.\n"


def test_a_verification_that_fails_is_shown_and_nothing_written(invoke, without, monkeypatch):
    failed = Trial({"N": 2}, TrialVerdict.DIFFERENT, "output 'y' differs")
    found = Verification("onnxruntime", "1.0", (failed,))
    monkeypatch.setattr("splitops.models.verify.verify", lambda *_, **__: found)
    out = without.with_name("fixed.onnx")
    result = invoke("fix", without, "--for", "onnxruntime", "--verify", "-o", out)
    assert result.exit_code == 1
    assert f"  {failed}\nNothing was written: the fixed model failed in a runtime.\n" in result.output
    assert not out.exists()
