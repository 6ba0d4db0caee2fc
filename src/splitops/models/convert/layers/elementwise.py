"""Converters of elementwise layers, which mostly become several nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.layers.converter import LayerConverter, to_opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.elementwise import COMPARED
from splitops.models.ops.writing import (
    FLOATS,
    INTEGERS,
    LOGICAL,
    NUMBERS,
    SIZES,
    NodeWriter,
    add_scalar,
    get_rank,
    require,
    require_constant,
    unwrap,
)


def _write_floor_mod(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    if builder.find_type(sources[0]) in SIZES:
        return builder.op("Mod", sources)
    quotient = builder.op("Floor", [builder.op("Div", sources)])
    return builder.op("Sub", [sources[0], builder.op("Mul", [quotient, sources[1]])])


def _write_squared_difference(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    difference = builder.op("Sub", sources)
    return builder.op("Mul", [difference, difference])


def _write_clamp(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    low, high = layer.number("min"), layer.number("max")
    if builder.find_type(data) in SIZES:
        # Integers are clamped to the integers between the bounds.
        info = np.iinfo(builder.find_type(data).numpy)  # type: ignore[union-attr]
        low, high = max(np.ceil(low), info.min), min(np.floor(high), info.max)
    return builder.op("Clip", [data, add_scalar(builder, low, data), add_scalar(builder, high, data)])


def _write_round(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    if builder.find_type(data) in INTEGERS:
        return builder.op("Identity", [data])
    if layer.text("mode", "half_to_even") == "half_to_even":
        return builder.op("Round", [data])
    # Round halves away from zero: floor(x + 0.5) would round the number just below 0.5 up.
    size = builder.op("Abs", [data])
    floor = builder.op("Floor", [size])
    rest = builder.op("Sub", [size, floor])
    kind = unwrap(builder.find_type(data), "the element type")
    up = builder.cast(builder.op("GreaterOrEqual", [rest, add_scalar(builder, 0.5, data)]), kind)
    return builder.op("Mul", [builder.op("Sign", [data]), builder.op("Add", [floor, up])])


def _write_swish(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, *beta = sources
    scaled = builder.op("Mul", [data, beta[0]]) if beta else data
    return builder.op("Mul", [data, builder.op("Sigmoid", [scaled])])


def _write_node(
    operator: str, names: Mapping[str, str], builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    """Write a node whose attributes are inputs of the layer. ``names`` maps attributes to input names."""
    rows = zip(names.items(), sources[1:], strict=True)
    attributes = {attr: _read_float(builder, layer, value, name) for (attr, name), value in rows}
    return builder.op(operator, sources[:1], attributes)


def _read_float(builder: NodeWriter, layer: Layer, value: ir.Value, name: str) -> float:
    """Return a constant input as the value of an attribute, which is a float32 in ONNX."""
    array = require_constant(builder, layer, value, name)
    require(array.size == 1, f"{name} of {layer} has {array.size} elements")
    exact = float(array.reshape(()))
    require(float(np.float32(exact)) == exact, f"{name} = {exact} of {layer} is not a float32")
    return exact


def _write_prelu(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, slope = sources
    rank = get_rank(builder, layer, data)
    shape = unwrap(builder.find_shape(slope), f"the rank of the slope of {layer}")
    if len(shape) == 1 and rank > 2 and shape[0] != 1:
        # As many slopes as channels are one per channel. Others are broadcast as in NumPy.
        channels = (builder.find_shape(data) or ())[1]
        both = isinstance(channels, int) and isinstance(shape[0], int)
        require(both, f"the number of channels of {layer} is unknown")
        if channels == shape[0]:
            slope = builder.op("Reshape", [slope, builder.integers([-1, *[1] * (rank - 2)])])
    return builder.op("PRelu", [data, slope])


def _write_is_inf(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    signs = {name: int(layer.boolean(name, default=True)) for name in ("detect_negative", "detect_positive")}
    return builder.op("IsInf", sources, signs)


def _write_convert_like(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, like = sources
    source, target = builder.find_type(data), builder.find_type(like)
    if source is None or target is None or not {source, target} <= NUMBERS | LOGICAL:
        raise ModelError(f"{layer} from {source} to {target} is not the same in ONNX")
    require(
        source not in FLOATS or target in FLOATS, f"{layer} from {source} to {target} is not the same in ONNX"
    )
    return builder.cast(data, target)


def _write_fake_quantize(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, low, high, out_low, out_high = sources
    steps = add_scalar(builder, layer.number("levels") - 1, data)
    span, out_span = builder.op("Sub", [high, low]), builder.op("Sub", [out_high, out_low])
    level = builder.op(
        "Round", [builder.op("Mul", [builder.op("Div", [builder.op("Sub", [data, low]), span]), steps])]
    )
    inside = builder.op("Add", [builder.op("Mul", [builder.op("Div", [level, steps]), out_span]), out_low])
    above = builder.op("Greater", [data, builder.op("Max", [low, high])])
    below = builder.op("LessOrEqual", [data, builder.op("Min", [low, high])])
    return builder.op("Where", [below, out_low, builder.op("Where", [above, out_high, inside])])


_entry = partial(LayerConverter, versions=to_opsets(1), types=FLOATS)
_predicate = partial(_entry, versions=to_opsets(10))
_binary = partial(_entry, types=NUMBERS, broadcasts=True)

ELEMENTWISE: Final = (
    _binary(
        layer="NotEqual",
        write=lambda builder, layer, sources: builder.op("Not", [builder.op("Equal", sources)]),
        types=COMPARED | LOGICAL,
    ),
    _binary(layer="Mod", write=lambda builder, layer, sources: builder.op("Mod", sources, {"fmod": 1})),
    _binary(layer="FloorMod", write=_write_floor_mod),
    _binary(layer="SquaredDifference", write=_write_squared_difference),
    _binary(
        layer="Select",
        write=lambda builder, layer, sources: builder.op("Where", sources),
        types=None,
    ),
    _entry(layer="Clamp", write=_write_clamp, types=NUMBERS),
    _entry(layer="Round", versions=to_opsets(5), write=_write_round, types=FLOATS | INTEGERS),
    _entry(layer="Swish", versions=to_opsets(4), write=_write_swish),
    _entry(
        layer="HardSigmoid", write=partial(_write_node, "HardSigmoid", {"alpha": "alpha", "beta": "beta"})
    ),
    _entry(
        layer="HSigmoid",
        versions=to_opsets(5),
        write=lambda builder, layer, sources: builder.op(
            "HardSigmoid", sources, {"alpha": 1 / 6, "beta": 0.5}
        ),
    ),
    _entry(layer="Selu", write=partial(_write_node, "Selu", {"alpha": "alpha", "gamma": "lambda"})),
    _entry(layer="PReLU", write=_write_prelu),
    _predicate(
        layer="IsFinite",
        write=lambda builder, layer, sources: builder.op(
            "Not", [builder.op("Or", [builder.op("IsInf", sources), builder.op("IsNaN", sources)])]
        ),
    ),
    _predicate(layer="IsInf", write=_write_is_inf),
    _entry(
        layer="ConvertLike",
        write=_write_convert_like,
        types=NUMBERS | LOGICAL,
    ),
    _binary(layer="FakeQuantize", write=_write_fake_quantize, types=FLOATS),
    _entry(
        layer="Identity",
        versions=to_opsets(16),
        write=lambda builder, layer, sources: builder.op("Identity", sources),
        types=None,
    ),
)
