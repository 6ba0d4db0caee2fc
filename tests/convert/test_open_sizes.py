"""What only a run knows: sequences of an open axis, Reshapes to sizes of 0, and widths of heads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.errors import ModelError, SplitError
from splitops.models.convert import convert
from splitops.models.formats.openvino import Builder

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
_SHAPES = ((2, 3, 4, 5), (2, 3, 0, 5), (0, 0, 0, 0), (1, 0, 3, 1))
_SIZES = ((2, 3, 20), (2, 3, 0), (0, 0, 3), (0, 3, 20), (2, -1, 5), (0, 0, 0), (-1, 3, 5), (6, 20, 1))


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


# Sequences


def sequence(readers: str, lengths: str = "<int64 k = {2}>", inputs: str = "", split: str = "(x, k)") -> Any:
    return parsed(f"""(float[N,4] x{inputs}) => (float[a,b] y, float[c,d] z) {lengths} {{
        s = SplitToSequence{split}  i = Constant<value_int = 0>()  j = Constant<value_int = 1>()
        l = Constant<value_int = -1>()  t = Constant<value_int = -2>()  {readers} }}""")


_FRONT = "y = SequenceAt(s, i) z = SequenceAt(s, j)"
_BACK = "y = SequenceAt(s, l) z = SequenceAt(s, t)"


@pytest.mark.parametrize("target", ["openvino", "onnx:10"])
@pytest.mark.parametrize(
    ("model", "feeds"),
    [
        (sequence(_FRONT), {}),
        (sequence(_BACK), {}),
        (sequence(_FRONT, "", ", int64 k"), {"k": np.array(2)}),
        (sequence(_BACK, "", ", int32 k"), {"k": np.array(2, np.int32)}),
        (sequence(_FRONT, "", ", int64[K] k"), {"k": None}),
        (sequence(_BACK, "", ", int64[K] k"), {"k": None}),
        (sequence(_FRONT, "<int64 k = {1}>"), {}),
        (sequence(_BACK, "", split="(x)"), {}),
    ],
)
def test_parts_of_an_open_axis_at_constant_positions(target: str, model: Any, feeds: dict[str, Any]) -> None:
    converted = splitops.convert(model, target)
    assert not [
        node for node in getattr(getattr(converted, "graph", None), "node", ()) if "Seq" in node.op_type
    ]
    for size in (3, 4, 5):
        given = {"x": np.arange(4 * size, dtype=np.float32).reshape(size, 4)}
        given |= {name: np.array([1, size - 1]) if k is None else k for name, k in feeds.items()}
        wanted = splitops.run(model, given, engine="reference")
        engine = "openvino" if target == "openvino" else "onnxruntime"
        found = splitops.run(converted, given, engine=engine)
        for name, part in wanted.items():
            np.testing.assert_array_equal(found[name], part, strict=True)


@pytest.mark.parametrize("target", ["openvino", "onnx:10"])
def test_the_length_of_a_sequence_of_an_open_axis(target: str) -> None:
    model = parsed("""(float[N,4] x) => (float[a,4] y, int64 z) <int64 k = {2}, int64 i = {0}> {
        s = SplitToSequence(x, k)  y = SequenceAt(s, i)  z = SequenceLength(s) }""")
    converted = splitops.convert(model, target)
    for size in (1, 4, 5):
        found = splitops.run(converted, {"x": np.zeros((size, 4), np.float32)})
        assert (found["z"].shape, int(found["z"])) == ((), -(-size // 2))


def test_sequences_of_which_more_is_read_are_rejected() -> None:
    computed = parsed("""(float[N,4] x, int64 i) => (float[a,4] y) <int64 k = {2}> {
        s = SplitToSequence(x, k)  y = SequenceAt(s, i) }""")
    given = parsed("""(float[N,4] x) => (seq(float[a,4]) s) <int64 k = {2}> { s = SplitToSequence(x, k) }""")
    # PyTorch's unbind: which of two meanings it has is not for a conversion to say.
    unclear = sequence(_FRONT, "<int64 k = {1}>", split="<keepdims = 0>(x, k)")
    replaced = sequence(_FRONT, "<int64 k = {2}>", ", int64 k")
    for model in (computed, given, unclear, replaced):
        with pytest.raises(SplitError, match="SplitToSequence"):
            splitops.convert(model, "openvino")


# Reshapes


@pytest.mark.parametrize("opset", [10, 11, 12, 13])
@pytest.mark.parametrize("kind", ["float", "int8", "string", "bool"])
def test_a_reshape_to_sizes_that_may_be_0(kind: str, opset: int) -> None:
    model = parsed(
        f"({kind}[B,C,H,W] x, int64[3] s) => ({kind}[a,b,c] y) {{ y = Reshape<allowzero = 1>(x, s) }}"
    )
    converted = splitops.convert(model, f"onnx:{opset}")
    onnx.checker.check_model(converted, full_check=True)
    before, after = (ort.InferenceSession(one.SerializeToString()) for one in (model, converted))
    types = {"float": np.float32, "int8": np.int8, "string": object, "bool": np.bool_}
    for shape, sizes in product(_SHAPES, _SIZES):
        count = int(np.prod(shape))
        x = np.array([f"s{i}" for i in range(count)], object) if kind == "string" else np.arange(count) % 2
        feeds = {"x": x.astype(types[kind]).reshape(shape), "s": np.array(sizes)}
        found = [_result(session, feeds) for session in (before, after)]
        assert (found[0] is None) is (found[1] is None), (shape, sizes)
        if found[0] is not None:
            np.testing.assert_array_equal(found[1], found[0], strict=True)


def _result(session: Any, feeds: dict[str, Any]) -> Any:
    try:
        return session.run(None, feeds)[0]
    except Exception:  # onnxruntime has a class for each
        return None


def test_sizes_of_an_image_that_may_have_none_convert() -> None:
    """As exporters with dynamic heights and widths write them."""
    model = parsed("""(float[1,3,H,W] x) => (float[1,3,n] y) <int64[1] two = {2}, int64[1] three = {3}> {
        s = Shape(x)  h = Gather(s, two)  w = Gather(s, three)  n = Mul(h, w)
        head = Constant<value_ints = [1, 3]>()  sizes = Concat<axis = 0>(head, n)
        y = Reshape<allowzero = 1>(x, sizes) }""")
    for opset in (11, 13):
        converted = splitops.convert(model, f"onnx:{opset}")
        for height, width in ((2, 5), (0, 5), (0, 0)):
            x = np.arange(3 * height * width, dtype=np.float32).reshape(1, 3, height, width)
            found = splitops.run(converted, {"x": x}, engine="onnxruntime")["y"]
            np.testing.assert_array_equal(found, x.reshape(1, 3, height * width), strict=True)


@pytest.mark.parametrize(
    ("kind", "opset", "text"),
    [
        ("float[B,C] x, int64[3] s", 9, "a size may be 0, which requires opset 10 or later: declare"),
        ("float[B,C] x, int64[K] s", 13, "the type of the data or the rank is unknown"),
        ("complex64[B,C] x, int64[3] s", 13, "but opset 13 cannot create a complex64 tensor"),
    ],
)
def test_a_reshape_without_such_a_form_names_the_cause_and_what_to_change(
    kind: str, opset: int, text: str
) -> None:
    model = parsed(f"({kind}) => ({kind.partition('[')[0]} y) {{ y = Reshape<allowzero = 1>(x, s) }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError) as caught:
        convert(model, f"onnx:{opset}")
    assert text in str(caught.value)
    assert "declare the sizes of the inputs" in str(caught.value)


# Layers


def attention(width: int, *, mask: bool) -> Any:
    builder = Builder("m")
    shapes = ((-1, -1, width), (-1, -1, width), (-1, -1, 4), *([(-1, -1)] if mask else []))
    inputs = [builder.parameter(f"x{i}", "f32", shape) for i, shape in enumerate(shapes)]
    layer = builder.layer("ScaledDotProductAttention", inputs, {"causal": "false"}, version="opset13")
    builder.result(layer[0], "y")
    return builder.model()


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("width", [-1, 8])
def test_attention_whose_heads_have_a_size_that_a_run_knows(width: int, *, mask: bool) -> None:
    model = attention(width, mask=mask)
    random = np.random.default_rng(0)
    shapes = ((2, 5, 8), (2, 6, 8), (2, 6, 4), *([(5, 6)] if mask else []))
    feeds = {f"x{i}": random.random(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    found = splitops.run(splitops.convert(model, "onnx:18"), feeds, engine="onnxruntime")["y"]
    np.testing.assert_allclose(found, splitops.run(model, feeds, engine="openvino")["y"], rtol=1e-5)
