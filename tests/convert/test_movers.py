"""Each mover is one row: what a row covers runs, infers and converts in both directions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from conversion_results import equal
from onnx import ModelProto, TensorProto, helper, numpy_helper

import splitops
from splitops.errors import ModelError
from splitops.models.convert import convert, convert_with_report
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops.models.ops import BY_LAYER, BY_NODE, OPERATORS
from splitops.spec import element_type_of

_BOUNDS: list[dict[str, list[int]]] = [
    {"starts": [1], "ends": [-1]},
    {"starts": [0, 2], "ends": [2, 99]},
    {"starts": [-2], "ends": [99], "axes": [-1]},
    {"starts": [1, 0], "ends": [5, 1], "axes": [1, 0]},
]
_STEPPED: list[dict[str, list[int]]] = [
    {"starts": [0], "ends": [99], "axes": [1], "steps": [2]},
    {"starts": [-1], "ends": [-99], "axes": [1], "steps": [-1]},
    {"starts": [4, 0], "ends": [0, 3], "axes": [1, 0], "steps": [-2, 2]},
]


def _sliced_parts(opset: int, bounds: dict[str, list[int]], dtype: Any = np.int64) -> ModelProto:
    """A split, one part of which is sliced with constant bounds."""
    names = ("starts", "ends", "axes", "steps")
    initializers: list[TensorProto] = []
    if opset < 10:
        node = helper.make_node("Slice", ["a"], ["y"], name="slice", **bounds)
    else:
        initializers = [numpy_helper.from_array(np.array(bounds[n], dtype), n) for n in names if n in bounds]
        inputs = ["a", *(name if name in bounds else "" for name in names)]
        node = helper.make_node("Slice", inputs, ["y"], name="slice")
    graph = helper.make_graph(
        [helper.make_node("Split", ["x"], ["a", "b"], axis=0), node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yb"],
        initializer=initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


_CASES = [
    *itertools.product((7, 9, 11, 13), _BOUNDS, [np.int64]),
    *itertools.product((11, 13), _STEPPED, [np.int64, np.int32]),
]


@pytest.mark.parametrize(("opset", "bounds", "dtype"), _CASES, ids=str)
def test_slices_go_to_openvino_and_back(opset: int, bounds: dict[str, list[int]], dtype: Any) -> None:
    model = _sliced_parts(opset, bounds, dtype)
    feeds = {"x": np.arange(36, dtype=np.float32).reshape(6, 6)}
    expected = list(splitops.run(model, feeds, engine="reference").values())
    there = convert_with_report(model, to="openvino")
    assert isinstance(there.model, OpenVINOModel), str(there)
    (layer,) = there.model.graph.list_layers("Slice")
    assert layer.version == "opset8"
    assert layer.name == "slice"
    assert equal(list(splitops.run(there.model, feeds, engine="reference").values()), expected)
    back = convert_with_report(there.model, to="onnx:13")
    onnx.checker.check_model(back.model, full_check=True)
    assert equal(list(splitops.run(back.model, feeds, engine="reference").values()), expected)


def test_a_slice_by_computed_bounds_states_its_steps() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[8] x, int64[1] start, int64[1] end) => (float[n] y, float[m] b) {
            a, b = Split(x)
            y = Slice(a, start, end)
        }""")
    feeds = {"x": np.arange(8, dtype=np.float32), "start": np.array([1]), "end": np.array([3])}
    there = convert_with_report(model, to="openvino")
    (layer,) = there.model.graph.list_layers("Slice")
    assert len(layer.inputs) == 4
    assert equal(
        list(splitops.run(there.model, feeds, engine="reference").values()),
        [np.array([1, 2], np.float32), feeds["x"][4:]],
    )


