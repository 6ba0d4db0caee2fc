"""The interface: names, reports, passes, the command, and how the work grows."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from simplify_helpers import assert_equal, difference, operators, parse, random_feeds

import splitops
from scripts import script
from splitops.cli.simplify import command
from splitops.errors import ModelError
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.simplify import REWRITES, simplify, simplify_with_report
from splitops.models.simplify.driver import AnnotateInferredPass
from splitops.models.simplify.passes import SplitPass, find_order_error

BOTH = """g (float[4, 6] x) => (float[4, 6] y, float[4, 2] z) {
    a, b = Split<axis = 1>(x) c = Concat<axis = 1>(a, b) y = Relu(c)
    d, e, f = Split<axis = 1>(x) z = Relu(e) }"""


def test_only_named_rewrites_are_applied() -> None:
    model = parse(BOTH, 13)
    assert set(simplify_with_report(model, ["cancel-split-concat"]).counts) == {"cancel-split-concat"}
    assert set(simplify_with_report(model, ["remove-unused-parts"]).counts) == {"remove-unused-parts"}
    assert set(simplify_with_report(model, "remove-unused-parts").counts) == {"remove-unused-parts"}
    assert not simplify_with_report(model, []).changes


def test_an_unknown_name_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ModelError, match="unknown rewrite 'split-cat': use remove-whole-part"):
        simplify_with_report(parse(BOTH, 13), ["split-cat"])


def test_the_registry_is_frozen_and_every_pass_is_what_it_says() -> None:
    with pytest.raises(TypeError):
        REWRITES["mine"] = REWRITES["replace-slices"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        REWRITES["replace-slices"].default = False  # type: ignore[misc]
    for name, row in REWRITES.items():
        made = row.make_pass()
        assert isinstance(made, SplitPass)
        assert isinstance(made, ir.passes.InPlacePass)
        assert (made.name, row.name) == (name, name)
        assert made.roots


def test_a_pass_in_somebody_elses_pipeline() -> None:
    model = ir.from_proto(parse(BOTH, 13))
    passes = ir.passes.Sequential(
        AnnotateInferredPass(),
        REWRITES["cancel-split-concat"].make_pass(),
        REWRITES["remove-unused-parts"].make_pass(),
    )
    result = passes(model)
    assert result.modified
    assert result.model is model
    after = ir.to_proto(model)
    assert operators(after) == ["Relu", "Slice", "Relu"]
    assert_equal(parse(BOTH, 13), after, random_feeds(after.graph))
    assert not passes(model).modified


def test_empty_parts_of_a_shape_that_nobody_noted_stay() -> None:
    """A pass alone knows what the model declares, here a type without a shape."""
    text = """g (float[4, 6] x) => (float[0, 6] y, float[4, 6] z) <int64[2] s = {0, 4}> {
        a, b = Split<axis = 0>(x, s) y = Neg(a) z = Neg(b) }"""
    model = ir.from_proto(parse(text, 13))
    model.graph.node(0).outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    assert not REWRITES["fold-empty-parts"].make_pass()(model).modified


def test_parts_of_a_constant_of_a_type_that_only_is_stated() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) <float[4] w = {1, 2, 3, 4}> {
        a, b = Split<axis = 0>(w) y = Add(x, a) z = Add(x, b) }"""
    model = ir.from_proto(parse(text, 13))
    for part in model.graph.node(0).outputs:
        part.type = ir.TensorType(ir.DataType.FLOAT)
    assert REWRITES["fold-constants"].make_pass()(model).modified
    after = ir.to_proto(model)
    assert_equal(parse(text, 13), after, random_feeds(after.graph))


