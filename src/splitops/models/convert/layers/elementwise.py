"""Layers that compute each element of the output from one element of each input, written as several nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.elementwise import COMPARED
from splitops.models.ops.writing import (
    FLOATS,
    INTEGERS,
    LOGICAL,
    NUMBERS,
    SIZES,
    NodeWriter,
    constant,
    must_know,
    rank_of,
    require,
    scalar,
)


def _floor_modulo(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    if builder.type_of(sources[0]) in SIZES:
        return builder.op("Mod", sources)
    whole = builder.op("Floor", [builder.op("Div", sources)])
    return builder.op("Sub", [sources[0], builder.op("Mul", [whole, sources[1]])])


def _squared_difference(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    difference = builder.op("Sub", sources)
    return builder.op("Mul", [difference, difference])


def _clamp(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    low, high = layer.read_number("min"), layer.read_number("max")
    if builder.type_of(data) in SIZES:
        # Of integers, the bounds are the integers inside them.
        info = np.iinfo(builder.type_of(data).numpy)  # type: ignore[union-attr]
        low, high = max(np.ceil(low), info.min), min(np.floor(high), info.max)
    return builder.op("Clip", [data, scalar(builder, low, data), scalar(builder, high, data)])


def _round(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    if builder.type_of(data) in INTEGERS:
        return builder.op("Identity", [data])
    if layer.read_text("mode", "half_to_even") == "half_to_even":
        return builder.op("Round", [data])
    # Away from zero: adding a half would round what lies just below it up.
    size = builder.op("Abs", [data])
    whole = builder.op("Floor", [size])
    rest = builder.op("Sub", [size, whole])
    kind = must_know(builder.type_of(data), "the element type")
    up = builder.cast(builder.op("GreaterOrEqual", [rest, scalar(builder, 0.5, data)]), kind)
    return builder.op("Mul", [builder.op("Sign", [data]), builder.op("Add", [whole, up])])


def _swish(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, *beta = sources
    scaled = builder.op("Mul", [data, beta[0]]) if beta else data
    return builder.op("Mul", [data, builder.op("Sigmoid", [scaled])])


def _with_numbers(
    operator: str, names: Mapping[str, str], builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    """Write an operator that has as attributes what are inputs of the layer, whose names are the values."""
    rows = zip(names.items(), sources[1:], strict=True)
    return builder.op(
        operator, sources[:1], {own: _stated(builder, layer, value, name) for (own, name), value in rows}
    )


def _stated(builder: NodeWriter, layer: Layer, value: ir.Value, name: str) -> float:
    """Return an input that ONNX has as an attribute, which is a float32."""
    found = constant(builder, layer, value, name)
    require(found.size == 1, f"{name} of {layer} has {found.size} elements")
    exact = float(found.reshape(()))
    require(float(np.float32(exact)) == exact, f"{name} = {exact} of {layer} is not a float32")
    return exact


def _parametric(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, slope = sources
    rank = rank_of(builder, layer, data)
    shape = must_know(builder.shape_of(slope), f"the rank of the slope of {layer}")
    if len(shape) == 1 and rank > 2 and shape[0] != 1:
        # One slope a channel, where there are as many; else as NumPy broadcasts.
        channels = (builder.shape_of(data) or ())[1]
        both = isinstance(channels, int) and isinstance(shape[0], int)
        require(both, f"the number of channels of {layer} is not known")
        if channels == shape[0]:
            slope = builder.op("Reshape", [slope, builder.integers([-1, *[1] * (rank - 2)])])
    return builder.op("PRelu", [data, slope])


def _is_infinite(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    names = ("detect_negative", "detect_positive")
    signs = {name: int(layer.read_boolean(name, default=True)) for name in names}
    return builder.op("IsInf", sources, signs)


def _convert_like(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, like = sources
    source, target = builder.type_of(data), builder.type_of(like)
    if source is None or target is None or not {source, target} <= NUMBERS | LOGICAL:
        raise ModelError(f"{layer} from {source} to {target} is not the same in ONNX")
    require(
        source not in FLOATS or target in FLOATS, f"{layer} from {source} to {target} is not the same in ONNX"
    )
    return builder.cast(data, target)


def _fake_quantize(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, low, high, out_low, out_high = sources
    steps = scalar(builder, layer.read_number("levels") - 1, data)
    span, out_span = builder.op("Sub", [high, low]), builder.op("Sub", [out_high, out_low])
    level = builder.op(
        "Round", [builder.op("Mul", [builder.op("Div", [builder.op("Sub", [data, low]), span]), steps])]
    )
    inside = builder.op("Add", [builder.op("Mul", [builder.op("Div", [level, steps]), out_span]), out_low])
    above = builder.op("Greater", [data, builder.op("Max", [low, high])])
    below = builder.op("LessOrEqual", [data, builder.op("Min", [low, high])])
    return builder.op("Where", [below, out_low, builder.op("Where", [above, out_high, inside])])


_form = partial(LayerForm, versions=opsets(1), types=FLOATS)
_truth = partial(_form, versions=opsets(10))
_pair = partial(_form, types=NUMBERS, broadcasts=True)

ELEMENTWISE: Final = (
    _pair(
        layer="NotEqual",
        write=lambda builder, layer, sources: builder.op("Not", [builder.op("Equal", sources)]),
        types=COMPARED | LOGICAL,
    ),
    _pair(layer="Mod", write=lambda builder, layer, sources: builder.op("Mod", sources, {"fmod": 1})),
    _pair(layer="FloorMod", write=_floor_modulo),
    _pair(layer="SquaredDifference", write=_squared_difference),
    _pair(
        layer="Select",
        write=lambda builder, layer, sources: builder.op("Where", sources),
        types=None,
    ),
    _form(layer="Clamp", write=_clamp, types=NUMBERS),
    _form(layer="Round", versions=opsets(5), write=_round, types=FLOATS | INTEGERS),
    _form(layer="Swish", versions=opsets(4), write=_swish),
    _form(
        layer="HardSigmoid", write=partial(_with_numbers, "HardSigmoid", {"alpha": "alpha", "beta": "beta"})
    ),
    _form(
        layer="HSigmoid",
        versions=opsets(5),
        write=lambda builder, layer, sources: builder.op(
            "HardSigmoid", sources, {"alpha": 1 / 6, "beta": 0.5}
        ),
    ),
    _form(layer="Selu", write=partial(_with_numbers, "Selu", {"alpha": "alpha", "gamma": "lambda"})),
    _form(layer="PReLU", write=_parametric),
    _truth(
        layer="IsFinite",
        write=lambda builder, layer, sources: builder.op(
            "Not", [builder.op("Or", [builder.op("IsInf", sources), builder.op("IsNaN", sources)])]
        ),
    ),
    _truth(layer="IsInf", write=_is_infinite),
    _form(
        layer="ConvertLike",
        write=_convert_like,
        types=NUMBERS | LOGICAL,
    ),
    _pair(layer="FakeQuantize", write=_fake_quantize, types=FLOATS),
    _form(
        layer="Identity",
        versions=opsets(16),
        write=lambda builder, layer, sources: builder.op("Identity", sources),
        types=None,
    ),
)
