"""From IR to ONNX: what follows from constants is computed first, and inputs and outputs keep their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.errors import ModelError
from splitops.models.formats.openvino import Builder

onnxruntime = pytest.importorskip("onnxruntime")
openvino = pytest.importorskip("openvino")
o = pytest.importorskip("openvino.opset13")
apply_moc_transformations = pytest.importorskip("openvino._offline_transformations").apply_moc_transformations


def c(value: Any, kind: Any = np.int64) -> Any:
    return o.constant(np.array(value, kind))


def saved(path: Path, outputs: list[Any], inputs: list[Any]) -> str:
    model = openvino.Model([o.result(output) for output in outputs], inputs, "m")
    openvino.save_model(model, path, compress_to_fp16=False)
    return str(path)


def ends(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    graph = model.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


COMPUTED: dict[str, Any] = {
    "add": lambda kind: o.add(c(0, kind), c(1, kind)),
    "subtract": lambda kind: o.subtract(c(0, kind), c(1, kind)),
    "negative": lambda kind: o.negative(c(1, kind)),
    "modulo": lambda kind: o.floor_mod(c(-3, kind), c(4, kind)),
    "of floats": lambda kind: o.convert(o.floor(c(1.5, np.float32)), kind),
    "a product": lambda kind: o.squeeze(o.reduce_prod(c([1, 1], kind), c([0]), True), c([0])),
    "a power": lambda kind: o.power(c(1, kind), c(2, kind)),
    "a rectified number": lambda kind: o.relu(c(1, kind)),
    "a mean": lambda kind: o.squeeze(o.reduce_mean(c([1, 1], kind), c([0]), True), c([0])),
    "a distinct number": lambda kind: o.squeeze(o.unique(c([1, 1], kind)).output(0), c([0])),
    "a chain of them": lambda kind: o.add(o.relu(o.power(c(-1, kind), c(3, kind))), o.sqrt(c(1, kind))),
    "a chain": lambda kind: o.maximum(o.add(c(0, kind), c(1, kind)), o.negative(c(2, kind))),
}


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [[4, 6], [-1, 6], [-1, -1]], ids=str)
@pytest.mark.parametrize("name", COMPUTED)
def test_an_axis_that_follows_from_constants(name: str, shape: list[int], kind: Any, tmp_path: Path) -> None:
    x = o.parameter(shape, np.float32, name="x")
    path = saved(tmp_path / "m.xml", o.split(x, COMPUTED[name](kind), 2).outputs(), [x])
    converted = splitops.convert(path, to="onnx")
    (split,) = (node for node in converted.graph.node if node.op_type == "Split")
    assert onnx.helper.get_node_attr_value(split, "axis") in (1, -1)
    if shape[1] == 6:
        assert len(converted.graph.node) == 1  # what has made the axis is gone
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = splitops.run(path, {"x": data}, engine="reference")
    found = splitops.run(converted, {"x": data}, engine="reference")
    for a, b in zip(expected.values(), found.values(), strict=True):
        assert np.array_equal(a, b)


def test_lengths_that_follow_from_constants(tmp_path: Path) -> None:
    x = o.parameter([-1, 6], np.float32, name="x")
    lengths = o.floor_mod(c([12, 24]), c([10, 20]))
    path = saved(tmp_path / "m.xml", o.variadic_split(x, c(1), lengths).outputs(), [x])
    converted = splitops.convert(path, to="onnx:11")  # whose Split has them as an attribute
    (split,) = converted.graph.node
    assert onnx.helper.get_node_attr_value(split, "split") == [2, 4]


def test_lengths_that_only_openvino_can_compute(tmp_path: Path) -> None:
    x = o.parameter([-1, 6], np.float32, name="x")
    path = saved(tmp_path / "m.xml", o.variadic_split(x, c(1), o.relu(c([2, 4]))).outputs(), [x])
    (split,) = splitops.convert(path, to="onnx:11").graph.node
    assert onnx.helper.get_node_attr_value(split, "split") == [2, 4]


def test_axes_that_follow_from_a_rank(tmp_path: Path) -> None:
    """OpenVINO reads a reduction of all axes so, of data whose sizes are open."""
    x = o.parameter([-1, -1, 6], np.float32, name="x")
    rank = o.squeeze(o.shape_of(o.shape_of(x)), c([0]))
    path = saved(tmp_path / "m.xml", [o.reduce_max(x, o.range(c(0), rank, c(1), "i64"), True)], [x])
    converted = splitops.convert(path, to="onnx")
    assert [node.op_type for node in converted.graph.node] == ["Constant", "ReduceMax"]
    data = np.arange(12, dtype=np.float32).reshape(1, 2, 6)
    (found,) = splitops.run(converted, {"x": data}, engine="reference").values()
    assert found.tolist() == [[[11]]]


def test_weights_of_a_recurrent_cell_that_follow_from_constants(tmp_path: Path) -> None:
    """OpenVINO puts the gates of an ONNX model's weights into its own order so."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3, 1, 2] x) => (float[3, 1, 1, 2] y)
        <float[1, 4, 2] b = {1, 2, 3, 4, 5, 6, 7, 8}, float[1, 4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8},
         float[1, 4, 2] r = {8, 7, 6, 5, 4, 3, 2, 1}> {
            w2 = Concat<axis = 1>(w, b)
            r2 = Concat<axis = 1>(r, b)
            y, h, c = LSTM<hidden_size = 2>(x, w2, r2)
        }""")
    data = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 1, 2)}
    converted = splitops.convert(splitops.convert(model, to="openvino"), to="onnx")
    expected, found = (splitops.run(one, data, engine="reference")["y"] for one in (model, converted))
    assert np.allclose(found, expected, rtol=1e-5)


def test_a_number_that_other_layers_read_stays(tmp_path: Path) -> None:
    x = o.parameter([-1, 6], np.float32, name="x")
    axis = o.floor_mod(c(3), c(2))
    path = saved(tmp_path / "m.xml", [*o.split(x, axis, 2).outputs(), axis], [x])
    found = splitops.run(
        splitops.convert(path, to="onnx"), {"x": np.zeros((1, 6), np.float32)}, engine="reference"
    )
    assert list(found.values())[2] == 1


@pytest.mark.parametrize(
    "made", [lambda x: o.power(x, x), lambda _: o.random_uniform(c([1]), c(0), c(9), "i64")]
)
def test_what_a_run_decides_is_no_constant(made: Any, tmp_path: Path) -> None:
    x = o.parameter([], np.int64, name="x")
    path = saved(tmp_path / "m.xml", [made(x)], [x])
    with pytest.raises(ModelError, match=r"(Power|RandomUniform) layer"):
        splitops.convert(path, to="onnx")


def test_an_axis_of_the_run_is_rejected_as_before(tmp_path: Path) -> None:
    x, axis = o.parameter([-1, 6], np.float32, name="x"), o.parameter([], np.int64, name="axis")
    path = saved(tmp_path / "m.xml", o.split(x, o.add(axis, c(1)), 2).outputs(), [x, axis])
    with pytest.raises(splitops.SplitError, match=r"axis\.range"):
        splitops.convert(path, to="onnx")


ALIASED = """
    <ir_version: 9, opset_import: ["": 18]>
    g (int64[N] input_lengths, float[N] x) => (float[N] y, float[N] b, int64[N] n) {
        a = Cast<to = 7>(input_lengths)
        n = Add(a, a)
        q = Relu(x)
        y = Cast<to = 1>(q)
        b = Dropout(y)
    }"""


@pytest.mark.parametrize("who", ["openvino", "splitops"])
def test_a_model_that_goes_to_ir_and_back_has_the_names_it_had(who: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(ALIASED)
    path = tmp_path / "m.xml"
    if who == "openvino":
        onnx.save(model, tmp_path / "m.onnx")
        made = openvino.Core().read_model(tmp_path / "m.onnx")
        apply_moc_transformations(made, cf=False)  # which leave out casts, as those of convert_model do
        openvino.save_model(made, path, compress_to_fp16=False)
    else:
        splitops.save(splitops.convert(model, to="openvino"), path)
    assert ends(splitops.convert(path, to="onnx")) == ends(model)
    with splitops.session(path) as ready:
        assert [declared.name for declared in ready.inputs] == ["input_lengths", "x"]
        assert list(ready.outputs) == ["y", "b", "n"]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_why_sums_of_bytes_are_not_converted(kind: Any, tmp_path: Path) -> None:
    x = o.parameter([4], kind, name="x")
    path = saved(tmp_path / "m.xml", [o.add(x, x)], [x])
    with pytest.raises(
        ModelError, match=r"saturates when it runs .* ONNX wraps around\. Convert the inputs to int32"
    ):
        splitops.convert(path, to="onnx")


def test_openvino_saturates_bytes_and_wraps_constants() -> None:
    x = o.parameter([1], np.uint8)
    model = openvino.Model(
        [o.result(o.add(x, x)), o.result(o.add(c([200], np.uint8), c([100], np.uint8)))], [x], "m"
    )
    compiled = openvino.Core().compile_model(model, "CPU")
    assert [found.tolist() for found in compiled([np.array([200], np.uint8)]).values()] == [[255], [44]]


def test_an_empty_constant_is_made_by_a_node() -> None:
    """OpenVINO reads an empty initializer of ONNX as a scalar."""
    builder = Builder("m")
    data = builder.parameter("x", "f32", (2, 3))
    empty = builder.const(np.zeros((0, 3), np.float32))
    joined = builder.layer("Concat", [data, empty, empty], {"axis": 0})[0]
    builder.result(builder.layer("ReLU", [joined])[0], "y")
    builder.result(builder.layer("ReLU", [empty])[0], "z")
    made = splitops.convert(builder.model(), "onnx:17")
    assert [node.op_type for node in made.graph.node].count("ConstantOfShape") == 1
    assert all(0 not in initializer.dims for initializer in made.graph.initializer)
    feeds = {"x": np.ones((2, 3), np.float32)}
    y, z = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    assert np.array_equal(y, feeds["x"])
    assert z.shape == (0, 3)
    compiled = openvino.Core().compile_model(openvino.Core().read_model(made.SerializeToString()), "CPU")
    assert np.array_equal(compiled(feeds)[0], feeds["x"])
