"""Sizes that are symbols or intervals go through every operator that tools know, in both dialects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import splitops
from peers import less_known
from splitops.models import ops
from splitops.models.formats.openvino import Builder, OpenVINOModel, to_bytes
from splitops.models.infer import AbstractTensor
from splitops.spec import element_type_of
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range
from splitops.spec.sizes.names import evaluate

SYMBOLS = """<ir_version: 9, opset_import: ["": 18]>
    g (float[N, 3, H, W] x, float[8, 3, 3, 3] k, float[N, M] z, int64[3] i) => (float y)
    <float[4] half = {1, 1, 0.5, 0.5}, float[4] third = {1, 1, 0.3, 2}, int64[2] reps = {2, 1},
     int64[1] zero = {0}, int64[1] far = {9223372036854775807}, int64[1] one = {1}, int64[1] two = {2},
     int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}>
    { """
SYMBOL_CASES = [
    ("y = Conv(x, k)", "N, 8, H - 2, W - 2"),
    ("y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k)", "N, 8, ceil(H/2), ceil(W/2)"),
    ("y = Conv<strides = [2, 2], dilations = [2, 1]>(x, k)", "N, 8, ceil(H/2) - 2, ceil(W/2) - 1"),
    ('y = Conv<strides = [2, 2], auto_pad = "SAME_UPPER">(x, k)', "N, 8, ceil(H/2), ceil(W/2)"),
    ('y = Conv<auto_pad = "VALID">(x, k)', "N, 8, H - 2, W - 2"),
    ("y = ConvTranspose<strides = [2, 2]>(x, k)", "N, 3, 2*H + 1, 2*W + 1"),
    ("y = MaxPool<kernel_shape = [3, 3]>(x)", "N, 3, H - 2, W - 2"),
    ("y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", "N, 3, floor(H/2), floor(W/2)"),
    ("y = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)", "N, 3, ?, ?"),
    ("y = AveragePool<kernel_shape = [3, 3], strides = [3, 3]>(x)", "N, 3, floor(H/3), floor(W/3)"),
    ("y = LpPool<kernel_shape = [3, 3]>(x)", "N, 3, H - 2, W - 2"),
    ("y = Resize(x, , half)", "N, 3, floor(H/2), floor(W/2)"),
    ("y = Resize(x, , third)", "N, 3, ?, 2*W"),
    ("y = Pad(x, pads)", "N, 3, H + 2, W + 2"),
    ("y = SpaceToDepth<blocksize = 2>(x)", "N, 12, floor(H/2), floor(W/2)"),
    ("y = Tile(z, reps)", "2*N, M"),
    ("s = Shape(z) n = Gather(s, zero) y = Slice(z, zero, n)", "N, M"),
    ("y = Slice(z, zero, far)", "N, M"),
    ("y = Slice(z, zero, far, one, two)", "N, ceil(M/2)"),
    ("s = Shape(z) n = Gather(s, zero) h = Div(n, two) y = ConstantOfShape(h)", "floor(N/2)"),
    ("s = Shape(z) n = Gather(s, zero) h = Mod(n, two) y = ConstantOfShape(h)", "0..1"),
    ("f = Flatten<axis = 2>(z) y = Concat<axis = 1>(f, f)", "?, 2"),
]


@pytest.mark.parametrize(("nodes", "shape"), SYMBOL_CASES)
def test_symbols_survive_what_the_arithmetic_can_say(nodes: str, shape: str) -> None:
    model = onnx.parser.parse_model(SYMBOLS + nodes + "}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert str(splitops.infer(model)["y"]) == f"float32[{shape}]"


@pytest.mark.parametrize(("nodes", "shape"), SYMBOL_CASES)
@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_what_a_symbol_says_is_what_a_run_gives(nodes: str, shape: str, size: int) -> None:
    """The same model with numbers for its symbols: what is inferred then, onnx has inferred too."""
    text = SYMBOLS.replace("N", "2").replace("H", str(size)).replace("W", str(size + 1)).replace("M", "5")
    model = onnx.parser.parse_model(text + nodes + "}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    exact = splitops.infer(model)["y"]
    open_model = onnx.parser.parse_model(SYMBOLS + nodes + "}")
    open_model.graph.output[0].type.tensor_type.ClearField("shape")
    known = splitops.infer(open_model)["y"]
    assert isinstance(exact, AbstractTensor)
    assert isinstance(known, AbstractTensor)
    assert exact.shape is not None
    assert known.shape is not None
    sizes = {"N": 2, "H": size, "W": size + 1, "M": 5}
    for found, said in zip(exact.shape, known.shape, strict=True):
        if isinstance(said, Range) and said.name is not None and isinstance(found, int):
            assert evaluate(said.name, sizes) == found


Given = tuple[str, str] | Any
"""An input by element type and shape, or the elements of a constant."""

_IMAGE = ("f32", "1..4,6,8..9,?")
_ROWS = ("f32", "2..5,?,7")
_POOL = {"strides": "2,2", "pads_begin": "0,0", "pads_end": "1,1", "kernel": "3,3", "rounding_type": "floor"}
_CONVOLUTION = {"strides": "2,1", "pads_begin": "0,1", "pads_end": "1,1", "dilations": "1,2"}
_FILTERS = np.zeros((8, 6, 3, 3), np.float32)


def _masks(count: int, **masks: str) -> dict[str, str]:
    """The masks of a StridedSlice of some bounds, zeros unless they are given."""
    names = ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    return {f"{name}_mask": masks.get(name, ",".join("0" * count)) for name in names}


_ORDER = {"axis": 0, "mode": "max", "sort": "value", "index_element_type": "i64"}
LAYERS: list[tuple[str, int, dict[str, Any], list[Given], int]] = [
    ("Convolution", 1, {**_CONVOLUTION, "auto_pad": "explicit"}, [_IMAGE, _FILTERS], 1),
    ("Convolution", 1, {**_CONVOLUTION, "auto_pad": "same_upper"}, [_IMAGE, _FILTERS], 1),
    (
        "GroupConvolution",
        1,
        {**_CONVOLUTION, "auto_pad": "valid"},
        [_IMAGE, np.zeros((2, 4, 3, 3, 3), np.float32)],
        1,
    ),
    (
        "ConvolutionBackpropData",
        1,
        {**_CONVOLUTION, "auto_pad": "explicit"},
        [("f32", "1..4,6,8..9,1.."), np.zeros((6, 8, 3, 3), np.float32)],
        1,
    ),
    (
        "ConvolutionBackpropData",
        1,
        {**_CONVOLUTION, "auto_pad": "explicit"},
        [("f32", "1..4,6,8..9,9"), ("f32", "6,8,2..4,3")],
        1,
    ),
    ("MaxPool", 1, _POOL, [_IMAGE], 1),
    ("MaxPool", 8, {**_POOL, "dilations": "1,1", "index_element_type": "i64", "axis": 0}, [_IMAGE], 2),
    ("AvgPool", 1, {**_POOL, "exclude-pad": "true"}, [_IMAGE], 1),
    ("AdaptiveAvgPool", 8, {}, [_IMAGE, np.array([3, 2])], 1),
    ("MatMul", 1, {"transpose_a": False, "transpose_b": True}, [_ROWS, ("f32", "3..4,7")], 1),
    ("ReduceSum", 1, {"keep_dims": False}, [_ROWS, np.array([1])], 1),
    ("ReduceMax", 1, {"keep_dims": True}, [_ROWS, np.array([-1])], 1),
    ("ReduceLogicalOr", 1, {"keep_dims": True}, [("boolean", "2..5,3"), np.array([0])], 1),
    ("Tile", 1, {}, [_ROWS, np.array([2, 1, 3])], 1),
    ("Tile", 1, {}, [_ROWS, np.array([4, 2, 1, 1])], 1),
    ("Pad", 1, {"pad_mode": "edge"}, [_ROWS, np.array([1, 0, 2]), np.array([0, 0, 3])], 1),
    ("Broadcast", 3, {"mode": "bidirectional"}, [_ROWS, np.array([6, 1, 1, 1])], 1),
    ("Broadcast", 3, {"mode": "numpy"}, [("f32", "1..1,7"), np.array([6, 7])], 1),
    ("Range", 4, {"output_type": "i64"}, [np.array(2), np.array(11), np.array(3)], 1),
    ("OneHot", 1, {"axis": 1}, [("i64", "2..5,3"), np.array(9), np.float32(1), np.float32(0)], 1),
    ("TopK", 3, _ORDER, [("f32", "6..9,3"), np.array(4)], 2),
    ("NonZero", 3, {"output_type": "i32"}, [("f32", "2..3,4")], 1),
    ("GatherElements", 6, {"axis": 0}, [_ROWS, ("i64", "2..4,1,7")], 1),
    ("GatherND", 8, {"batch_dims": 1}, [("f32", "2..5,3,4,?"), ("i64", "2..4,6,1")], 1),
    ("StridedSlice", 1, _masks(2), [("f32", "4..9,6"), np.array([1, 0]), np.array([3, 5])], 1),
    (
        "StridedSlice",
        1,
        _masks(3, begin="0,0,1", end="0,0,1", new_axis="1,0,0", shrink_axis="0,1,0"),
        [("f32", "4..9,?"), np.array([0, 2, 0]), np.array([0, 0, 0]), np.array([1, 1, 1])],
        1,
    ),
    (
        "StridedSlice",
        1,
        _masks(2, ellipsis="1,0"),
        [("f32", "4..9,?,6"), np.array([0, -1]), np.array([0, -9]), np.array([1, -2])],
        1,
    ),
    ("DepthToSpace", 1, {"mode": "blocks_first", "block_size": 2}, [("f32", "1..4,8,3..5,?")], 1),
    ("SpaceToDepth", 1, {"mode": "blocks_first", "block_size": 2}, [("f32", "1..4,3,4,8")], 1),
    ("CumSum", 3, {"exclusive": False, "reverse": False}, [_ROWS, np.array(0)], 1),
    ("ScatterNDUpdate", 4, {}, [_ROWS, ("i64", "3,1"), ("f32", "3,?,7")], 1),
    (
        "Interpolate",
        4,
        {"mode": "nearest", "shape_calculation_mode": "scales"},
        [_IMAGE, np.array([1, 1]), np.array([0.5, 2], np.float32), np.array([2, 3])],
        1,
    ),
    (
        "Interpolate",
        11,
        {"mode": "nearest", "shape_calculation_mode": "sizes"},
        [_IMAGE, np.array([4, 5]), np.array([2, 3])],
        1,
    ),
    ("Softmax", 8, {"axis": 1}, [_ROWS], 1),
    ("LRN", 1, {"alpha": 1, "beta": 1, "bias": 1, "size": 3}, [_IMAGE, np.array([1])], 1),
]


_BATCHES = np.arange(4, dtype=np.int64).reshape(2, 2)
_VECTOR = np.array([5, 1, 7, 6, 1])
_BORDER = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 0]), np.array([0, 1]), np.float32(2)]
_CLASSES = [np.array([-1, 2]), np.array(3), np.array(1), np.array(0)]

CONSTANT_LAYERS: list[tuple[str, int, dict[str, Any], list[Any], int, bool]] = [
    ("Broadcast", 3, {"mode": "explicit"}, [_VECTOR, np.array([2, 5, 3]), np.array([1])], 1, True),
    ("Broadcast", 3, {"mode": "explicit"}, [_BATCHES, np.array([2, 3, 2]), np.array([0, 2])], 1, True),
    ("OneHot", 16, {"axis": 1, "negative_indices_mode": "normalize"}, _CLASSES, 1, False),
    ("OneHot", 16, {"axis": 0, "negative_indices_mode": "ignore_negative"}, _CLASSES, 1, True),
    ("OneHot", 1, {"axis": 1}, [np.zeros(0, np.int64), np.array(10**13), *_CLASSES[2:]], 1, False),
    ("TopK", 3, _ORDER, [np.float32([1, np.nan, 3]), np.array(2)], 2, False),
    ("TopK", 3, _ORDER | {"sort": "none"}, [_VECTOR, np.array(2)], 2, False),
    ("TopK", 3, _ORDER | {"sort": "index"}, [_VECTOR, np.array(3)], 2, True),
    ("TopK", 3, _ORDER | {"sort": "index", "mode": "min"}, [_VECTOR, np.array(3)], 2, True),
    ("Eye", 9, {"output_type": "i64"}, [np.array(3), np.array(4), np.array(1)], 1, True),
    ("Eye", 9, {"output_type": "f32"}, [np.array([3]), np.array([2]), np.array([-1])], 1, True),
    ("Eye", 9, {"output_type": "f32"}, [np.array(0), np.array(10**12), np.array(0)], 1, True),
    ("Pad", 12, {"pad_mode": "constant"}, [_BORDER[0], np.array([-1, 0]), *_BORDER[2:]], 1, False),
    ("Pad", 1, {"pad_mode": "reflect"}, _BORDER, 1, False),
    ("StridedSlice", 1, _masks(1, shrink_axis="1"), [_VECTOR, np.array([-1]), np.array([9])], 1, True),
]

_BOUNDS = [np.array([1, 0]), np.array([3, 3])]
IMPOSSIBLE_LAYERS: list[tuple[str, int, dict[str, Any], list[Given], int]] = [
    ("Squeeze", 1, {}, [("f32", "1,3"), np.array([10**12])], 1),
    ("Softmax", 8, {"axis": 10**30}, [_ROWS], 1),
    ("GatherND", 8, {"batch_dims": 2}, [("f32", "2,3"), ("i64", "4,2")], 1),
    ("StridedSlice", 1, _masks(2), [_ROWS, _BOUNDS[0], np.array([3])], 1),
    ("StridedSlice", 1, _masks(2, ellipsis="1,1"), [_ROWS, *_BOUNDS], 1),
    ("StridedSlice", 1, _masks(2), [("f32", "4"), *_BOUNDS], 1),
    ("Pad", 1, {"pad_mode": "edge"}, [_ROWS, np.array([-1]), np.array([0, 1])], 1),
    ("MatMul", 1, {"transpose_a": False, "transpose_b": False}, [("f32", ""), _ROWS], 1),
    ("DepthToSpace", 1, {"mode": "blocks_first", "block_size": 2}, [("f32", "4,4")], 1),
    ("Convolution", 1, {**_CONVOLUTION, "auto_pad": "explicit"}, [("f32", "1,6,9"), _FILTERS], 1),
    ("ConvolutionBackpropData", 1, {**_CONVOLUTION, "auto_pad": "explicit"}, [("f32", "1,8,9"), _FILTERS], 1),
    ("AdaptiveAvgPool", 8, {}, [_IMAGE, np.array([3])], 1),
]


def _layer(type_: str, version: int, data: dict[str, Any], inputs: list[Given], count: int) -> OpenVINOModel:
    builder = Builder()
    ports = [
        builder.parameter(f"x{index}", *one) if isinstance(one, tuple) else builder.const(np.asarray(one))
        for index, one in enumerate(inputs)
    ]
    name = {"Softmax": "SoftMax"}.get(type_, type_)
    for index, output in enumerate(
        builder.layer(name, ports, data, outputs=count, version=f"opset{version}", element_type=None)
    ):
        builder.result(output, f"y{index}")
    return builder.model()


def _dimension(size: Any) -> Dim:
    bound = size.get_max_length()
    return (
        size.get_length() if size.is_static else Range(size.get_min_length(), None if bound == -1 else bound)
    )


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_intervals_go_through_a_layer_as_openvino_infers_them(case: Any) -> None:
    openvino = pytest.importorskip("openvino")
    model = _layer(*case)
    xml, weights = to_bytes(model)
    theirs = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    found = splitops.infer(model)
    for index, output in enumerate(theirs.outputs):
        kind = element_type_of(np.dtype(output.get_element_type().to_dtype()))
        dims = [_dimension(one) for one in output.get_partial_shape()]
        ours = found[f"y{index}"]
        assert less_known(ours, AbstractTensor(kind, tuple(dims))) is None
        assert isinstance(ours, AbstractTensor)
        assert ours.shape is not None
        for dim, own in zip(dims, ours.shape, strict=True):
            if isinstance(own, int):  # and nothing that they exclude
                inside = dim == own if isinstance(dim, int) else dim.lo <= own <= (dim.hi or own)
                assert inside, (str(ours), dims)


@pytest.mark.parametrize("case", CONSTANT_LAYERS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_constants_go_through_a_layer_as_openvino_computes_them(case: Any) -> None:
    openvino = pytest.importorskip("openvino")
    *layer, is_computed = case
    model = _layer(*layer)
    xml, weights = to_bytes(model)
    theirs = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    results = openvino.Core().compile_model(theirs, "CPU")([])
    found = splitops.infer(model)
    for index in range(case[4]):
        _check_elements(found[f"y{index}"], results[index], is_computed=is_computed)


def _check_elements(ours: Any, theirs: Any, *, is_computed: bool) -> None:
    assert ours == AbstractTensor(element_type_of(theirs.dtype), theirs.shape, ours.elements)
    assert (ours.elements is not None) == is_computed
    if is_computed:
        np.testing.assert_array_equal(ours.elements, theirs)


CONSTANT_NODES = [
    ("y = Range(zero, half, one)", False),
    ("y = Range(half, three, one)", False),
    ("y = Range(three, half, minus)", False),
    ("y = Range(zero, three, half)", False),
    ("y = OneHot(none, huge, pair)", False),
    ("y = Compress(x, few)", True),
    ("y = Compress(x, many)", True),
    ("y = Compress<axis = 1>(m, many)", True),
    ("y = Pad(x, crop)", False),
    # A float bound would round integers beyond 2^53.
    ("y = Clip(large, low)", True),
    ("y = Clip(large, , low)", True),
    # The order in which a runtime adds or multiplies floats decides how they are rounded.
    ("y = CumSum(floats, low)", False),
    ("y = MatMul(floats, floats)", False),
    ("y = ReduceMax(floats)", True),
    ("y = ReduceSum(x)", True),
]


@pytest.mark.parametrize(("nodes", "is_computed"), CONSTANT_NODES)
def test_constants_go_through_a_node_as_onnxruntime_computes_them(nodes: str, *, is_computed: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]> g () => (float y)
        <float zero = {{0}}, float half = {{0.5}}, float one = {{1}}, float three = {{3}},
         float minus = {{-1}}, int64[0] none = {{}}, int64 huge = {{10000000000000}},
         int64[2] pair = {{4, 5}}, int64[2] crop = {{-1, 1}}, int64[3] x = {{1, 2, 3}},
         int64[2, 2] m = {{1, 2, 3, 4}}, int64[2] large = {{9007199254740993, -9007199254740993}},
         int64 low = {{0}}, float[3] floats = {{0.1, 0.2, 0.3}},
         bool[2] few = {{0, 1}}, bool[4] many = {{1, 0, 0, 1}}> {{ {nodes} }}""")
    model.graph.output[0].ClearField("type")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    _check_elements(splitops.infer(model)["y"], session.run(None, {})[0], is_computed=is_computed)


