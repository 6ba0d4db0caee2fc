"""Splits of products with constant weights: of integers always, of floats where it is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from simplify_helpers import (
    ONNXRUNTIME,
    assert_valid,
    in_onnxruntime,
    operators,
    parse,
    random_feeds,
    simplified,
)

import splitops
from splitops.errors import ModelError
from splitops.models.formats import openvino as ov
from splitops.models.simplify import Simplification, simplify, simplify_with_report
from splitops.spec.sizes.dims import UNKNOWN, Shape


def made(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    weights: Mapping[str, Sequence[int]],
    *,
    kind: type = np.float32,
    opset: int = 18,
) -> ModelProto:
    """Make a model of nodes that read x and random weights; each value ``y...`` is an output."""
    random = np.random.default_rng(0)
    divisor = 7 if kind is np.float32 else 1
    arrays = {name: (random.integers(-9, 9, size) / divisor).astype(kind) for name, size in weights.items()}
    arrays |= {f"i{at}": np.array(at) for at in range(3)}
    arrays |= {"heads": np.array([2, 5, 3, 4]), "lengths": np.array([1, 2, 9])}
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    outputs = [
        helper.make_tensor_value_info(name, element, None)
        for node in nodes
        for name in node.output
        if name[0] == "y"
    ]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", element, shape)],
        outputs,
        [tensor for tensor in held if tensor.name in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)  # shapes of the outputs


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def split(data: str, axis: int, outputs: str = "y0 y1 y2") -> onnx.NodeProto:
    return node("Split", data, outputs, axis=axis, num_outputs=len(outputs.split()))


MATMUL = [node("MatMul", "x w", "m"), split("m", -1)]
PACKED = [
    node("MatMul", "x w", "m"),
    node("Add", "b m", "s"),
    node("Reshape", "s heads", "r"),
    node("Transpose", "r", "t", perm=[2, 0, 1, 3]),
    *(node("Gather", f"t i{at}", f"y{at}", axis=0) for at in range(3)),
]
CASES: dict[str, tuple[list[onnx.NodeProto], list[int], dict[str, list[int]], list[str]]] = {
    "MatMul": (MATMUL, [2, 5, 7], {"w": [7, 12]}, ["MatMul"] * 3),
    "MatMul of a stack": (MATMUL, [2, 5, 7], {"w": [2, 7, 12]}, ["MatMul"] * 3),
    "by lengths": (
        [node("MatMul", "x w", "m"), node("Split", "m lengths", "y0 y1 y2", axis=1)],
        [5, 7],
        {"w": [7, 12]},
        ["MatMul"] * 3,
    ),
    "a bias": (
        [node("MatMul", "x w", "m"), node("Add", "m b", "s"), split("s", 1)],
        [5, 7],
        {"w": [7, 12], "b": [12]},
        ["MatMul", "Add"] * 3,
    ),
    "one number for all": (
        [node("MatMul", "x w", "m"), node("Add", "m b", "s"), split("s", 1)],
        [5, 7],
        {"w": [7, 12], "b": [5, 1]},
        ["MatMul", "Add"] * 3,
    ),
    "Gemm": ([node("Gemm", "x w", "m"), split("m", 1)], [5, 7], {"w": [7, 12]}, ["Gemm"] * 3),
    "Gemm turned": (
        [node("Gemm", "x w b", "m", transB=1, alpha=0.5, beta=2.0), split("m", 1)],
        [5, 7],
        {"w": [12, 7], "b": [12]},
        ["Gemm"] * 3,
    ),
    "Gemm with a column": (
        [node("Gemm", "x w b", "m"), split("m", 1)],
        [5, 7],
        {"w": [7, 12], "b": [5, 1]},
        ["Gemm"] * 3,
    ),
    "Conv": (
        [node("Conv", "x w b", "m", pads=[1, 1, 1, 1]), split("m", 1)],
        [2, 4, 5, 5],
        {"w": [12, 4, 3, 3], "b": [12]},
        ["Conv"] * 3,
    ),
    "Conv without bias": (
        [node("Conv", "x w", "m"), split("m", 1)],
        [2, 4, 5],
        {"w": [12, 4, 3]},
        ["Conv"] * 3,
    ),
    "packed": (PACKED, [2, 5, 7], {"w": [7, 12], "b": [12]}, ["MatMul", "Add"] * 3),
}


def agree(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return list(left) == list(right) and all(
        left[name].shape == right[name].shape and np.allclose(left[name], right[name], rtol=1e-5, atol=1e-5)
        for name in left
    )


def allowed(model: ModelProto, rewrites: Sequence[str] | None = None) -> Simplification:
    """Simplify a model where the bits of floats may change, and prove the values alike."""
    content = model.SerializeToString(deterministic=True)
    found = simplify_with_report(model, rewrites, allow=["numerics"])
    assert model.SerializeToString(deterministic=True) == content
    assert_valid(model, found.model)
    feeds = {name: array / np.float32(9) for name, array in random_feeds(model.graph, N=3).items()}
    assert agree(splitops.run(model, feeds), splitops.run(found.model, feeds))
    (kind, left), (_, right) = in_onnxruntime(model, feeds), in_onnxruntime(found.model, feeds)
    assert kind == ("outputs" if ONNXRUNTIME else "absent")
    assert not ONNXRUNTIME or agree(left, right)
    assert not simplify_with_report(found.model, rewrites, allow=["numerics"]).changes
    return found


def test_values_that_differ_do_not_agree() -> None:
    one = {"y": np.ones(2)}
    assert not agree(one, {"y": np.ones(2) + 1e-3})
    assert not agree(one, {"y": np.ones((1, 2))})
    assert not agree(one, {"z": np.ones(2)})


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_divided(name: str) -> None:
    nodes, shape, weights, expected = CASES[name]
    found = allowed(made(nodes, shape, weights))
    assert [operator for operator in operators(found.model) if operator in expected] == expected
    assert not {"Split", "Gather"} & set(operators(found.model))
    assert found.counts["split-weights"] == 1


def test_the_weights_of_what_is_moved_are_divided_without_other_rewrites() -> None:
    found = allowed(made(*CASES["packed"][:3]), ["split-weights"])
    assert sorted(operators(found.model)) == sorted(CASES["packed"][3])


@pytest.mark.parametrize("name", ["MatMul", "Conv", "Gemm", "packed"])
def test_floats_are_left_where_nothing_is_allowed(name: str) -> None:
    nodes, shape, weights, _ = CASES[name]
    model = made(nodes, shape, weights)
    assert "split-weights" not in simplify_with_report(model).counts
    assert not simplify_with_report(model, ["split-weights"]).changes


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["MatMul", "a bias", "packed"])
def test_the_weights_of_integers_are_always_divided(name: str, kind: type) -> None:
    nodes, shape, weights, expected = CASES[name]
    found = simplified(made(nodes, shape, weights, kind=kind))
    assert [operator for operator in operators(found.model) if operator in expected] == expected


@pytest.mark.parametrize("name", ["MatMul", "a bias"])
def test_the_weights_behind_dynamic_axes_are_divided(name: str) -> None:
    nodes, shape, weights, expected = CASES[name]
    assert operators(allowed(made(nodes, ["N", *shape[1:]], weights)).model) == expected


def test_parts_that_nobody_reads_are_not_computed() -> None:
    nodes = [
        node("MatMul", "x w", "m"),
        split("m", 1, "a b c"),
        node("Neg", "b", "y0"),
        node("Neg", "a", "y1"),
    ]
    found = allowed(made(nodes, [5, 7], {"w": [7, 12]}))
    assert operators(found.model).count("MatMul") == 2
    assert len(found.model.graph.initializer) == 2


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("MatMul", "x w", "m"), split("m", 0)], {"w": [7, 12]}),
        ([node("MatMul", "x w", "y"), split("y", 1)], {"w": [7, 12]}),
        ([*MATMUL, node("Neg", "m", "y3")], {"w": [7, 12]}),
        ([*MATMUL, node("Neg", "w", "y3")], {"w": [7, 12]}),
        ([node("Neg", "w", "v"), node("MatMul", "x v", "m"), split("m", 1)], {"w": [7, 12]}),
        ([node("MatMul", "x w", "m"), node("Add", "m m", "s"), split("s", 1)], {"w": [7, 12]}),
        (
            [node("MatMul", "x w", "m"), node("Add", "m b", "s"), split("s", 2)],
            {"w": [7, 12], "b": [2, 6, 12]},
        ),
        ([node("Gemm", "v w v", "m"), split("m", 1)], {"w": [6, 6]}),
        ([node("Relu", "x", "m"), split("m", 0)], {}),
        ([node("MatMul", "v w", "m"), split("m", 0)], {"v": [7], "w": [7, 12]}),
    ],
)
def test_other_products_stay(nodes: list[onnx.NodeProto], weights: dict[str, list[int]]) -> None:
    square = node("MatMul", "x x", "v") if "v" in nodes[0].input and nodes[0].op_type == "Gemm" else None
    model = made([square, *nodes] if square else nodes, [6, 6] if square else [6, 7], weights)
    assert "split-weights" not in simplify_with_report(model, allow=["numerics"]).counts


def test_weights_that_are_not_of_the_size_that_a_model_states_stay() -> None:
    text = """g (float[M] x, int64[K] k) => (float[1, 2, 9] y, float[1, 2, 9] z)
        <float[2, 1, 1] w = {1, 2}> {
        r = Reshape(x, k) m = Conv(r, w)
        p, q = Split<axis = 1, num_outputs = 2>(m) y = Relu(p) z = Relu(q) }"""
    model = parse(text)
    model.graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, [1, 4, 9]))
    assert not simplify_with_report(model, allow=["numerics"]).changes


def test_a_convolution_of_groups_stays() -> None:
    nodes = [node("Conv", "x w", "m", group=2), split("m", 1)]
    assert not allowed(made(nodes, [2, 4, 5], {"w": [12, 2, 3]})).changes


def test_weights_that_a_caller_can_replace_stay() -> None:
    model = made(MATMUL, [5, 7], {"w": [7, 12]})
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [7, 12]))
    assert not simplify_with_report(model, allow=["numerics"]).changes


def test_an_allowance_that_does_not_exist() -> None:
    model = made(MATMUL, [5, 7], {"w": [7, 12]})
    with pytest.raises(ModelError, match="unknown allowance 'speed': use numerics"):
        simplify(model, allow=["speed"])
    assert simplify_with_report(model, allow="numerics").changes


# OpenVINO


def layer_model(*, kind: str, bias: bool) -> ov.OpenVINOModel:
    builder, random = ov.Builder("g", version=11), np.random.default_rng(0)

    def constant(*shape: int) -> ov.Output:
        return builder.const(random.random(shape, dtype=np.float32))

    if kind == "Convolution":
        data = builder.parameter("x", "f32", "2,4,5,5")
        settings = {
            "strides": "1,1",
            "pads_begin": "0,0",
            "pads_end": "0,0",
            "dilations": "1,1",
            "auto_pad": "explicit",
        }
        shape: Shape = (2, 12, 3, 3)
        value = builder.layer("Convolution", [data, constant(12, 4, 3, 3)], settings, shapes=[shape])[0]
        added = (1, 12, 1, 1)
    else:
        data = builder.parameter("x", "f32", "?,5,7")
        turned = kind == "turned"
        weights = constant(12, 7) if turned else constant(7, 12)
        settings = {"transpose_a": "false", "transpose_b": str(turned).lower()}
        shape, added = (UNKNOWN, 5, 12), (1, 1, 12)
        value = builder.layer("MatMul", [data, weights], settings, shapes=[shape])[0]
    if bias:
        value = builder.layer("Add", [value, constant(*added)], {"auto_broadcast": "numpy"}, shapes=[shape])[
            0
        ]
    axis = builder.const(np.array(1 if kind == "Convolution" else -1))
    for index, part in enumerate(builder.layer("Split", [value, axis], {"num_splits": 3}, outputs=3)):
        builder.result(builder.layer("Relu", [part])[0], f"y{index}")
    return builder.model()


@pytest.mark.parametrize("kind", ["Convolution", "MatMul", "turned"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_weights_of_layers_are_divided(kind: str, bias: bool) -> None:
    pytest.importorskip("openvino")
    model = layer_model(kind=kind, bias=bias)
    assert not simplify_with_report(model).changes
    found = simplify_with_report(model, allow=["numerics"])
    assert found.counts == {"split-weights": 1}
    again = ov.from_bytes(*ov.to_bytes(found.model))
    types = [layer.type for layer in again.graph.order if layer.type not in ("Parameter", "Const", "Result")]
    product = "Convolution" if kind == "Convolution" else "MatMul"
    assert sorted(types) == sorted([product, "Relu", *["Add"] * bias] * 3)
    shape = (2, 4, 5, 5) if kind == "Convolution" else (2, 5, 7)
    feeds = {"x": np.random.default_rng(1).random(shape, dtype=np.float32)}
    assert agree(splitops.run(model, feeds), splitops.run(again, feeds))


@pytest.mark.parametrize(("axis", "added"), [(0, None), (1, "pdpd")])
def test_other_layers_stay(axis: int, added: str | None) -> None:
    """Images are not divided by weights, and a sum that PaddlePaddle broadcasts is not ours."""
    builder, shape = ov.Builder(), (2, 4, 5, 5)
    data, ones = builder.parameter("x", "f32", shape), builder.const(np.ones((4, 4, 1, 1), np.float32))
    settings = {"strides": "1,1", "pads_begin": "0,0", "pads_end": "0,0", "dilations": "1,1"}
    (value,) = builder.layer("Convolution", [data, ones], settings, shapes=[shape])
    if added is not None:
        addend = builder.const(np.ones(shape, np.float32))
        (value,) = builder.layer("Add", [value, addend], {"auto_broadcast": added}, shapes=[shape])
    for index, part in enumerate(
        builder.layer("Split", [value, builder.const(np.array(axis))], {"num_splits": 2}, outputs=2)
    ):
        builder.result(builder.layer("Relu", [part])[0], f"y{index}")
    assert not simplify_with_report(builder.model(), allow=["numerics"]).changes


def test_rows_of_a_product_of_layers_stay() -> None:
    builder = ov.Builder()
    inputs = [builder.parameter("x", "f32", (4, 6)), builder.const(np.ones((6, 8), np.float32))]
    settings = {"transpose_a": "false", "transpose_b": "false"}
    (value,) = builder.layer("MatMul", inputs, settings, shapes=[(4, 8)])
    rows = builder.layer("Split", [value, builder.const(np.array(0))], {"num_splits": 2}, outputs=2)
    for index, part in enumerate(rows):
        builder.result(builder.layer("Relu", [part])[0], f"y{index}")
    assert not simplify_with_report(builder.model(), allow=["numerics"]).changes


@pytest.mark.parametrize("move", ["Reshape", "Transpose"])
def test_the_weights_of_an_output_of_the_model_stay(move: str) -> None:
    shape = "s = Constant<value_ints = [6, 2]>() y = Reshape(m, s)"
    moved = shape if move == "Reshape" else "y = Transpose<perm = [1, 0]>(m)"
    model = parse(f"""g (int32[2, 4] x) => (int32[6, 2] y, int32[3, 2] a, int32[3, 2] b)
        <int32[4, 6] w = {{{", ".join(map(str, range(24)))}}}>
        {{ m = MatMul(x, w) {moved} a, b = Split<axis = 0, num_outputs = 2>(y) }}""")
    feeds = {"x": np.arange(8, dtype=np.int32).reshape(2, 4)}
    found = splitops.run(simplify(model), feeds, engine="reference")
    for name, wanted in splitops.run(model, feeds, engine="reference").items():
        np.testing.assert_array_equal(found[name], wanted)
