"""Splits of constants, shapes and initializers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from simplify_helpers import assert_equal, operators, parse, random_feeds, simplified

import splitops
from splitops.models.simplify import simplify_with_report


def test_a_constant_is_folded() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) {
        c = Constant<value = float[4] {1, 2, 3, 4}>()
        a, b = Split<axis = 0>(c) y = Add(x, a) z = Add(x, b) }"""
    found = simplified(parse(text, 13))
    assert operators(found.model) == ["Add", "Add"]
    assert [tensor.name for tensor in found.model.graph.initializer] == ["a", "b"]
    assert found.counts["fold-constants"] == 1


@pytest.mark.parametrize(
    "number",
    [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.STRING, TensorProto.INT64],
)
def test_constants_of_every_kind(number: int) -> None:
    if number == TensorProto.STRING:
        values = np.array(["a", "b", "c", "d"], object)
    else:
        values = np.arange(4).astype(helper.tensor_dtype_to_np_dtype(number))
    graph = helper.make_graph(
        [helper.make_node("Split", ["c"], ["y", "z"], axis=0)],
        "g",
        [],
        [helper.make_tensor_value_info(name, number, [2]) for name in "yz"],
        [numpy_helper.from_array(values, "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert operators(simplified(model).model) == []


def test_an_overridable_initializer_stays() -> None:
    text = "g (float[4] c = {1, 2, 3, 4}) => (float[2] y, float[2] z) { y, z = Split<axis = 0>(c) }"
    model = parse(text, 13)
    found = simplified(model)
    assert not found.changes
    assert_equal(model, found.model, {"c": np.zeros(4, np.float32)})


def test_known_sizes_are_folded_through_a_split() -> None:
    text = """g (float[2, 6, N] x) => (float[6, 2, N] y) {
        s = Shape(x) a, b, c = Split<axis = 0>(s) t = Concat<axis = 0>(b, a, c) y = Reshape(x, t) }"""
    found = simplified(parse(text, 13))
    assert found.counts["fold-constants"] == 1
    concat = next(node for node in found.model.graph.node if node.op_type == "Concat")
    assert list(concat.input[:2]) == ["b", "a"]
    assert {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in found.model.graph.initializer}[
        "b"
    ] == [6]


def test_sizes_computed_from_a_shape_are_folded() -> None:
    text = """g (float[2, 6] x) => (float[3] y, float[4] z) <int64[1] one = {1}> {
        s = Shape(x) a, b = Split<axis = 0>(s) c = Add(a, one) d = Mul(a, a) e = Concat<axis = 0>(c, d)
        f, h = Split<axis = 0>(e) v = ConstantOfShape(f) w = ConstantOfShape(h) y = Neg(v) z = Neg(w) }"""
    found = simplified(parse(text, 13))
    assert "Split" not in operators(found.model)


def test_large_parts_are_not_folded() -> None:
    weights = np.zeros((2, 1000), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Split", ["w"], ["a", "b"], axis=0),
            helper.make_node("Add", ["x", "a"], ["y"]),
            helper.make_node("Add", ["x", "b"], ["z"]),
            helper.make_node("Neg", ["w"], ["v"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1000])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yzv"],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert not simplify_with_report(model, limit=3999).changes
    assert simplify_with_report(model, limit=4000).counts == {"fold-constants": 1, "remove-unused-parts": 1}


def fused(rows: int = 48, hidden: int = 512) -> onnx.ModelProto:
    """Make a model whose q, k and v projections have fused weights."""
    random = np.random.default_rng(0)
    weights = random.integers(-4, 4, (rows * 3, hidden)).astype(np.float32)
    nodes = [helper.make_node("Split", ["w"], ["wq", "wk", "wv"], axis=0)]
    for name in "qkv":
        nodes += [
            helper.make_node("Transpose", [f"w{name}"], [f"t{name}"]),
            helper.make_node("MatMul", ["x", f"t{name}"], [name]),
        ]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, hidden])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, rows]) for name in "qkv"],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_fused_weights_become_three_initializers() -> None:
    found = simplified(fused())
    assert found.counts == {"split-initializers": 1}
    assert [(tensor.name, list(tensor.dims)) for tensor in found.model.graph.initializer] == [
        (f"w{name}", [48, 512]) for name in "qkv"
    ]


def test_a_part_of_weights_that_nobody_reads_is_not_kept() -> None:
    model = fused()
    del model.graph.node[-2:], model.graph.output[-1]
    found = simplified(model, ["split-initializers"])
    assert [tensor.name for tensor in found.model.graph.initializer] == ["wq", "wk"]


def test_weights_that_others_read_stay_fused() -> None:
    model = fused()
    model.graph.node.append(helper.make_node("Neg", ["w"], ["n"]))
    model.graph.output.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, [144, 512]))
    assert not simplified(model).changes


def test_weights_in_another_file(tmp_path: Path) -> None:
    model = fused()
    onnx.save_model(
        onnx.ModelProto.FromString(model.SerializeToString()),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    found = simplify_with_report(tmp_path / "model.onnx")
    assert found.counts == {"split-initializers": 1}
    found.save(tmp_path / "simple.onnx")
    feeds = random_feeds(model.graph)
    for name, array in splitops.run(model, feeds, engine="reference").items():
        np.testing.assert_array_equal(
            splitops.run(tmp_path / "simple.onnx", feeds, engine="reference")[name], array
        )


def test_weights_of_an_ir_model_stay_in_their_file(tmp_path: Path) -> None:
    model = fused()
    onnx.save_model(
        onnx.ModelProto.FromString(model.SerializeToString()),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    loaded = ir.load(tmp_path / "model.onnx")
    found = simplify_with_report(loaded)
    assert isinstance(found.model, ir.Model)
    assert found.model is not loaded
    assert list(loaded.graph.initializers) == ["w"]
    parts = [found.model.graph.initializers[f"w{name}"].const_value for name in "qkv"]
    assert all(isinstance(part, ir.ExternalTensor) for part in parts)
    whole = loaded.graph.initializers["w"].const_value
    assert whole is not None
    np.testing.assert_array_equal(
        np.concatenate([part.numpy() for part in parts if part is not None]), whole.numpy()
    )


def test_an_initializer_in_another_file_that_lies_in_pieces_stays(tmp_path: Path) -> None:
    model = fused()
    model.graph.node[0].attribute[0].i = 1
    model.graph.initializer[0].dims[:] = [16, 4608]
    for index in (1, 3, 5):
        model.graph.node[index].CopyFrom(
            helper.make_node("Neg", list(model.graph.node[index].input), list(model.graph.node[index].output))
        )
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 16
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[1].dim_value = 1536
    onnx.save_model(
        onnx.ModelProto.FromString(model.SerializeToString()),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert not simplify_with_report(ir.load(tmp_path / "model.onnx")).changes
    assert simplified(model).counts == {"split-initializers": 1}