@pytest.mark.parametrize("case", IMPOSSIBLE_LAYERS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_layer_that_openvino_rejects_is_left_open(case: Any) -> None:
    openvino = pytest.importorskip("openvino")
    model = _layer(*case)
    xml, weights = to_bytes(model)
    with pytest.raises(RuntimeError):
        openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    ours = splitops.infer(model)["y0"]
    assert isinstance(ours, AbstractTensor)
    assert ours.shape is None


def test_elements_beyond_the_type_of_a_cast_are_left_open() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
        g (float[N] x) => (int32[1] y, float[a] p, float[b] q)
        <int64[1] large = {1099511627776}, int64[1] at = {1}, int64[1] one = {1}, int64[1] first = {0},
         float[2] f = {1.5, 2.7}, float[2] g1 = {1.5, 3.0}, int64[1] two = {2}, int64[1] three = {3}> {
            s = Shape(x) both = Concat<axis = 0>(s, large) narrow = Cast<to = 6>(both)
            y = Gather<axis = 0>(narrow, at)
            e = Equal(s, one) w = Where(e, f, g1) d = Cast<to = 7>(w) head = Gather<axis = 0>(d, first)
            same = Equal(head, one) length = Where(same, one, two) rest = Sub(three, length)
            lengths = Concat<axis = 0>(length, rest) p, q = Split<axis = 0>(x, lengths) }""")
    found = splitops.infer(model)
    assert found["y"].elements is None or found["y"].elements.tolist() == [None]
    parts = splitops.run(model, {"x": np.zeros(3, np.float32)}, engine="reference")
    for name in "pq":
        assert found[name].shape == parts[name].shape


def test_padded_sizes_of_an_interpolation_are_open() -> None:
    for pads in ({"pads_begin": "0,0,1,1"}, {"pads_end": "0,0,1,1"}):
        builder = Builder()
        data = builder.parameter("x", "f32", (1, 1, 4, 4))
        goal = (np.array([8, 8]), np.array([2, 2], np.float32), np.array([2, 3]))
        inputs = [data, *map(builder.const, goal)]
        how = {"mode": "nearest", "shape_calculation_mode": "scales", **pads}
        (made,) = builder.layer("Interpolate", inputs, how, version="opset4", name="y")
        builder.result(made, "y")
        assert splitops.infer(builder.model())["y"].shape == (UNKNOWN,) * 4


def test_an_input_of_unknown_type_is_not_an_absent_one() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "own": 1]>
        g (float[6, 4] x, int64[1] start, int64[1] end) => (y) <int64[1] zero = {0}, int64[1] two = {2}> {
            axes = own.Axes(start)
            y = Slice(x, zero, two, axes) }""")
    found = splitops.infer(model)["y"]
    assert isinstance(found, AbstractTensor)
    assert found.shape in (None, (Range(), Range()))


def test_a_bug_in_what_an_operator_means_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ``Unknown`` says that too little is known."""

    def fail(operands: object) -> AbstractTensor:
        raise TypeError("a bug")

    monkeypatch.setitem(ops.BY_NODE, "Tile", replace(ops.BY_NODE["Tile"], infer=fail))  # type: ignore[arg-type]
    ops.find_node_spelling.cache_clear()
    model = onnx.parser.parse_model(SYMBOLS + "y = Tile(z, reps) }")
    with pytest.raises(TypeError, match="a bug"):
        splitops.infer(model)
    ops.find_node_spelling.cache_clear()