def test_an_initializer_of_an_element_type_that_nobody_knows_stays() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) <float[4] w = {1, 2, 3, 4}> {
        a, b = Split<axis = 0>(w) y = Add(x, a) z = Add(x, b) }"""
    model = ir.from_proto(parse(text, 13))
    outside = ir.ExternalTensor("weights", 0, 16, ir.DataType.UNDEFINED, shape=ir.Shape([4]), name="w")
    model.graph.initializers["w"].const_value = outside
    assert not REWRITES["split-initializers"].make_pass()(model).modified


def test_a_pass_rejects_a_model_out_of_order() -> None:
    model = ir.from_proto(parse(BOTH, 13))
    concat = model.graph.node(1)
    model.graph.remove(concat)
    model.graph.append(concat)
    with pytest.raises(ir.passes.PreconditionError, match="uses 'c' before it is produced: sort the nodes"):
        REWRITES["remove-whole-part"].make_pass()(model)


def test_a_pass_that_breaks_the_order_is_caught() -> None:
    def wrong(node: ir.Node, editor: Editor) -> None:
        if node.graph is not None and len(node.graph) == 5:
            node.graph.remove(node)

    with pytest.raises(ir.passes.PostconditionError):
        SplitPass("wrong", frozenset({Role.SPLIT}), wrong)(ir.from_proto(parse(BOTH, 13)))


def test_order_is_proved_in_subgraphs() -> None:
    model = ir.from_proto(
        parse("""g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { q = Neg(x) p = Neg(q) },
                   else_branch = e () => (float[2] r) { r = Neg(x) }> }""")
    )
    assert find_order_error(model) is None
    branch = model.graph.node(0).attributes["then_branch"].as_graph()
    first = branch.node(0)
    branch.remove(first)
    branch.append(first)
    assert find_order_error(model) is not None


# The comparison must be able to fail


def wrong_order(node: ir.Node, editor: Editor) -> None:
    """Take parts for the data although they are concatenated in another order."""
    origin = editor.find_source_split(node.inputs[0])  # type: ignore[arg-type]
    if origin is not None:
        data = origin[0].inputs[0]
        assert data is not None
        editor.replace(node.outputs[0], data)
        editor.remove(node)
        editor.record(editor.locate(origin[0]), "", "", "")


def test_a_wrong_rewrite_is_caught() -> None:
    text = """g (float[4, 6] x) => (float[4, 6] y) {
        a, b = Split<axis = 1>(x) c = Concat<axis = 1>(b, a) y = Relu(c) }"""
    before = parse(text, 13)
    model = ir.from_proto(before)
    assert SplitPass("wrong-order", frozenset({Role.CONCAT}), wrong_order)(model).modified
    with pytest.raises(AssertionError):
        assert_equal(before, ir.to_proto(model), random_feeds(before.graph))


def test_a_removed_check_is_caught() -> None:
    text = "g (float[N] x) => (float[M] y) <int64[1] s = {4}> { a = Split<axis = 0>(x, s) y = Relu(a) }"
    before = parse(text)
    after = parse("g (float[N] x) => (float[M] y) { y = Relu(x) }")
    assert_equal(before, after, random_feeds(before.graph))
    with pytest.raises(AssertionError, match="only one of them fails"):
        assert_equal(before, after, random_feeds(before.graph, N=5))


@pytest.mark.parametrize(
    "other",
    [
        np.zeros(2, np.float64),
        np.zeros(3, np.float32),
        np.zeros((1, 2), np.float32),
        np.array([0, -0.0], np.float32),
    ],
)
def test_the_comparison_sees_types_shapes_and_bits(other: np.ndarray[Any, Any]) -> None:
    same = np.zeros(2, np.float32)
    assert difference({"y": same}, {"y": same.copy()}) is None
    assert difference({"y": same}, {"y": other}) is not None
    assert difference({"y": [same]}, {"y": [same, same]}) is not None
    assert difference({"y": same}, {"z": same}) is not None


# How the work grows


def chain(links: int) -> onnx.ModelProto:
    """Make a model that splits and concatenates, again and again."""
    nodes, value = [], "x"
    for index in range(links):
        parts = [f"p{index}_{part}" for part in range(3)]
        nodes.append(helper.make_node("Split", [value], parts, axis=0))
        nodes.append(helper.make_node("Concat", parts, [f"c{index}"], axis=0))
        value = f"c{index}"
        if index % 3 == 0:
            nodes.append(helper.make_node("Relu", [value], [f"r{index}"]))
            value = f"r{index}"
    return _model(nodes, [value])


def nest(links: int) -> onnx.ModelProto:
    """Make a model of splits of parts of parts."""
    size, nodes, value, ends = links + 1, [], "x", []
    for index in range(links):
        nodes.append(
            helper.make_node("Split", [value], [f"a{index}", f"b{index}"], axis=0, split=[1, size - 1])
        )
        value, size = f"b{index}", size - 1
        ends.append(f"a{index}")
    return _model(nodes, [*ends, value], links + 1, opset=11)


def fan(links: int) -> onnx.ModelProto:
    """Make a model of many slices of one tensor."""
    nodes = [
        helper.make_node("Slice", ["x"], [f"s{index}"], axes=[0], starts=[index], ends=[index + 1])
        for index in range(links)
    ]
    return _model(nodes, [f"s{index}" for index in range(links)], links, opset=9)


def wide(links: int) -> onnx.ModelProto:
    """Make a model that takes many parts together again."""
    parts = [f"p{index}" for index in range(links)]
    nodes = [
        helper.make_node("Split", ["x"], parts, axis=0),
        helper.make_node("Concat", parts, ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return _model(nodes, ["y"], links)


def _model(nodes: list[onnx.NodeProto], ends: list[str], size: int = 6, opset: int = 13) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ends],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def looks(model: onnx.ModelProto) -> int:
    """Return how often a rewrite has looked at a node until nothing was left to do."""
    edited = ir.from_proto(model)
    AnnotateInferredPass()(edited)
    editor = OnnxEditor(edited)
    editor.run([row.make_pass() for row in REWRITES.values() if row.default])
    assert editor.changes
    return editor.visits


@pytest.mark.parametrize("make", [chain, nest, fan, wide])
def test_the_work_grows_with_the_size_of_the_model(make: Any) -> None:
    small, large = looks(make(20)), looks(make(200))
    assert large <= 12 * small, f"{small} looks at 20 links, {large} at 200"


@pytest.mark.parametrize("make", [chain, nest, fan, wide])
def test_large_models_are_simplified_to_little(make: Any) -> None:
    model = make(60)
    found = simplify_with_report(model)
    assert found.nodes_after <= (20 if make is chain else 1)
    assert_equal(model, found.model, random_feeds(model.graph))


# Kinds of models


def test_every_kind_of_model_comes_back_as_its_kind(tmp_path: Path) -> None:
    proto = parse(BOTH, 13)
    splitops.save(proto, tmp_path / "model.onnx")
    assert isinstance(simplify(tmp_path / "model.onnx"), onnx.ModelProto)
    assert isinstance(simplify(str(tmp_path / "model.onnx")), onnx.ModelProto)
    given = ir.from_proto(proto)
    found = simplify_with_report(given)
    assert isinstance(found.model, ir.Model)
    assert len(given.graph) == 5
    assert len(found.model.graph) == 3


def test_the_report_says_what_where_and_why() -> None:
    found = simplify_with_report(parse(BOTH, 13))
    change = next(change for change in found.changes if change.rewrite == "remove-unused-parts")
    assert change.as_dict() == {
        "rewrite": "remove-unused-parts",
        "before": "Split-13(axis=1, 3 outputs)",
        "after": "Slice(axis=1, 2:4)",
        "reason": "one part is read",
        "where": {"node": "Split -> d"},
    }
    assert str(found).startswith("5 nodes -> 3:\n  node ")


def test_a_model_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 20)
    (tmp_path / "broken.xml").write_text("<net>")
    for name in ("broken.onnx", "broken.xml", "missing.onnx", "model.txt"):
        with pytest.raises(ModelError):
            simplify_with_report(tmp_path / name)
    with pytest.raises(ModelError):
        simplify_with_report(42)  # type: ignore[arg-type]


# The command


def test_the_command(tmp_path: Path) -> None:
    splitops.save(parse(BOTH, 13), tmp_path / "model.onnx")
    out = tmp_path / "simple.onnx"
    result = CliRunner().invoke(command, [str(tmp_path / "model.onnx"), "-o", str(out), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["nodes_before"], report["nodes_after"]) == (5, 3)
    assert {change["rewrite"] for change in report["changes"]} == {
        "cancel-split-concat",
        "remove-unused-parts",
    }
    assert operators(onnx.load(out)) == ["Relu", "Slice", "Relu"]
    result = CliRunner().invoke(command, [str(tmp_path / "model.onnx"), "--rewrite", "remove-unused-parts"])
    assert "5 nodes, now 5." in result.output
    assert "cancel-split-concat" not in result.output
    assert "Nothing to simplify." in CliRunner().invoke(command, [str(out)]).output


def test_the_command_lists_the_rewrites() -> None:
    result = CliRunner().invoke(command, ["--list", "--json"])
    assert [row["name"] for row in json.loads(result.output)["rewrites"]] == list(REWRITES)
    assert all(name in CliRunner().invoke(command, ["--list"]).output for name in REWRITES)


def test_wrong_usage_of_the_command(tmp_path: Path) -> None:
    assert CliRunner().invoke(command, []).exit_code == 2
    assert CliRunner().invoke(command, ["model.onnx", "--rewrite", "split-cat"]).exit_code == 2
    assert CliRunner().invoke(command, ["model.onnx", "--allow", "speed"]).exit_code == 2


def test_a_bad_model_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 20)
    done = subprocess.run(
        [sys.executable, "-m", "splitops", "simplify", "broken.onnx", "-o", "out.onnx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "this is not an ONNX model" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broken.onnx"]


# The page


def test_the_page_is_made_of_the_registry() -> None:
    module = script("dev/pages/simplify")
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.page(text) == text
    assert all(f"`{name}`" in module.rewrites() for name in REWRITES)


def test_the_examples_of_the_page() -> None:
    import doctest

    page = Path(__file__).parents[2] / "docs" / "simplify.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 5
    assert not failed


def test_numbers_stay_as_they_are() -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, -1e-45], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Split", ["c"], ["a", "b"], axis=0),
            helper.make_node("Concat", ["b", "a"], ["y"], axis=0),
        ],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])],
        [numpy_helper.from_array(values, "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = simplify_with_report(model)
    assert found.counts["fold-constants"] == 1
    assert_equal(model, found.model, {})


def test_the_command_takes_what_is_allowed(tmp_path: Path) -> None:
    model = parse(
        """g (float[5, 2] x) => (float[5, 1] a, float[5, 1] b) <float[2, 2] w = {1, 2, 3, 4}> {
        m = MatMul(x, w) a, b = Split<axis = 1, num_outputs = 2>(m) }"""
    )
    onnx.save(model, tmp_path / "model.onnx")
    for given, expected in (([], ["MatMul", "Split"]), (["--allow", "numerics"], ["MatMul", "MatMul"])):
        out = tmp_path / "out.onnx"
        result = CliRunner().invoke(command, [str(tmp_path / "model.onnx"), "-o", str(out), *given])
        assert result.exit_code == 0
        assert operators(onnx.load(out)) == expected
