"""Flatten of data that may have no elements, and other readers of an empty part: right here and as IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops

pytest.importorskip("openvino")
_SIZES = "<int64[2] s = {4, 0}, int64[0] none = {}, int64[1] last = {1}, int64[3] wide = {3, 2, 0}>"
_READERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "gather": ("Gather<axis = 1>(b, none)", (2, 0)),
    "reduce-max": ("ReduceMax<keepdims = 0>(b, last)", (2,)),
    "reduce-min": ("ReduceMin<keepdims = 0>(b, last)", (2,)),
    "flatten": ("Flatten<axis = 2>(b)", (0, 1)),
    "expand": ("Expand(b, wide)", (3, 2, 0)),
}


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> g {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("ir", [False, True], ids=["onnx", "ir"])
@pytest.mark.parametrize("reader", _READERS)
def test_what_reads_an_empty_part(reader: str, ir: bool) -> None:
    text, shape = _READERS[reader]
    onnx_model = parsed(
        f"(float[2, 4] x) => (float y) {_SIZES} {{ a, b = Split<axis = 1>(x, s) y = {text} }}"
    )
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    wanted = splitops.run(onnx_model, feeds, engine="reference")["y"]
    assert wanted.shape == shape
    model: Any = splitops.convert(onnx_model, "openvino") if ir else onnx_model
    for engine in ("auto", "openvino"):
        np.testing.assert_array_equal(splitops.run(model, feeds, engine=engine)["y"], wanted, strict=True)


@pytest.mark.parametrize(
    ("dims", "opset", "axis"), [("n, m, k, l", 18, 2), ("2, m, k, 5", 11, -1), ("2, 0, 4, 5", 13, 3)]
)
def test_a_flattening_of_sizes_that_may_be_0_is_converted(dims: str, opset: int, axis: int) -> None:
    model = parsed(f"(float[{dims}] x) => (float y) {{ y = Flatten<axis = {axis}>(x) }}", opset)
    converted = splitops.convert(model, "openvino")
    shapes = [(2, 0, 4, 5)] if "0" in dims else [(2, 3, 4, 5), (2, 0, 4, 5), (2, 0, 0, 5)]
    for shape in shapes:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        wanted = x.reshape(int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
        for given in (model, converted):
            found = splitops.run(given, {"x": x}, engine="openvino")["y"]
            np.testing.assert_array_equal(found, wanted, strict=True)