@pytest.mark.parametrize(
    ("opset", "text", "operator"),
    [
        # An unknown number of axes.
        (
            13,
            """g (float[8] x, int64[k] start, int64[k] end) => (float[n] y, float[m] b)
            { a, b = Split(x)  y = Slice(a, start, end) }""",
            "Slice",
        ),
        # Strings.
        (
            13,
            """g (string[8] x) => (string[n] y, string[m] b) <int64[1] start = {1}, int64[1] end = {2}>
            { a, b = Split(x)  y = Slice(a, start, end) }""",
            "Slice",
        ),
        # The broadcasting of its first versions.
        (
            6,
            """g (float[8] x, float[1] z) => (float[n] y, float[m] b)
            { a, b = Split(x)  y = Add<broadcast = 1, axis = 0>(a, z) }""",
            "Add",
        ),
    ],
)
def test_what_no_layer_states_is_left_to_openvinos_converter(
    opset: int, text: str, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splitops.models.convert import onnx_to_openvino

    monkeypatch.setattr(onnx_to_openvino, "is_installed", lambda name: False)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    report = convert_with_report(model, to="openvino")
    with pytest.raises(ModelError, match=f"needed for {operator}"):
        _ = report.model


@pytest.mark.parametrize("only", ["Identity", "Concat<axis = 0>"])
def test_a_default_that_a_caller_can_replace_is_the_value_in_openvino(only: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[4] x, float[4] w = {{1, 2, 3, 4}}) => (float[a] p, float[b] q) {{
            z = {only}(w) p, q = Split(z) }}""")
    converted = convert(model, to="openvino")
    assert [layer.name for layer in converted.graph.list_layers("Parameter")] == ["x"]
    feeds = {"x": np.zeros(4, np.float32)}
    found = splitops.run(converted, feeds, engine="reference").values()
    assert [part.tolist() for part in found] == [[1, 2], [3, 4]]


SPLIT_BESIDE = """<ir_version: 8, opset_import: ["": 13, "own": 1]>
    g ({}) => (float[a] p, float[b] q, {} z) {{ p, q = Split(x) z = {} }}"""


@pytest.mark.parametrize(
    ("given", "kind", "node", "words"),
    [
        ("float[4] x", "float", "own.g(x)", "needed for g"),
        ("float[4] x, complex64[4] c", "complex64", "Identity(c)", "input 'c' has element type complex64"),
        (
            "float[4] x",
            "complex64",
            "Constant<value = complex64[1] {1, 2}>()",
            "constant 'z' has element type complex64",
        ),
        ("float[4] x", "float[2]", "Constant<sparse_value = float[2] {1, 2}>()", "cannot read constant 'z'"),
        ("float[4] x", "float", "Concat<axis = 0>(x, , x)", "a required input is absent"),
        ("float[4] x, int32[4] c", "int32[4]", "Sigmoid(c)", "needed for Sigmoid"),
        ("float[4] x", "float[4]", "LogSoftmax(x, x)", "needed for LogSoftmax"),
    ],
)
def test_what_cannot_be_written_for_openvino(
    given: str, kind: str, node: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splitops.models.convert import onnx_to_openvino

    monkeypatch.setattr(onnx_to_openvino, "is_installed", lambda name: False)
    model = onnx.parser.parse_model(SPLIT_BESIDE.format(given, kind, node))
    with pytest.raises(ModelError, match=words):
        convert(model, to="openvino")


Port = tuple[str, Any] | list[Any]
"""An input by element type and shape, or the numbers of a constant."""


def one_layer(
    type_: str,
    version: int,
    data: dict[str, Any],
    *ports: Port,
    outputs: int = 1,
    shapes: list[tuple[int, ...]] | None = None,
) -> OpenVINOModel:
    """A layer as a file may state it, whatever its text says."""
    builder = Builder()
    inputs = [
        builder.parameter(f"x{index}", *port) if isinstance(port, tuple) else builder.const(np.array(port[0]))
        for index, port in enumerate(ports)
    ]
    count = outputs if shapes is None else len(shapes)
    made = builder.layer(type_, inputs, data, outputs=count, version=f"opset{version}", shapes=shapes)
    for index, output in enumerate(made):
        builder.result(output, f"y{index}")
    return builder.model()


FLAT, OPEN, IMAGE, TWO = ("f32", "2,3"), ("f32", None), ("f32", "1,4,5,5"), ("i64", "2")
WEIGHTS = [
    [np.zeros((1, 4, 1), np.float32)],
    [np.zeros((1, 4, 1), np.float32)],
    [np.zeros((1, 4), np.float32)],
]
CELL: list[Any] = [("f32", "1,1,1")] * 3 + [("i64", "1"), *WEIGHTS]
BAD_LAYERS: list[tuple[OpenVINOModel, str]] = [
    (one_layer("Elu", 1, {}, FLAT), "has no attribute 'alpha'; it is required"),
    (one_layer("Elu", 1, {"alpha": "a"}, FLAT), "alpha = 'a', which ONNX cannot express"),
    (one_layer("Elu", 1, {"alpha": 1}, FLAT, [1.0]), "has 2 inputs; the maximum is 1"),
    (one_layer("Gelu", 7, {"approximation_mode": "other"}, FLAT), "'other'; supported: erf, tanh"),
    (one_layer("MVN", 6, {"eps": 1}, FLAT, [[1]]), "has no eps_mode"),
    (one_layer("MVN", 6, {"eps_mode": "inside_sqrt"}, FLAT, [[1]]), "eps = None"),
    (one_layer("MVN", 6, {"eps": 1}, FLAT), "does not match its specification"),
    (one_layer("LRN", 1, {"size": "x"}, FLAT, [[1]]), "size = 'x'"),
    (one_layer("LRN", 1, {"size": ""}, FLAT, [[1]]), "does not match its specification"),
    (one_layer("MaxPool", 1, {"strides": "2,2", "kernel": "2"}, IMAGE), "does not match its specification"),
    (
        one_layer("MaxPool", 1, {"strides": "0,0", "kernel": "2,2", "rounding_type": "ceil"}, IMAGE),
        "does not match its specification",
    ),
    (one_layer("ShuffleChannels", 1, {"axis": 1, "group": "1,2"}, IMAGE), "does not match its specification"),
    (one_layer("Tile", 1, {}, OPEN, [[1, 2]]), "the rank of an input of Tile layer"),
    (one_layer("ConvertLike", 1, {}, FLAT, ("u4", "2")), "from float32 to uint4, which is not the same"),
    (one_layer("Softmax", 2, {}, FLAT), "of opset2 cannot be converted to ONNX"),
    (
        one_layer("Split", 1, {"num_splits": "x"}, FLAT, [0], outputs=2),
        "num_splits = 'x' is not a 64-bit integer",
    ),
    (
        one_layer("Split", 1, {"num_splits": 2}, FLAT, ("i64", ()), outputs=2),
        "the axis is computed when the model",
    ),
    (
        one_layer("Einsum", 7, {"equation": "ij,jk->ik"}, FLAT, ("f32", "3,2"), shapes=[(2, 4)]),
        "the converted model would not be valid",
    ),
    (
        one_layer("LSTMSequence", 5, {"hidden_size": "1,2"}, *CELL, outputs=3),
        "does not match its specification",
    ),
]


@pytest.mark.parametrize(("model", "words"), BAD_LAYERS, ids=[words for _, words in BAD_LAYERS])
def test_layers_that_onnx_cannot_say_are_rejected(model: OpenVINOModel, words: str) -> None:
    with pytest.raises(splitops.SplitError) as caught:
        convert(model, to="onnx:13")
    assert words in str(caught.value)


def test_a_cell_that_states_no_clip_has_none() -> None:
    data = {"hidden_size": 1, "direction": "forward"}
    model = one_layer("LSTMSequence", 5, data, *CELL, shapes=[(1, 1, 1, 1), (1, 1, 1), (1, 1, 1)])
    (cell,) = [node for node in convert(model, to="onnx:14").graph.node if node.op_type == "LSTM"]
    assert "clip" not in [attribute.name for attribute in cell.attribute]


def test_equality_of_sizes_goes_to_onnx() -> None:
    builder = Builder()
    sizes = builder.parameter("sizes", "i64", (3,))
    (same,) = builder.layer(
        "Equal", [sizes, builder.const(np.array([-1]))], {"auto_broadcast": "numpy"}, element_type="boolean"
    )
    builder.result(same, "same")
    model = convert(builder.model(), to="onnx:13")
    onnx.checker.check_model(model, full_check=True)
    (found,) = splitops.run(model, {"sizes": np.array([2, -1, 3])}, engine="reference").values()
    assert found.tolist() == [False, True, False]


def _moved_layer(
    operator: str,
    x: np.ndarray[Any, Any],
    others: list[np.ndarray[Any, Any] | str],
    data: dict[str, Any],
    kind: str | None = None,
) -> OpenVINOModel:
    """A layer of constants, or of parameters whose shapes are given."""
    builder = Builder()
    inputs = [builder.parameter("x", element_type_of(x.dtype), x.shape)]
    for index, other in enumerate(others):
        inputs.append(
            builder.parameter(f"given{index}", "i64", other)
            if isinstance(other, str)
            else builder.const(other)
        )
    version = {"Gather": "opset8", "Slice": "opset8"}.get(operator, "opset1")
    (made,) = builder.layer(operator, inputs, data, version=version, element_type=kind)
    builder.result(made, "y")
    return builder.model()


_X = np.arange(24, dtype=np.float32).reshape(2, 1, 12)
_INTS = np.array


@pytest.mark.parametrize(
    ("operator", "x", "others", "data", "kind"),
    [
        ("Reshape", _X, [_INTS([0, -1])], {"special_zero": True}, None),
        ("Reshape", _X, [_INTS([4, 6], np.int32)], {"special_zero": False}, None),
        ("Reshape", _X[:0], [_INTS([3, 0])], {"special_zero": False}, None),
        ("Reshape", _X[:0], [_INTS([0, 5, -1])], {"special_zero": False}, None),
        ("Squeeze", _X, [_INTS([1])], {}, None),
        ("Squeeze", _X, [_INTS(-2)], {}, None),
        ("Squeeze", _X, [_INTS([1, 0])], {}, None),
        ("Squeeze", _X, [_INTS([2])], {}, None),
        ("Squeeze", _X, [np.empty(0, np.int64)], {}, None),
        ("Squeeze", _X, [], {}, None),
        ("Squeeze", _X.reshape(1, 24), [_INTS([0])], {}, None),
        ("Unsqueeze", _X, [_INTS([0, -1])], {}, None),
        ("Unsqueeze", _X, [_INTS(1)], {}, None),
        ("Transpose", _X, [_INTS([2, 0, 1])], {}, None),
        ("Transpose", _X, [np.empty(0, np.int64)], {}, None),
        ("Gather", _X, [_INTS([1, 0], np.uint8), _INTS(0)], {"batch_dims": 0}, None),
        ("Gather", _X, [_INTS([1, -1]), _INTS([2])], {"batch_dims": 0}, None),
        ("Slice", _X, [_INTS([1, 0]), _INTS([2, 1]), _INTS([1, 1])], {}, None),
        ("Convert", _X, [], {"destination_type": "f16"}, "f16"),
        ("Convert", _X, [], {"destination_type": "i64"}, "i64"),
    ],
)
def test_a_layer_gives_the_same_as_a_node(
    operator: str, x: np.ndarray[Any, Any], others: list[Any], data: dict[str, Any], kind: str | None
) -> None:
    model = _moved_layer(operator, x, others, data, kind)
    made = convert(model, to="onnx:18")
    onnx.checker.check_model(made, full_check=True)
    (expected,) = splitops.run(model, {"x": x}, engine="reference").values()
    assert equal(list(splitops.run(made, {"x": x}, engine="reference").values()), [expected])


@pytest.mark.parametrize(
    ("operator", "x", "others", "data", "kind", "reason"),
    [
        (
            "Add",
            _X,
            [_INTS([1], np.float32)],
            {"auto_broadcast": "pdpd"},
            None,
            "auto_broadcast = 'pdpd', which ONNX cannot",
        ),
        (
            "Gather",
            _X,
            [_INTS([0]), ""],
            {"batch_dims": 0},
            None,
            "the axis of .* is computed when the model",
        ),
        ("Squeeze", _X, ["1"], {}, None, "the axes of .* are computed when the model runs"),
        ("Unsqueeze", _X, ["1"], {}, None, "the axes of .* are computed when the model runs"),
        ("Transpose", _X, ["3"], {}, None, "the order of .* is computed when the model runs"),
        ("Slice", _X, ["?", "?", "?"], {}, None, "the number of bounds of .* is unknown"),
        ("Convert", _X.astype(np.float64), [], {"destination_type": "f16"}, "f16", "from float64 to float16"),
        ("Convert", _X, [], {"destination_type": "u1"}, "u1", "from float32 to uint1"),
    ],
)
def test_a_layer_that_onnx_does_not_state_is_rejected(
    operator: str,
    x: np.ndarray[Any, Any],
    others: list[Any],
    data: dict[str, Any],
    kind: str | None,
    reason: str,
) -> None:
    with pytest.raises(ModelError, match=reason):
        convert(_moved_layer(operator, x, others, data, kind), to="onnx:18")


def test_the_spellings_of_onnx_agree_with_its_schemas() -> None:
    for operator in OPERATORS:
        newer = dict[str, int]()
        for spelling in operator.onnx:
            assert onnx.defs.get_schema(spelling.name, spelling.since, "").name == spelling.name
            last = newer.get(spelling.name, onnx.defs.onnx_opset_version() + 1) - 1
            schema = onnx.defs.get_schema(spelling.name, last, "")
            newer[spelling.name] = spelling.since
            names = {attribute.name or name for name, attribute in spelling.attributes.items()}
            assert names | spelling.demands.keys() <= schema.attributes.keys(), spelling
            assert len(spelling.inputs.split()) <= schema.max_input, spelling


def test_a_name_is_that_of_one_operator() -> None:
    for table, dialect in ((BY_NODE, "onnx"), (BY_LAYER, "openvino")):
        for operator in OPERATORS:
            assert all(table[spelling.name] is operator for spelling in getattr(operator, dialect))
