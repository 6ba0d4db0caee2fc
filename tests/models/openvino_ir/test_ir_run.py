"""Running models: inputs and outputs by name, splits by our rules, other layers by OpenVINO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_helpers import (
    OPENVINO_TYPES,
    Array,
    array_of,
    assert_same,
    data_of,
    needs_openvino,
    run_by_openvino,
    run_ir,
    split_model,
    stated,
)

from splitops.errors import ModelError, Rule, RuleError
from splitops.models.engines.engine import Event
from splitops.models.engines.profile_events import collect_events
from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.models.sessions import session
from splitops.spec import ELEMENT_TYPES, ElementType
from splitops.spec.elements.types import element_type_of, from_openvino

DATA = np.arange(24, dtype=np.float32).reshape(6, 4)
F32 = ELEMENT_TYPES["float32"]


def identity(
    element_type: str | ElementType, shape: str | tuple[int, ...], **options: object
) -> ir.OpenVINOModel:
    builder = ir.Builder()
    builder.result(builder.parameter("x", element_type, shape, **options), "y")  # type: ignore[arg-type]
    return builder.model()


# Inputs


@pytest.mark.parametrize("kind", OPENVINO_TYPES, ids=str)
def test_every_element_type_on_every_axis(kind: ElementType) -> None:
    """The parts of packed and unpacked types alike are the data, also where they begin inside a byte."""
    data = data_of(kind, (3, 7, 5))
    for axis, sizes in [(0, [1, 2]), (1, [3, 0, 4]), (-1, [1, 1, 3])]:
        model = split_model((kind, "?,7,..9"), np.array(axis), lengths=np.array(sizes), outputs=len(sizes))
        parts = list(run_ir(model, {"data": data}).values())
        assert [part.shape[axis] for part in parts] == sizes
        assert_same(np.concatenate(parts, axis), data)


@pytest.mark.parametrize(
    ("element_type", "array"),
    [
        ("f32", DATA.astype(np.float64)),
        ("f64", DATA),
        ("i64", DATA.astype(np.int32)),
        ("bf16", DATA.astype(np.float16)),
        ("i4", DATA.astype(np.int8)),
        ("u4", DATA.astype(np.uint8)),
        ("nf4", DATA.astype(np.int8)),
        ("string", DATA),
        ("boolean", DATA.astype(np.uint8)),
        ("f32", DATA.astype(object)),
    ],
)
def test_another_dtype_is_rejected(element_type: str, array: Array) -> None:
    found, declared = element_type_of(array.dtype), from_openvino(element_type)
    with pytest.raises(
        ModelError, match=rf"input 'x' has element type {found}, but the model declares {declared}"
    ):
        run_ir(identity(element_type, "?,?"), {"x": array})


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (DATA.astype(">f4"), DATA),
        (np.asfortranarray(DATA), DATA),
        (DATA[::-1, ::2], DATA[::-1, ::2]),
        (DATA.tolist(), None),
    ],
    ids=["big-endian", "fortran", "strides", "list of float64"],
)
def test_forms_of_arrays(array: Array, expected: Array | None) -> None:
    if expected is None:
        with pytest.raises(ModelError, match="has element type float64, but the model declares float32"):
            run_ir(identity("f32", "?,?"), {"x": array})
    else:
        assert_same(
            np.ascontiguousarray(run_ir(identity("f32", "?,?"), {"x": array})["y"]),
            np.ascontiguousarray(expected),
        )


@pytest.mark.parametrize(
    "array", [np.array(["a", "日本"]), np.array(["a", "日本"], object)], ids=["fixed", "object"]
)
def test_strings_of_any_kind(array: Array) -> None:
    assert run_ir(identity("string", "2"), {"x": array})["y"].tolist() == ["a", "日本"]


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ("6,4", [(6, 4)], [(6, 5), (4, 6), (6,), (6, 4, 1)]),
        ("2..6,?", [(2, 9), (6, 0)], [(1, 4), (7, 4)]),
        ("..3", [(0,), (3,)], [(4,)]),
        ("2..", [(2,), (99,)], [(1,), ()]),
        ("...", [(), (1,), (2, 3, 4)], []),
        ("", [()], [(1,)]),
        ("-1,-1", [(0, 0), (5, 7)], [(5,)]),
    ],
)
def test_shapes_are_checked_against_the_parameter(
    shape: str, good: list[tuple[int, ...]], bad: list[tuple[int, ...]]
) -> None:
    model = identity("f32", shape)
    for size in good:
        assert run_ir(model, {"x": np.zeros(size, np.float32)})["y"].shape == size
    for size in bad:
        with pytest.raises(ModelError, match=r"input 'x' has shape .*, but the model declares float32 \("):
            run_ir(model, {"x": np.zeros(size, np.float32)})


def test_a_parameter_that_takes_any_type() -> None:
    content, _ = ir.to_bytes(identity("f32", "..."))
    model = ir.from_bytes(content.replace(b'element_type="f32"', b'element_type="dynamic"'))
    for array in (DATA, DATA.astype(np.int64), np.array("text", object), DATA.astype(ml_dtypes.bfloat16)):
        result = run_ir(model, {"x": array})["y"]
        assert np.shares_memory(result, array)
        assert (result.dtype, result.shape) == (array.dtype, array.shape)


def test_inputs_by_any_name() -> None:
    model = identity("f32", "?,?", names=["b,1", "a"])
    assert ir.make_input_names(model) == ("a",)
    for name in ("a", "b,1", "x"):
        assert np.shares_memory(run_ir(model, {name: DATA})["y"], DATA)
    with pytest.raises(ModelError, match="is passed twice, under two of its names"):
        run_ir(model, {"a": DATA, "x": DATA})
    with pytest.raises(ModelError, match="the model has no input 'z': its inputs are 'a'"):
        run_ir(model, {"a": DATA, "z": DATA})
    with pytest.raises(ModelError, match="input 'a' is missing"):
        run_ir(model, {})


def test_a_name_of_two_inputs_is_neither() -> None:
    builder = ir.Builder()
    for name in ("p", "q"):
        builder.result(builder.parameter(name, "f32", (1,), names=["same"]), f"r{name}")
    model = builder.model()
    one, two = np.zeros(1, np.float32), np.ones(1, np.float32)
    with pytest.raises(ModelError, match="2 inputs of the model are named 'same'"):
        run_ir(model, {"same": one, "q": two})
    assert run_ir(model, {"p": one, "q": two})["rq"].tolist() == [1.0]


def test_the_name_of_a_tensor_goes_before_that_of_another_layer() -> None:
    builder = ir.Builder()
    for name, tensor in (("p", "q"), ("q", "r")):
        builder.result(builder.parameter(name, "f32", (1,), names=[tensor]), f"r{name}")
    model = builder.model()
    assert [item.aliases for item in session(model, "reference").inputs] == [("p",), ()]
    for names in (("q", "r"), ("p", "r")):
        feeds = {name: np.full(1, at, np.float32) for at, name in enumerate(names)}
        assert [array.item() for array in run_ir(model, feeds).values()] == [0, 1]
    with pytest.raises(ModelError, match="input 'q' is passed twice"):
        run_ir(model, {"p": np.zeros(1, np.float32), "q": np.zeros(1, np.float32)})


def test_codes_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match="input 'x' has the code 2, more than 1"):
        run_ir(identity("u1", "?"), {"x": np.array([2], np.uint8)})


def test_codes_of_a_shape_that_fitted_before_are_checked_again() -> None:
    prepared = session(identity("u1", "?"), "reference")
    for _ in range(2):
        assert prepared.run({"x": np.array([1], np.uint8)})["y"].tolist() == [1]
        with pytest.raises(ModelError, match="input 'x' has the code 2, more than 1"):
            prepared.run({"x": np.array([2], np.uint8)})


# Outputs


def test_output_names_repeat_safely() -> None:
    builder = ir.Builder()
    value = builder.parameter("x", "f32", (1,), names=["n", "m"])
    for name, names in [
        ("a", []),
        ("b", []),
        ("c", ["n"]),
        ("d", []),
        ("d", []),
        ("e", ["n"]),
        ("f", ["z", "y"]),
    ]:
        builder.result(value, name, names=names)
    assert ir.make_output_names(builder.model()) == ("m", "b", "n", "d", "m_1", "e", "y")


def test_outputs_are_views_where_they_can_be() -> None:
    model = split_model(("f32", (6, 4)), np.array(0), num_splits=3, outputs=3)
    parts = run_ir(model, {"data": DATA}).values()
    assert all(np.shares_memory(part, DATA) for part in parts)


# Splits


@pytest.mark.parametrize("text", ["3", "3.0", "3.", " 3 "])
def test_num_splits_as_text(text: str) -> None:
    parts = run_ir(split_model(("f32", (6, 4)), np.array(0), num_splits=text, outputs=3), {"data": DATA})
    assert [part.tolist() for part in parts.values()] == [DATA[i : i + 2].tolist() for i in (0, 2, 4)]


@pytest.mark.parametrize("text", ["three", "", "3.5", "1e1", "9" * 30])
def test_num_splits_that_is_no_integer(text: str) -> None:
    model = split_model(("f32", (6, 4)), np.array(0), num_splits=text, outputs=3)
    with pytest.raises(ModelError, match=r"num_splits = .* is not a 64-bit integer .node 'split'"):
        run_ir(model, {"data": DATA})
    with pytest.raises(ModelError, match="num_splits"):
        list(iter_split_nodes(to_nodes(model)))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"axis": np.array(0), "num_splits": 4, "outputs": 4}, Rule.PARTS_DIVISIBLE),
        ({"axis": np.array(0), "num_splits": 0, "outputs": 1}, Rule.PARTS_COUNT),
        ({"axis": np.array(2), "num_splits": 2, "outputs": 2}, Rule.AXIS_RANGE),
        ({"axis": np.array([0]), "num_splits": 2, "outputs": 2}, Rule.AXIS_RANK),
        ({"axis": np.array(0.0), "num_splits": 2, "outputs": 2}, Rule.AXIS_DTYPE),
        ({"axis": np.array(0), "lengths": np.array([1, 2]), "outputs": 2}, Rule.LENGTHS_SUM),
        ({"axis": np.array(0), "lengths": np.array([7, -1]), "outputs": 2}, Rule.REMAINDER_NEGATIVE),
        ({"axis": np.array(0), "lengths": np.array([-1, -1]), "outputs": 2}, Rule.REMAINDER_REPEATED),
        ({"axis": np.array(0), "lengths": np.array([-2, 8]), "outputs": 2}, Rule.LENGTHS_NEGATIVE),
        ({"axis": np.array(0), "lengths": np.array(6), "outputs": 1}, Rule.LENGTHS_RANK),
        ({"axis": np.array(0), "lengths": np.array([2, 4]), "outputs": 3}, Rule.LENGTHS_COUNT),
    ],
    ids=lambda value: str(value) if isinstance(value, Rule) else "",
)
def test_broken_rules_name_the_layer(arguments: dict[str, object], rule: Rule) -> None:
    model = split_model(("f32", (6, 4)), **arguments)  # type: ignore[arg-type]
    with pytest.raises(RuleError) as caught:
        run_ir(model, {"data": DATA})
    assert caught.value.rule is rule
    assert caught.value.where.node == "split"


def test_unknown_operation_set() -> None:
    builder = ir.Builder()
    value = builder.parameter("x", "f32", (4,))
    (part,) = builder.layer("Split", [value, builder.const(0)], {"num_splits": 1}, version="ops", name="s")
    builder.result(part, "y")
    with pytest.raises(ModelError, match="'ops', which is not an operation set"):
        list(iter_split_nodes(to_nodes(builder.model())))


def test_only_what_an_output_needs_is_evaluated() -> None:
    builder = ir.Builder()
    value = builder.parameter("x", "f32", (4,))
    builder.layer("Mystery", [value], version="extension")
    builder.layer("Split", [value, builder.const(9)], {"num_splits": 7})
    builder.result(value, "y")
    assert run_ir(builder.model(), {"x": DATA[0]})["y"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_every_own_layer_is_recorded() -> None:
    seen: list[Event] = []
    model = split_model(("f32", (6, 4)), np.array(1), num_splits=2, outputs=2)
    with collect_events(seen):
        run_ir(model, {"data": DATA})
    assert [(event.operator, event.node) for event in seen] == [("Split", "split")]


# Data movers


@pytest.mark.parametrize(
    ("operation", "others", "data", "message"),
    [
        ("Concat", [], {"axis": "2"}, "axis 2 is out of range"),
        ("Concat", [], {}, "has no attribute 'axis'; it is required"),
        ("Concat", [np.zeros((5, 5), np.float32)], {"axis": "0"}, "must match exactly"),
        ("Concat", [np.zeros((6, 4), np.float64)], {"axis": "0"}, "joins float32 and float64"),
        ("Concat", [np.zeros(4, np.float32)], {"axis": "0"}, "same number of dimensions"),
        ("Convert", [], {}, "does not convert float32 to None"),
        ("Convert", [], {"destination_type": "f33"}, "float32 to None"),
        ("Convert", [], {"destination_type": "string"}, "float32 to string"),
        ("Reshape", [np.array([5, -1])], {"special_zero": "false"}, "does not fit shape"),
        ("Reshape", [np.array([-1, -1])], {"special_zero": "false"}, "has more than one -1"),
        ("Reshape", [np.array([-2, 3])], {"special_zero": "false"}, "negative size -2"),
        ("Reshape", [np.array([6, 4, 0])], {"special_zero": "true"}, "copies dimension 2"),
        ("Reshape", [np.array([0, 24])], {"special_zero": "false"}, "does not fit shape"),
        ("Reshape", [np.array([0, -1])], {"special_zero": "false"}, "does not fit shape"),
        ("Reshape", [np.array([1 << 62, 1 << 62, -1])], {"special_zero": "false"}, "does not fit shape"),
        ("Reshape", [np.array(24)], {"special_zero": "false"}, "not integers of rank 1"),
        ("Reshape", [np.array([24.0])], {"special_zero": "false"}, "not integers of rank 1"),
        ("Reshape", [np.array([24])], {"special_zero": "maybe"}, "neither true nor false"),
        ("Reshape", [np.ones(65, np.int64)], {"special_zero": "false"}, "more than 64"),
        ("Reshape", [], {"special_zero": "false"}, "has 1 inputs, but requires 2"),
        ("Squeeze", [np.array([2])], None, "axis 2 is not an axis of rank 2"),
        ("Unsqueeze", [np.array([3])], None, "axis 3 is out of bounds"),
        ("Unsqueeze", [np.array([0, -4])], None, "repeated axis"),
        ("Unsqueeze", [np.array([], np.int64)], None, "has no axes"),
        ("Unsqueeze", [np.arange(64)], None, "64"),
        ("Transpose", [np.array([0, 0])], None, "ranspose|order"),
        ("Transpose", [np.array([0, -1])], None, "ranspose|order"),
        ("Transpose", [np.array([0, 1, 2])], None, "ranspose|order"),
        ("ShapeOf", [], {"output_type": "f32"}, "has output_type = 'f32', which ONNX cannot express"),
        ("Gather", [np.array([0]), np.array(2)], None, "axis 2 is not an axis of rank 2"),
        ("Gather", [np.array([0.0]), np.array(0)], None, "indices are float64"),
        ("Gather", [np.array([0]), np.array([0, 1])], None, r"axis = \[0, 1\] is not a single axis"),
        ("Gather", [np.zeros((1,) * 64, np.int64), np.array(0)], None, "more than 64 dimensions"),
        ("Slice", [np.array([0]), np.array([1])], None, "has 3 inputs; 'steps' is missing"),
        ("Slice", [np.array([0]), np.array([1, 2]), np.array([1])], None, "operator 'Slice' failed"),
        ("Slice", [*[np.array([1, 1])] * 3, np.array([0, -2])], None, "has an axis twice: axes = "),
        ("Slice", [*[np.array([1])] * 3, np.array([2])], None, "axis 2 is not an axis of rank 2"),
        ("Slice", [np.array([0]), np.array([1]), np.array([0])], None, "step cannot be zero"),
        ("Slice", [np.array([0]), np.array([1]), np.array(1)], None, "operator 'Slice' failed"),
    ],
)  # fmt: skip
def test_data_movers_reject(
    operation: str, others: list[Array], data: dict[str, str] | None, message: str
) -> None:
    builder = ir.Builder()
    values = [builder.parameter("x", "f32", (6, 4)), *(builder.const(other) for other in others)]
    version = {"ShapeOf": "opset3", "Gather": "opset8", "Slice": "opset8"}.get(operation, "opset1")
    (value,) = builder.layer(operation, values, data, name="mover", version=version)
    builder.result(value, "y")
    with pytest.raises(ModelError, match=message) as caught:
        run_ir(builder.model(), {"x": DATA})
    assert (caught.value.where.node or "").startswith("mover")


def test_a_concat_of_nothing_is_rejected() -> None:
    builder = ir.Builder()
    (value,) = builder.layer("Concat", [], {"axis": "0"}, name="mover", element_type="f32")
    builder.result(value, "y")
    with pytest.raises(ModelError, match="at least one array"):
        run_ir(builder.model(), {})


def test_what_is_gathered_from_outside_strings_is_empty() -> None:
    builder = ir.Builder()
    x = builder.parameter("x", "string", (2,))
    inputs = [x, builder.const(np.array([1, 5])), builder.const(np.array(0))]
    (value,) = builder.layer("Gather", inputs, {"batch_dims": 0}, version="opset8")
    builder.result(value, "y")
    assert run_ir(builder.model(), {"x": np.array(["a", "b"], object)})["y"].tolist() == ["b", ""]


def test_too_many_declared_outputs() -> None:
    builder = ir.Builder()
    value = builder.parameter("x", "f32", (6, 4))
    made = builder.layer("ShapeOf", [value], outputs=2, name="shape")
    builder.result(made[1], "y")
    with pytest.raises(ModelError, match="has 2 output ports, but should have 1"):
        run_ir(builder.model(), {"x": DATA})


# Generated graphs


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ir.OpenVINOModel, dict[str, Array], dict[str, Array]]:
    """Draw a model of data movers and splits with its inputs and, by NumPy alone, its outputs."""
    builder = ir.Builder(draw(st.sampled_from(["g", "", "a b<&>\"'"])))
    inputs: dict[str, Array] = {}
    values: list[tuple[ir.Output, Array]] = []
    for index in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
        dtype = draw(st.sampled_from([np.int8, np.float32, np.int64, ml_dtypes.bfloat16]))
        array = np.arange(index, index + int(np.prod(shape))).astype(dtype).reshape(shape)
        name = f"x{index}," if draw(st.booleans()) else f"x{index}"
        values.append((builder.parameter(name, ELEMENT_TYPES[np.dtype(dtype).name], shape), array))
        inputs[name] = array
    for _ in range(draw(st.integers(1, 6))):
        port, array = draw(st.sampled_from(values))
        axis = draw(st.integers(0, max(array.ndim - 1, 0)))
        match draw(st.sampled_from(["split", "transpose", "concat", "unsqueeze"])):
            case "split" if array.ndim:
                cuts = sorted(draw(st.lists(st.integers(0, array.shape[axis]), max_size=3)))
                sizes = np.diff([0, *cuts, array.shape[axis]])
                hidden = draw(st.integers(0, len(sizes) - 1))
                lengths = [-1 if at == hidden else int(size) for at, size in enumerate(sizes)]
                arguments = [
                    port,
                    builder.const(axis - draw(st.sampled_from([0, array.ndim]))),
                    builder.const(lengths),
                ]
                parts = builder.layer("VariadicSplit", arguments, outputs=len(lengths))
                values += zip(parts, np.split(array, cuts, axis), strict=True)
            case "transpose" if array.ndim:
                order = draw(st.permutations(range(array.ndim)))
                (made,) = builder.layer("Transpose", [port, builder.const(np.array(order, np.int32))])
                values.append((made, array.transpose(order)))
            case "concat" if array.ndim:
                (made,) = builder.layer("Concat", [port, port], {"axis": axis})
                values.append((made, np.concatenate([array, array], axis)))
            case _:
                (made,) = builder.layer("Unsqueeze", [port, builder.const(axis)])
                values.append((made, np.expand_dims(array, axis)))
    expected: dict[str, Array] = {}
    for index, (port, array) in enumerate(values):
        builder.result(port, f"y{index}")
        expected[f"y{index}"] = array
    return builder.model(), inputs, expected


@settings(max_examples=60)
@given(graphs())
def test_generated_graphs_round_trip_and_run(
    drawn: tuple[ir.OpenVINOModel, dict[str, Array], dict[str, Array]],
) -> None:
    model, inputs, expected = drawn
    content = ir.to_bytes(model)
    again = ir.from_bytes(*content)
    assert ir.to_bytes(again) == content
    assert again.graph.edges == model.graph.edges
    assert [
        (layer.id, layer.name, layer.type, layer.data)
        for layer in again.graph.layers
        if layer.type != "Const"
    ] == [
        (layer.id, layer.name, layer.type, layer.data)
        for layer in model.graph.layers
        if layer.type != "Const"
    ]
    for one in (model, again):
        outputs = run_ir(one, inputs)
        assert list(outputs) == list(expected)
        for name, array in expected.items():
            assert_same(np.ascontiguousarray(outputs[name]), np.ascontiguousarray(array).reshape(array.shape))


# Other layers


def mixed_model() -> ir.OpenVINOModel:
    """Splits before, between and behind foreign layers, whose constants and shapes come from own ones."""
    builder = ir.Builder()
    x = builder.parameter("x", "f32", "?,6")
    left, right = builder.layer("Split", [x, builder.const(1)], {"num_splits": 2}, outputs=2, name="halves")
    (added,) = builder.layer("Add", [left, right], {"auto_broadcast": "numpy"})
    (scaled,) = builder.layer("Multiply", [added, builder.const(np.float32(2))], {"auto_broadcast": "numpy"})
    parts = builder.layer(
        "VariadicSplit", [scaled, builder.const(1), builder.const([1, -1])], outputs=2, name="inner"
    )
    (active,) = builder.layer("ReLU", [parts[1]])
    (joined,) = builder.layer("Concat", [parts[0], active, left], {"axis": 1})
    (shape,) = builder.layer(
        "ShapeOf", [joined], {"output_type": "i64"}, version="opset3", element_type="i64"
    )
    (total,) = builder.layer(
        "ReduceProd", [shape, builder.const([0])], {"keep_dims": True}, element_type="i64"
    )
    builder.result(joined, "joined")
    builder.result(total, "total")
    builder.result(active, "active")
    return builder.model()


@needs_openvino
def test_foreign_layers_run_by_openvino(tmp_path: Path) -> None:
    model = mixed_model()
    data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    events: list[Event] = []
    with collect_events(events):
        outputs = run_ir(model, {"x": data})
    assert {"halves", "inner"} <= {event.node for event in events}
    ir.write(model, tmp_path / "model.xml")
    job = {"xml": str(tmp_path / "model.xml"), "inputs": [stated(data, F32)], "by": "CPU"}
    (answer,) = run_by_openvino(tmp_path, [job])
    assert [names[0] for names in answer["outputs"]] == list(outputs) == ["joined", "total", "active"]
    for array, tensor in zip(outputs.values(), answer["tensors"], strict=True):
        assert_same(array, array_of(tensor))


@needs_openvino
@pytest.mark.parametrize(
    "kind",
    [kind for kind in OPENVINO_TYPES if kind.name in {"bfloat16", "int4", "uint8", "float16", "bool"}],
    ids=str,
)
def test_values_of_odd_types_reach_foreign_layers(kind: ElementType) -> None:
    builder = ir.Builder()
    x = builder.parameter("x", kind, "?,4")
    upper, lower = builder.layer("VariadicSplit", [x, builder.const(0), builder.const([1, -1])], outputs=2)
    (tiled,) = builder.layer("Tile", [lower, builder.const([2, 1])])
    builder.result(tiled, "tiled")
    builder.result(upper, "upper")
    data = data_of(kind, (3, 4))
    outputs = run_ir(builder.model(), {"x": data})
    assert_same(outputs["upper"], data[:1])
    assert_same(outputs["tiled"], np.concatenate([data[1:], data[1:]]))


@needs_openvino
def test_bodies_run_by_openvino() -> None:
    builder = ir.Builder()
    x = builder.parameter("x", "f32", (3,))
    (gate,) = builder.layer("If", [builder.const(np.array(True)), x], version="opset8")
    builder.result(gate, "y")
    model = builder.model()
    bodies = []
    for factor in (2, 3):
        inner = ir.Builder()
        value = inner.parameter("p", "f32", (3,))
        (made,) = inner.layer(
            "Multiply", [value, inner.const(np.full(3, factor, np.float32))], {"auto_broadcast": "numpy"}
        )
        inner.result(made, "r")
        bodies.append(inner.model().graph)
    ports = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        f'<output external_port_id="2" internal_layer_id="3"/></{name}_port_map>'
        for name in ("then", "else")
    )
    maps = tuple(ElementTree.fromstring(f"<m>{ports}</m>"))
    layers = tuple(
        replace(layer, bodies=(("then_body", bodies[0]), ("else_body", bodies[1])), children=maps)
        if layer.type == "If"
        else layer
        for layer in model.graph.layers
    )
    whole = ir.from_bytes(*ir.to_bytes(model.with_graph(replace(model.graph, layers=layers))))
    assert run_ir(whole, {"x": DATA[0, 1:]})["y"].tolist() == [2.0, 4.0, 6.0]


@needs_openvino
def test_layers_that_nobody_knows() -> None:
    builder = ir.Builder()
    (value,) = builder.layer("Mystery", [builder.parameter("x", "f32", (4,))], name="what", version="opset1")
    builder.result(value, "y")
    with pytest.raises(ModelError, match="the reference cannot run the model: Mystery layer 'what'"):
        run_ir(builder.model(), {"x": DATA[0]})
    with pytest.raises(ModelError, match="openvino rejects the model: "):
        session(builder.model(), "openvino")
