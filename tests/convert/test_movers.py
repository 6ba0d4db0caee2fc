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
from splitops.models.convert import convert
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops.models.movers import BY_OPERATOR, MOVERS

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
    there = convert(model, to="openvino", report=True)
    assert isinstance(there.model, OpenVINOModel), str(there)
    (layer,) = there.model.graph.layers_of_type("Slice")
    assert layer.version == "opset8"
    assert layer.name == "slice"
    assert equal(list(splitops.run(there.model, feeds, engine="reference").values()), expected)
    back = convert(there.model, to="onnx:13", report=True)
    onnx.checker.check_model(back.model, full_check=True)
    assert equal(list(splitops.run(back.model, feeds, engine="reference").values()), expected)


def test_a_slice_by_computed_bounds_states_its_steps() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[8] x, int64[1] start, int64[1] end) => (float[n] y, float[m] b) {
            a, b = Split(x)
            y = Slice(a, start, end)
        }""")
    feeds = {"x": np.arange(8, dtype=np.float32), "start": np.array([1]), "end": np.array([3])}
    there = convert(model, to="openvino", report=True)
    (layer,) = there.model.graph.layers_of_type("Slice")
    assert len(layer.inputs) == 4
    assert equal(
        list(splitops.run(there.model, feeds, engine="reference").values()),
        [np.array([1, 2], np.float32), feeds["x"][4:]],
    )


def test_a_slice_of_an_unknown_number_of_axes_is_left_to_openvinos_converter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from splitops.models.convert import onnx_to_openvino

    monkeypatch.setattr(onnx_to_openvino.importlib.util, "find_spec", lambda name: None)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[8] x, int64[k] start, int64[k] end) => (float[n] y, float[m] b) {
            a, b = Split(x)
            y = Slice(a, start, end)
        }""")
    report = convert(model, to="openvino", report=True)
    with pytest.raises(ModelError, match="needed for Slice"):
        _ = report.model


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


def test_the_table_names_operators_that_there_are() -> None:
    newest = onnx.defs.onnx_opset_version()
    for mover in MOVERS:
        assert onnx.defs.get_schema(mover.onnx, newest).name == mover.onnx
        assert BY_OPERATOR[mover.onnx] is mover
    assert len(BY_OPERATOR) == len({mover.openvino for mover in MOVERS}) == len(MOVERS)
