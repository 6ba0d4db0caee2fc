"""One layer each: what OpenVINO says of it, with inputs at the edges of what it may state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Given:
    """An input of the model; any other array is a constant."""

    array: Any
    shape: Sequence[int] | None = None


@dataclass(frozen=True)
class LayerCase:
    """A layer, as OpenVINO makes it.

    Attributes:
        type: its type, as OpenVINO's factory of nodes has it.
        opset: the operation set of that factory.
        inputs: what it takes, in order.
        attributes: what it declares.
        rejected: a part of the message where ONNX cannot say it; else None.
        outputs: the outputs that are read.
        only: what this case is about.
    """

    type: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rejected: str | None = None
    outputs: tuple[int, ...] = (0,)
    only: str = ""

    @property
    def label(self) -> str:
        return f"{self.type}-{self.opset} {self.only or dict(self.attributes)}".replace(" {}", "")

    @property
    def feeds(self) -> dict[str, Any]:
        given = [np.asarray(value.array) for value in self.inputs if isinstance(value, Given)]
        return {f"x{index}": array for index, array in enumerate(given)}


def x(*shape: int, dtype: Any = np.float32, low: float = -3, high: float = 3) -> Given:
    """An input of random numbers."""
    return Given(values(*shape, dtype=dtype, low=low, high=high))


def values(*shape: int, dtype: Any = np.float32, low: float = -3, high: float = 3) -> Any:
    """Random numbers; of integers both ends."""
    if np.dtype(dtype).kind in "iu":
        return _RANDOM.integers(int(low), int(high) + 1, shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return _RANDOM.integers(0, 2, shape).astype(bool)
    return _RANDOM.uniform(low, high, shape).astype(dtype)


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def _case(type: str, opset: int, *inputs: Any, rejected: str | None = None, **attributes: Any) -> LayerCase:
    outputs = attributes.pop("read", (0,))
    return LayerCase(type, opset, inputs, attributes, rejected, outputs, attributes.pop("only", ""))


def _elementwise() -> Iterator[LayerCase]:
    for name in ("Abs", "Ceiling", "Cos", "Erf", "Exp", "Floor", "Negative", "Relu", "Sigmoid", "Sign"):
        yield _case(name, 1, x(2, 5))
    for name in ("Cosh", "Sin", "Sinh", "Tan", "Tanh", "Atan"):
        yield _case(name, 1, x(2, 5))
    for name, low, high in (("Acos", -1, 1), ("Asin", -1, 1), ("Log", 0.1, 9), ("Sqrt", 0, 9)):
        yield _case(name, 1, x(2, 5, low=low, high=high))
    for name, low, high in (("Acosh", 1, 9), ("Asinh", -3, 3), ("Atanh", -0.9, 0.9)):
        yield _case(name, 4, x(2, 5, low=low, high=high))
    yield _case("SoftPlus", 4, x(2, 5, low=-30, high=30))
    yield _case("SoftSign", 9, x(2, 5))
    yield _case("Mish", 4, x(2, 5, low=-30, high=30))
    yield _case("HSwish", 4, x(2, 5, low=-5, high=5))
    yield _case("HSigmoid", 5, x(2, 5, low=-5, high=5))
    yield _case("Elu", 1, x(2, 5), alpha=0.7)
    yield _case("Gelu", 2, x(2, 5))
    yield _case("Gelu", 7, x(2, 5), approximation_mode="erf")
    yield _case("Gelu", 7, x(2, 5), approximation_mode="tanh")
    yield _case("LogicalNot", 1, x(2, 5, dtype=bool))
    yield _case("Abs", 1, x(2, 5, dtype=np.int64), only="int64")
    yield _case("Relu", 1, x(2, 5, dtype=np.float64), only="float64")
    yield _case("Exp", 1, x(2, 5, dtype=np.float16), only="float16")
    yield _case("Exp", 1, x(2, 5, dtype=np.int32), only="int32", rejected="of int32")
    yield _case("Negative", 1, x(2, 5, dtype=np.int8), only="int8", rejected="of int8")
    halves = Given(f32(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4999, -0.4999))
    yield _case("Round", 5, halves, mode="half_to_even")
    yield _case("Round", 5, halves, mode="half_away_from_zero")
    for name, version in (("Round", 5), ("Floor", 1), ("Ceiling", 1)):
        mode = {"mode": "half_away_from_zero"} if name == "Round" else {}
        yield _case(name, version, x(5, dtype=np.int32), **mode, only="of integers")
    yield _case("Clamp", 1, x(2, 5), min=0.0, max=1.5)
    yield _case("Clamp", 1, x(2, 5, dtype=np.int32), min=-1.5, max=1.5, only="int32 between halves")
    yield _case("Swish", 4, x(2, 5))
    yield _case("Swish", 4, x(2, 5), np.float32(1.5), only="beta")
    yield _case("HardSigmoid", 1, x(2, 5), np.float32(0.3), np.float32(0.4))
    yield _case("Selu", 1, x(2, 5), np.float32(1.6), np.float32(1.05))
    computed = "is computed when the model runs"
    yield _case(
        "Selu", 1, x(2, 5), Given(np.float32(1.6)), np.float32(1.05), only="computed", rejected=computed
    )
    double = (x(2, 5, dtype=np.float64), np.float64(0.1), np.float64(0.5))
    yield _case("HardSigmoid", 1, *double, only="float64", rejected="is not exact in float32")
    yield _case("PRelu", 1, x(2, 3, 4, 3), values(3), only="a slope a channel")
    open_channels = Given(values(2, 3, 4), [2, -1, 4])
    yield _case("PRelu", 1, open_channels, values(3), only="open channels", rejected="the number of channels")
    yield _case("PRelu", 1, x(2, 3, 4, 5), values(5), only="a slope a column")
    yield _case("PRelu", 1, x(2, 3, 4, 5), values(1), only="one slope")
    yield _case("PRelu", 1, x(2, 3), values(3), only="rank 2")
    strange = Given(f32(1, np.nan, np.inf, -np.inf, 0))
    for name in ("IsNaN", "IsFinite", "IsInf"):
        yield _case(name, 10, strange)
    for signs in ({"detect_negative": False}, {"detect_positive": False}):
        yield _case("IsInf", 10, strange, **signs)
    yield _case("Identity", 16, x(2, 5))
    yield _case("ConvertLike", 1, x(2, 5, dtype=np.int32), f32(0))
    yield _case("ConvertLike", 1, x(2, 5), i64(0), rejected="from float32 to int64")
    for levels in (2, 255, 256):
        edges = (f32(-2), f32(2), f32(-1), f32(3))
        yield _case("FakeQuantize", 1, x(4, 50), *edges, levels=levels)
    yield _case(
        "FakeQuantize",
        1,
        x(2, 3, 4, 4),
        *(values(1, 3, 1, 1, low=a, high=a + 1) for a in (-2, 1, -1, 0)),
        levels=16,
    )


def _binary() -> Iterator[LayerCase]:
    shapes = ((2, 1, 5), (3, 1))
    for name in ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "SquaredDifference"):
        yield _case(name, 1, *(x(*shape) for shape in shapes))
        yield _case(name, 1, *(x(*shape, dtype=np.int32) for shape in shapes), only="int32")
        yield _case(
            name, 1, *(x(*shape, dtype=np.uint8, low=0) for shape in shapes), only="uint8", rejected="uint8"
        )
    for name in ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"):
        for kind in (np.float32, np.int64, np.uint8):
            yield _case(
                name, 1, *(x(*shape, dtype=kind, low=0) for shape in shapes), only=np.dtype(kind).name
            )
    for name in ("LogicalAnd", "LogicalOr", "LogicalXor"):
        yield _case(name, 1, *(x(*shape, dtype=bool) for shape in shapes))
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield _case(name, 13, *(x(*shape, dtype=np.int32) for shape in shapes))
    yield _case("BitwiseNot", 13, x(2, 5, dtype=np.int32))
    yield _case("Add", 1, x(2, 5), x(2, 5), auto_broadcast="none")
    yield _case("Divide", 1, x(2, 1, 5), x(3, 1, low=1))
    yield _case("Divide", 1, x(2, 5), x(2, 5), auto_broadcast="none")
    yield _case("Power", 1, x(2, 1, 5, low=0.1), x(3, 1))
    yield _case("Power", 1, x(2, 5, dtype=np.int32), i64(2).astype(np.int32), only="int32", rejected="int32")
    signed = [Given(np.array([-7, -7, 7, 7, 6], np.int32)), np.array([3, -3, 3, -3, 3], np.int32)]
    for floors in (True, False):
        yield _case("Divide", 1, *signed, m_pythondiv=floors)
    least = [Given(np.array([-(2**31), 2**31 - 1], np.int32)), np.array([3, -5], np.int32)]
    yield _case("Divide", 1, *least, m_pythondiv=True, only="at the ends of int32")
    yield _case("Mod", 1, *signed)
    yield _case("FloorMod", 1, *signed)
    yield _case("Mod", 1, x(2, 5), f32(1.5), only="float32")
    yield _case("FloorMod", 1, x(2, 5), f32(1.5), only="float32")
    yield _case("FloorMod", 1, x(2, 5), f32(-1.5), only="float32, negative")
    yield _case("Select", 1, x(2, 1, 5, dtype=bool), x(3, 1), x(2, 3, 5))
    yield _case("Select", 1, x(2, 5, dtype=bool), x(2, 5, dtype=np.int64), i64(7), only="int64")


def _windows() -> Iterator[LayerCase]:
    image = (1, 4, 8, 9)
    plain = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]}
    padded = {"strides": [2, 1], "pads_begin": [1, 0], "pads_end": [2, 3], "dilations": [1, 2]}
    for name, filters in (("Convolution", (6, 4, 3, 2)), ("GroupConvolution", (2, 3, 2, 3, 2))):
        for attributes in (plain, padded):
            yield _case(name, 1, x(*image), values(*filters), **attributes)
        for auto in ("same_upper", "same_lower", "valid"):
            yield _case(name, 1, x(*image), values(*filters), **padded, auto_pad=auto)
        yield _case(
            name, 1, x(*image, dtype=np.float16), values(*filters, dtype=np.float16), **plain, only="float16"
        )
        yield _case(name, 1, x(*image), x(*filters), **plain, only="computed filters")
    deep = {"strides": [1, 2, 1], "pads_begin": [0, 1, 0], "pads_end": [1, 1, 0], "dilations": [1, 1, 1]}
    yield _case("Convolution", 1, x(1, 2, 5, 6, 7), values(3, 2, 2, 3, 2), **deep, only="volume")
    line = {"strides": [2], "pads_begin": [1], "pads_end": [0], "dilations": [2]}
    yield _case("Convolution", 1, x(1, 2, 9), values(3, 2, 3), **line, only="line")
    yield _case(
        "Convolution",
        1,
        Given(values(*image), [-1, 4, -1, -1]),
        values(6, 4, 3, 2),
        **padded,
        only="open sizes",
    )
    for name, filters in (
        ("ConvolutionBackpropData", (4, 3, 3, 2)),
        ("GroupConvolutionBackpropData", (2, 2, 3, 3, 2)),
    ):
        yield _case(name, 1, x(*image), values(*filters), strides=[2, 3])
        more = {**padded, "strides": [2, 3], "output_padding": [1, 2]}
        yield _case(name, 1, x(*image), values(*filters), **more)
    yield _case(
        "ConvolutionBackpropData",
        1,
        x(*image),
        values(4, 3, 3, 2),
        strides=[2, 2],
        auto_pad="same_upper",
        rejected="same_upper",
    )
    yield _case(
        "ConvolutionBackpropData",
        1,
        x(*image),
        values(4, 3, 3, 2),
        i64(9, 9),
        strides=[1, 1],
        rejected="omits the last 1 of axis 2",
    )
    sized = (Given(values(*image), [1, 4, -1, 9]), values(4, 3, 3, 2), i64(10, 10))
    yield _case(
        "ConvolutionBackpropData", 1, *sized, **plain, only="an open size", rejected="the size of axis 2"
    )
    filters = Given(values(2, 3, 2, 3, 2), [-1, 3, 2, 3, 2])
    yield _case("GroupConvolution", 1, x(*image), filters, **plain, only="open groups", rejected="the shape")
    for auto_pad, goal in (("same_upper", (15, 17)), ("same_lower", (15, 17)), ("valid", (18, 18))):
        shaped = {"strides": [2, 2], "auto_pad": auto_pad, "only": f"{auto_pad} to {goal}"}
        yield _case("ConvolutionBackpropData", 1, x(*image), values(4, 3, 3, 2), i64(*goal), **shaped)

    window = {"strides": [2, 2], "pads_begin": [1, 0], "pads_end": [1, 0], "kernel": [3, 2]}
    for rounding in ("floor", "ceil"):
        yield _case("MaxPool", 1, x(*image), **window, rounding_type=rounding)
        yield _case("MaxPool", 8, x(*image), **window, rounding_type=rounding, dilations=[1, 2])
        yield _case("AvgPool", 1, x(*image), **window, rounding_type=rounding, **{"exclude-pad": True})
    for rounding in ("floor", "ceil", "ceil_torch"):
        yield _case("MaxPool", 14, x(*image), **window, rounding_type=rounding, dilations=[1, 1])
        yield _case("AvgPool", 14, x(*image), **window, rounding_type=rounding, **{"exclude-pad": True})
    for auto in ("same_upper", "same_lower", "valid"):
        yield _case("MaxPool", 1, x(*image), **window, auto_pad=auto)
        for excludes in (True, False):
            yield _case("AvgPool", 1, x(*image), **window, auto_pad=auto, **{"exclude-pad": excludes})
    yield _case("AvgPool", 1, x(*image), **window, **{"exclude-pad": False})
    for wide in ([1, 1], [2, 1]):
        attributes = {"exclude-pad": True, "dilations": wide, "rounding_type": "ceil_torch"}
        yield _case("AvgPool", 16, x(*image), **window, **attributes)
    yield _case(
        "MaxPool", 1, x(*image), **{**window, "strides": [1, 1]}, rounding_type="ceil", only="steps of 1"
    )
    yield _case(
        "MaxPool",
        1,
        Given(values(*image), [-1, 4, -1, -1]),
        **window,
        auto_pad="same_upper",
        only="open, same",
    )
    both = {**window, "exclude-pad": False, "rounding_type": "ceil"}
    yield _case(
        "AvgPool", 1, x(1, 4, 10, 8), **both, rejected="and rounds up, which the specifications leave"
    )
    far = {"strides": [3], "pads_begin": [1], "pads_end": [1], "kernel": [2]}
    yield _case(
        "MaxPool",
        14,
        x(1, 2, 6),
        **far,
        dilations=[1],
        rounding_type="ceil_torch",
        only="ceil_torch, none dropped",
    )
    yield _case(
        "MaxPool",
        14,
        x(1, 2, 5),
        **far,
        dilations=[1],
        rounding_type="ceil_torch",
        only="ceil_torch, last dropped",
    )
    yield _case(
        "AvgPool",
        14,
        x(1, 2, 5),
        **far,
        **{"exclude-pad": True},
        rounding_type="ceil_torch",
        only="ceil_torch, last dropped",
    )
    yield _case(
        "MaxPool",
        8,
        x(1, 2, 5),
        **far,
        dilations=[1],
        rounding_type="ceil",
        only="ceil into padding",
        rejected="begin in the padding",
    )
    open_ = Given(values(*image), [-1, 4, -1, -1])
    ceil = {"rounding_type": "ceil", "dilations": [1, 1]}
    rejected = "may begin in the padding"
    yield _case("MaxPool", 8, open_, **window, **ceil, only="ceil, open sizes, inside")
    outside = {**window, "pads_end": [1, 1]}
    yield _case("MaxPool", 8, open_, **outside, **ceil, only="ceil, open sizes", rejected=rejected)
    wide = {**window, "pads_end": [3, 0]}
    yield _case("MaxPool", 8, x(*image), **wide, dilations=[1, 1], rejected="contain only padding")
    for kind in ("i64", "i32"):
        yield _case("MaxPool", 8, x(*image), **window, dilations=[1, 1], index_element_type=kind, read=(0, 1))
    yield _case(
        "MaxPool", 8, x(*image), **window, dilations=[1, 1], axis=2, read=(0, 1), rejected="from axis 2"
    )
    yield _case("AdaptiveAvgPool", 8, x(*image), i64(1, 1))
    yield _case("AdaptiveAvgPool", 8, x(*image), i64(4, 3))
    yield _case("AdaptiveAvgPool", 8, x(*image), i64(3, 4), rejected="windows of different sizes, which ONNX")


def _products() -> Iterator[LayerCase]:
    for a, b in ((False, False), (True, False), (False, True), (True, True)):
        left, right = ((2, 4, 3) if a else (2, 3, 4)), ((5, 4) if b else (4, 5))
        yield _case("MatMul", 1, x(*left), values(*right), transpose_a=a, transpose_b=b)
    yield _case("MatMul", 1, x(4), x(2, 4, 5), transpose_a=False, transpose_b=False, only="vector")
    yield _case("MatMul", 1, x(4), x(5, 4), transpose_a=True, transpose_b=True, only="turned vector")
    yield _case("Einsum", 7, x(2, 3), x(3, 4), equation="ab,bc->ca")
    queries = (x(2, 3, 5, 8), x(2, 3, 6, 8), x(2, 3, 6, 4))
    name, plain = "ScaledDotProductAttention", {"causal": False}
    yield _case(name, 13, *queries, **plain)
    yield _case(name, 13, *queries, causal=True)
    yield _case(name, 13, *queries, x(5, 6), **plain, only="mask")
    yield _case(name, 13, *queries, Given(np.tri(5, 6, dtype=bool)), **plain, only="mask of truths")
    yield _case(name, 13, *queries, x(5, 6), np.float32(0.3), **plain, only="mask and scale")
    yield _case(
        name,
        13,
        Given(values(2, 3, 5, 8), [-1, -1, -1, -1]),
        *queries[1:],
        **plain,
        only="open sizes",
    )


def _reductions() -> Iterator[LayerCase]:
    for name in ("ReduceMean", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"):
        for axes, keep in ((i64(1), True), (i64(-1, 0), False), (np.int64(1), False)):
            yield _case(name, 1, x(2, 3, 4), axes, keep_dims=keep)
    yield _case("ReduceMax", 1, x(2, 3, dtype=np.int64), i64(0), keep_dims=True, only="int64")
    yield _case(
        "ReduceMean", 1, x(2, 3, dtype=np.int64), i64(0), keep_dims=True, only="int64", rejected="of int64"
    )
    none = np.zeros(0, np.int64)
    yield _case("ReduceMax", 1, x(2, 3), none, keep_dims=True, only="no axis")
    for name in ("ReduceL1", "ReduceL2"):
        yield _case(name, 4, x(2, 3, 4), i64(1), keep_dims=True)
        yield _case(name, 4, x(2, 3, 4), none, keep_dims=True, rejected="reduces no axis: OpenVINO")
    for name in ("ReduceLogicalAnd", "ReduceLogicalOr"):
        yield _case(name, 1, x(2, 3, 4, dtype=bool), i64(-1), keep_dims=False)
    yield _case(
        "ReduceSum", 1, x(2, 3), Given(i64(1)), keep_dims=True, only="computed axes", rejected="axes of"
    )
    channels = [values(3), values(3), values(3), values(3, low=0.5)]
    yield _case("BatchNormInference", 5, x(2, 3, 4), *channels, epsilon=1e-3)
    yield _case("BatchNormInference", 1, *channels[:2], x(2, 3, 4), *channels[2:], epsilon=1e-3)
    for mode in ("inside_sqrt", "outside_sqrt"):
        yield _case("MVN", 6, x(2, 3, 4), i64(-1, 1), normalize_variance=True, eps=0.5, eps_mode=mode)
    yield _case("MVN", 6, x(2, 3, 4), i64(2), normalize_variance=False, eps=0.5, eps_mode="inside_sqrt")
    for across in (True, False):
        yield _case("MVN", 2, x(2, 3, 4), across_channels=across, normalize_variance=True, eps=0.5)
    for mode in ("add", "max"):
        for axes in (i64(1), i64(1, 2)):
            yield _case("NormalizeL2", 1, x(2, 3, 4, 5), axes, eps=3.0, eps_mode=mode)
    yield _case("GroupNormalization", 12, x(2, 6, 4, 5), values(6), values(6), num_groups=3, epsilon=1e-3)
    for size, rejected in ((3, None), (4, "even size")):
        yield _case(
            "LRN", 1, x(1, 7, 4, 5), i64(1), alpha=0.5, beta=0.75, bias=2.0, size=size, rejected=rejected
        )
    yield _case(
        "LRN",
        1,
        x(1, 7, 4, 5),
        i64(2, 3),
        alpha=0.5,
        beta=0.75,
        bias=2.0,
        size=3,
        rejected="other axes than channels",
    )
    for axis in (1, -2, 2):
        yield _case("Softmax", 8, x(2, 3, 4), axis=axis)
        yield _case("LogSoftmax", 5, x(2, 3, 4), axis=axis)
    yield _case("Softmax", 1, x(2, 3, 4), axis=1)


def _positions() -> Iterator[LayerCase]:
    table = values(4, 3, 5)
    yield _case("GatherElements", 6, x(4, 3), i64(0, 3, 1, 2, 2, 0).reshape(2, 3), axis=0)
    yield _case("GatherND", 8, x(4, 3, 5), i64(0, 2, 3, 1).reshape(2, 2))
    yield _case("GatherND", 8, x(2, 3, 5), i64(0, 2, 1, 1).reshape(2, 2, 1), batch_dims=1)
    yield _case("GatherND", 5, x(2, 3, 5), i64(0, 2, 1, 1).reshape(2, 2, 1), batch_dims=1)
    yield _case(
        "GatherND",
        5,
        x(2, 2, 5),
        i64(0, 2, 1, 1).reshape(2, 2, 1),
        batch_dims=2,
        rejected="flattens 2 batch axes, which ONNX does not",
    )
    indices = i64(1, 0, 2, 3, 2, 0).reshape(2, 3)
    yield _case("ScatterElementsUpdate", 3, x(4, 3), indices, x(2, 3), i64(0))
    for how in ("none", "sum", "prod", "max", "min"):
        yield _case(
            "ScatterElementsUpdate", 12, x(4, 3), indices, x(2, 3), i64(0), reduction=how, use_init_val=True
        )
    yield _case(
        "ScatterElementsUpdate",
        12,
        x(4, 3),
        indices,
        x(2, 3),
        i64(0),
        reduction="sum",
        use_init_val=False,
        rejected="omits the initial",
    )
    yield _case(
        "ScatterElementsUpdate",
        12,
        x(4, 3),
        indices,
        x(2, 3),
        i64(0),
        reduction="mean",
        use_init_val=True,
        rejected="'mean'",
    )
    yield _case("ScatterNDUpdate", 4, Given(table), i64(3, 0).reshape(2, 1), x(2, 3, 5))
    for how in ("none", "sum", "prod", "max", "min"):
        yield _case("ScatterNDUpdate", 15, Given(table), i64(3, 0).reshape(2, 1), x(2, 3, 5), reduction=how)
    yield _case(
        "ScatterNDUpdate",
        15,
        Given(table),
        i64(3, 0).reshape(2, 1),
        x(2, 3, 5),
        reduction="sub",
        rejected="'sub'",
    )
    yield _case("ScatterUpdate", 3, Given(table), i64(3, 0), x(2, 3, 5), i64(0))
    yield _case("ScatterUpdate", 3, Given(table), i64(2, 0), x(4, 2, 5), i64(1), rejected="along axis 1")
    for exclusive, reverse in ((False, False), (True, False), (True, True)):
        yield _case("CumSum", 3, x(2, 5), np.int64(1), exclusive=exclusive, reverse=reverse)
    for mode in ("max", "min"):
        yield _case(
            "TopK",
            11,
            x(3, 7),
            np.int64(4),
            axis=-1,
            mode=mode,
            sort="value",
            index_element_type="i32",
            read=(0, 1),
        )
    yield _case(
        "TopK",
        3,
        x(5, 2),
        np.int64(2),
        axis=0,
        mode="max",
        sort="value",
        index_element_type="i64",
        read=(0, 1),
    )
    yield _case("TopK", 1, x(5, 2), np.int64(2), axis=0, mode="max", sort="value", read=(0, 1))
    yield _case(
        "TopK", 11, x(3, 7), np.int64(4), axis=-1, mode="max", sort="index", rejected="sort = 'index'"
    )
    yield _case("NonZero", 3, x(3, 4, dtype=bool), output_type="i32")
    yield _case("NonZero", 3, x(3, 4, dtype=bool), output_type="i64")
    for axis in (-1, 0):
        yield _case(
            "OneHot", 1, Given(i64(0, 2, -1, 3)), np.int64(3), np.float32(5), np.float32(-1), axis=axis
        )
    hot = (Given(i64(0, 2, -1, 3)), np.int64(3), np.float32(5), np.float32(-1))
    for counted, rejected in (("ignore_negative", None), ("normalize", "'normalize'")):
        yield _case("OneHot", 16, *hot, axis=0, negative_indices_mode=counted, rejected=rejected)
    yield _case("ReverseSequence", 1, x(2, 5, 3), i64(3, 5), batch_axis=0, seq_axis=1)
    yield _case("ReverseSequence", 1, x(5, 2, 3), i64(3, 5), batch_axis=1, seq_axis=0)
    yield _case("ReverseSequence", 1, x(2, 3, 5), i64(3, 5), batch_axis=0, seq_axis=2)
    yield _case("ReverseSequence", 1, x(4, 3, 2), i64(3, 1), batch_axis=2, seq_axis=0)
    yield _case("Range", 4, Given(np.int64(2)), Given(np.int64(11)), np.int64(3), output_type="i64")
    yield _case("Range", 4, Given(np.int64(9)), np.int64(0), np.int64(-2), output_type="i32")
    mixed = Given(np.int32(2)), Given(np.int64(11)), np.int64(3)
    yield _case("Range", 4, *mixed, output_type="i64", only="of both integers")
    yield _case("Range", 4, *mixed, output_type="i32", only="of both integers, as int32")
    yield _case("Range", 4, Given(np.float32(0)), np.float32(1), np.float32(0.3), output_type="f32")
    for kinds in (
        (np.int64, np.int32, np.uint8),
        (np.uint8, np.int64, np.int16),
        (np.int32, np.int32, np.int64),
    ):
        first, last, step = (kind(number) for kind, number in zip(kinds, (1, 9, 2), strict=True))
        names = ", ".join(kind.__name__ for kind in kinds)
        for told in ("i32", "i64", "f32", "f64"):
            given = Given(first), Given(last), step
            yield _case("Range", 4, *given, output_type=told, only=f"of {names} as {told}")
    floats = Given(np.int32(0)), Given(np.int64(3)), np.float32(0.75)
    yield _case("Range", 4, *floats, output_type="f32", only="of integers by a fraction")
    halves = (Given(np.float16(0)), np.float16(2), np.float16(1))
    yield _case("Range", 4, *halves, output_type="f16", rejected="as float16, which differs in ONNX")
    yield _case(
        "Range",
        4,
        Given(np.float32(0.5)),
        np.float32(4),
        np.float32(1),
        output_type="i64",
        rejected="counts float32",
    )


def _arranging() -> Iterator[LayerCase]:
    yield _case("Broadcast", 3, x(3, 1), i64(2, 3, 4))
    yield _case("Broadcast", 3, x(3, 1), i64(2, 1, 4), mode="bidirectional")
    for opset in (1, 3):
        yield _case("Broadcast", opset, x(3), i64(2, 3, 4), i64(1), mode="explicit")
    yield _case("Tile", 1, x(2, 3), i64(2, 1))
    yield _case("Tile", 1, x(2, 3), i64(3), only="fewer repeats")
    yield _case("Tile", 1, x(2, 3), i64(2, 1, 2), only="more repeats")
    for mode in ("constant", "edge", "reflect"):
        yield _case("Pad", 1, x(4, 5), i64(1, 0), i64(2, 3), pad_mode=mode)
    yield _case("Pad", 1, x(4, 5), i64(1, 0), i64(2, 3), np.float32(7), pad_mode="constant", only="value")
    yield _case("Pad", 12, x(4, 5), i64(-1, 0), i64(2, -3), pad_mode="constant", only="negative")
    yield _case("Pad", 1, x(4, 5), i64(1, 0), i64(2, 3), pad_mode="symmetric", rejected="'symmetric'")
    masks = {"begin_mask": [0, 0, 0], "end_mask": [0, 0, 0]}
    data = x(4, 5, 6)
    yield _case("StridedSlice", 1, data, i64(1, 0, -2), i64(3, 5, 6), i64(1, 2, 1), **masks)
    yield _case(
        "StridedSlice",
        1,
        data,
        i64(1, 4, 2),
        i64(3, 0, 6),
        i64(1, -1, 1),
        begin_mask=[1, 0, 1],
        end_mask=[0, 1, 1],
    )
    yield _case(
        "StridedSlice",
        1,
        data,
        i64(1, 0, -1),
        i64(2, 5, 0),
        i64(1, 1, 1),
        **masks,
        shrink_axis_mask=[1, 0, 1],
    )
    yield _case(
        "StridedSlice", 1, data, i64(0, 0, 1), i64(0, 4, 5), i64(1, 1, 1), **masks, new_axis_mask=[1, 0, 0]
    )
    yield _case(
        "StridedSlice",
        1,
        data,
        i64(0, 1),
        i64(0, 3),
        i64(1, 1),
        begin_mask=[0, 0],
        end_mask=[0, 0],
        ellipsis_mask=[1, 0],
    )
    for ellipsis, dropped, new in ([0, 1, 0], [1, 0, 0], [0, 0, 0]), ([0, 0, 1], [0, 1, 0], [1, 0, 0]):
        axes = {"ellipsis_mask": ellipsis, "shrink_axis_mask": dropped, "new_axis_mask": new}
        yield _case("StridedSlice", 1, data, i64(1, 2, 0), i64(2, 3, 5), i64(1, 1, 1), **masks, **axes)
    begins, ends = Given(i64(1, -1, 4)), Given(i64(3, 9, 0))
    steps = i64(1, 1, -2)
    yield _case("StridedSlice", 1, data, begins, ends, steps, **masks, only="computed bounds")
    yield _case("StridedSlice", 1, data, begins, i64(3, 9, 0), steps, **masks, only="computed begins")
    some = {"begin_mask": [1, 0, 0], "end_mask": [0, 0, 1], "shrink_axis_mask": [0, 1, 0]}
    yield _case("StridedSlice", 1, data, begins, ends, steps, **some, only="computed bounds and masks")
    open_steps = {"only": "computed steps", "rejected": "the steps of StridedSlice"}
    yield _case("StridedSlice", 1, data, begins, ends, Given(steps), **masks, **open_steps)
    for mode in ("blocks_first", "depth_first"):
        yield _case("DepthToSpace", 1, x(1, 8, 2, 3), mode=mode, block_size=2)
        rejected = None if mode == "blocks_first" else "depth_first"
        yield _case("SpaceToDepth", 1, x(1, 2, 4, 6), mode=mode, block_size=2, rejected=rejected)
    yield _case("ShuffleChannels", 1, x(2, 6, 2, 3), axis=1, group=3)
    yield _case("ShuffleChannels", 1, x(2, 3, 6), axis=-1, group=2)
    yield _case("Roll", 7, x(4, 5), i64(1, -2), i64(0, 1))
    yield _case("Roll", 7, x(4, 5), i64(7), i64(-1))
    yield _case("Roll", 7, x(4, 5), i64(4, 2), i64(0, 1), only="a whole turn")
    rows = Given(values(4, 5), [-1, 5])
    yield _case("Roll", 7, rows, i64(-6, 2), i64(0, 1), only="an open axis")
    yield _case("Roll", 7, x(4, 5), Given(i64(-9, 3)), i64(-2, 1), only="a computed shift")


def _images() -> Iterator[LayerCase]:
    image = (1, 2, 5, 4)
    for mode in ("nearest", "linear_onnx", "cubic"):
        for how in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
            attributes = {
                "mode": mode,
                "coordinate_transformation_mode": how,
                "shape_calculation_mode": "sizes",
            }
            yield _case("Interpolate", 11, x(*image), i64(7, 9), i64(2, 3), **attributes)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        attributes = {
            "mode": "nearest",
            "coordinate_transformation_mode": "half_pixel",
            "nearest_mode": rounding,
        }
        for axes in ((i64(2, 3),), ()):
            scales = f32(1.5, 0.6) if axes else f32(1, 1, 1.5, 0.6)
            yield _case(
                "Interpolate", 11, x(*image), scales, *axes, **attributes, shape_calculation_mode="scales"
            )
    for how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        attributes = {"mode": "linear_onnx", "coordinate_transformation_mode": how}
        yield _case(
            "Interpolate", 11, x(*image), i64(1, 9), i64(2, 3), **attributes, shape_calculation_mode="sizes"
        )
    strange = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    how, rejected = "sizes", "'tf_half_pixel_for_nn'"
    yield _case(
        "Interpolate",
        11,
        x(*image),
        i64(1, 9),
        i64(2, 3),
        **strange,
        shape_calculation_mode=how,
        rejected=rejected,
    )
    older = {"mode": "linear_onnx", "coordinate_transformation_mode": "half_pixel"}
    for how in ("sizes", "scales"):
        yield _case(
            "Interpolate", 4, x(*image), i64(10, 8), f32(2, 2), i64(2, 3), **older, shape_calculation_mode=how
        )
    yield _case(
        "Interpolate",
        11,
        x(*image),
        i64(7, 9),
        i64(2, 3),
        mode="linear",
        shape_calculation_mode="sizes",
        rejected="mode = 'linear'",
    )
    smooth = {"mode": "cubic", "shape_calculation_mode": "sizes", "antialias": True}
    yield _case("Interpolate", 11, x(*image), i64(7, 9), i64(2, 3), **smooth, rejected="sets antialias")
    pads = {"pads_begin": [0, 0, 1, 0], "pads_end": [0, 0, 0, 0]}
    yield _case(
        "Interpolate",
        11,
        x(*image),
        i64(7, 9),
        i64(2, 3),
        mode="nearest",
        shape_calculation_mode="sizes",
        **pads,
        rejected="pads its data, which ONNX does not",
    )
    grid = x(1, 3, 6, 2, low=-1.2, high=1.2)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            yield _case(
                "GridSample",
                9,
                x(*image),
                grid,
                align_corners=padding == "zeros",
                mode=mode,
                padding_mode=padding,
            )
    boxes = np.array([[0, 0, 3, 2], [1, 1, 2.5, 4]], np.float32)
    align = {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": 2, "spatial_scale": 0.5, "mode": "avg"}
    align_cases = (("asymmetric", None), ("half_pixel_for_nn", None), ("half_pixel", "'half_pixel'"))
    for how, rejected in align_cases:
        yield _case(
            "ROIAlign",
            9,
            x(1, 2, 8, 8),
            boxes,
            i64(0, 0).astype(np.int32),
            **align,
            aligned_mode=how,
            rejected=rejected,
        )
    yield _case("ROIAlign", 3, x(1, 2, 8, 8), boxes, i64(0, 0).astype(np.int32), **align)
    yield _case("ROIAlign", 3, x(1, 2, 8, 8), boxes, i64(0, 0), **{**align, "mode": "max"}, rejected="'max'")
    corners = np.sort(values(1, 12, 2, 2, low=0, high=8), axis=2).reshape(1, 12, 4)
    scores = Given(values(1, 2, 12, low=0, high=1))
    limits = (np.int64(4), np.float32(0.3), np.float32(0.2))
    for encoding in ("corner", "center"):
        given = Given(corners if encoding == "corner" else np.abs(corners) + 1)
        yield _case(
            "NonMaxSuppression",
            9,
            given,
            scores,
            *limits,
            np.float32(0),
            box_encoding=encoding,
            sort_result_descending=False,
        )
    zero = np.float32(0)
    halves = f32(0, 0, 1, 2, 0, 0, 1, 1, 5, 5, 6, 6).reshape(1, 3, 4)
    ties = (np.int64(4), np.float32(0.5), np.float32(0.25))
    marks = Given(f32(0.75, 0.5, 0.3).reshape(1, 1, 3))
    yield _case(
        "NonMaxSuppression",
        9,
        Given(halves),
        marks,
        *ties,
        zero,
        sort_result_descending=False,
        only="at the threshold",
    )
    yield _case(
        "NonMaxSuppression",
        5,
        Given(corners),
        scores,
        *limits,
        zero,
        sort_result_descending=False,
        output_type="i32",
    )
    yield _case(
        "NonMaxSuppression",
        9,
        Given(corners),
        scores,
        *limits,
        np.float32(0),
        box_encoding="corner",
        sort_result_descending=True,
        rejected="boxes across classes, which ONNX does not",
    )


def _transforms() -> Iterator[LayerCase]:
    data = x(2, 4, 6, 2)
    for name in ("DFT", "IDFT"):
        yield _case(name, 7, data, i64(1, -1))
        yield _case(name, 7, data, i64(1, 2), i64(3, 8), only="of other sizes")
    yield _case("RDFT", 9, data, i64(1, 2))
    yield _case("RDFT", 9, data, i64(-2), i64(3), only="of another size")


def _recurrent() -> Iterator[LayerCase]:
    batch, steps, size, hidden = 2, 5, 3, 4
    lengths = np.array([5, 3], np.int32)
    for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        data, state = x(batch, steps, size), x(batch, ways, hidden)

        def weights(gates: int, biases: int, ways: int = ways) -> list[Any]:
            shapes = ((ways, gates * hidden, size), (ways, gates * hidden, hidden), (ways, biases * hidden))
            return [values(*shape, low=-1, high=1) for shape in shapes]

        rows: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "clip": 0.0}
        for name in ("activations_alpha", "activations_beta"):
            rows[name] = []
        lstm, gru = ["sigmoid", "tanh", "tanh"], ["sigmoid", "tanh"]
        yield _case(
            "LSTMSequence",
            5,
            data,
            state,
            x(batch, ways, hidden),
            lengths,
            *weights(4, 4),
            **rows,
            activations=lstm,
            read=(0, 1, 2),
            only=direction,
        )
        for resets in (False, True):
            attributes = {"linear_before_reset": resets, "read": (0, 1), "only": f"{direction} {resets}"}
            yield _case(
                "GRUSequence",
                5,
                data,
                state,
                lengths,
                *weights(3, 4 if resets else 3),
                **rows,
                activations=gru,
                **attributes,
            )
        yield _case(
            "RNNSequence",
            5,
            data,
            state,
            lengths,
            *weights(1, 1),
            **rows,
            activations=["relu"],
            read=(0, 1),
            only=direction,
        )
    clipped = {"hidden_size": 1, "direction": "forward", "clip": 0.2, "activations": ["tanh"]}
    small = [values(1, 1, 1), values(1, 1, 1), values(1, 1)]
    given = (x(1, 3, 1), x(1, 1, 1), np.array([3], np.int32))
    lists: dict[str, Any] = {"activations_alpha": [], "activations_beta": []}
    yield _case("RNNSequence", 5, *given, *small, **clipped, **lists, only="clipped")
    wide = 1100  # squared, more numbers than conversion reads of what may be a size
    large = [values(1, *shape, low=-0.01, high=0.01) for shape in ((wide, 1), (wide, wide), (wide,))]
    given = (x(1, 1, 1), x(1, 1, wide), np.array([1], np.int32))
    rows = {"hidden_size": wide, "direction": "forward", "clip": 0.0, "activations": ["tanh"]}
    none: dict[str, Any] = {"activations_alpha": [], "activations_beta": []}
    yield _case("RNNSequence", 5, *given, *large, **rows, **none, only="large weights")
    yield from _cells()


def _cells() -> Iterator[LayerCase]:
    batch, size, hidden = 2, 3, 4
    data, state = x(batch, size), x(batch, hidden)
    cells: list[tuple[str, int, int, int, dict[str, Any]]] = [
        ("LSTMCell", 4, 4, 4, {"activations": ["relu", "tanh", "sigmoid"], "clip": 0.7}),
        ("GRUCell", 3, 3, 3, {"activations": ["sigmoid", "relu"]}),
        ("GRUCell", 3, 3, 4, {"linear_before_reset": True, "clip": 0.5}),
        ("RNNCell", 1, 1, 1, {"activations": ["sigmoid"]}),
    ]
    for name, opset, gates, biases, attributes in cells:
        shapes = ((gates * hidden, size), (gates * hidden, hidden), (biases * hidden,))
        weights = [values(*shape, low=-1, high=1) for shape in shapes]
        states, read = ([state, x(batch, hidden)], (0, 1)) if name == "LSTMCell" else ([state], (0,))
        for given in (weights, [Given(array) for array in weights]):
            yield _case(
                name,
                opset,
                data,
                *states,
                *given,
                hidden_size=hidden,
                **attributes,
                read=read,
                only=f"{attributes}, {'weights' if given is weights else 'computed weights'}",
            )
    sequence = (
        x(batch, 5, size),
        x(batch, 2, hidden),
        x(batch, 2, hidden),
        Given(np.array([5, 3], np.int32)),
    )
    shapes = ((2, 4 * hidden, size), (2, 4 * hidden, hidden), (2, 4 * hidden))
    rows = {"hidden_size": hidden, "direction": "bidirectional", "clip": 0.5}
    for name in ("activations_alpha", "activations_beta"):
        rows[name] = []
    for words, rejected in (
        (["sigmoid", "tanh", "relu"] * 2, None),
        (["sigmoid", "tanh"] * 3, "differ by direction"),
    ):
        yield _case(
            "LSTMSequence",
            5,
            *sequence,
            *(x(*shape, low=-1, high=1) for shape in shapes),
            **rows,
            activations=words,
            read=(0, 1, 2),
            only=f"computed weights, {words}",
            rejected=rejected,
        )


CASES: tuple[LayerCase, ...] = (
    *_transforms(),
    *_elementwise(),
    *_binary(),
    *_windows(),
    *_products(),
    *_reductions(),
    *_positions(),
    *_arranging(),
    *_images(),
    *_recurrent(),
)
