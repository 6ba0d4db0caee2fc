"""Converters of elementwise layers, many of which need several ONNX nodes."""

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
        return builder.add("Mod", sources)
    quotient = builder.add("Floor", [builder.add("Div", sources)])
    return builder.add("Sub", [sources[0], builder.add("Mul", [quotient, sources[1]])])


def _write_squared_difference(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    difference = builder.add("Sub", sources)
    return builder.add("Mul", [difference, difference])


def _write_clamp(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    low, high = layer.read_number("min"), layer.read_number("max")
    if builder.find_type(data) in SIZES:
        # Integers are clamped to the integers between the bounds.
        info = np.iinfo(builder.find_type(data).numpy)  # type: ignore[union-attr]
        low, high = max(np.ceil(low), info.min), min(np.floor(high), info.max)
    return builder.add("Clip", [data, add_scalar(builder, low, data), add_scalar(builder, high, data)])


def _write_round(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data = sources[0]
    if builder.find_type(data) in INTEGERS:
        return builder.add("Identity", [data])
    if layer.read_string("mode", "half_to_even") == "half_to_even":
        return builder.add("Round", [data])
    # Round halves away from zero: floor(x + 0.5) would round the number just below 0.5 up.
    size = builder.add("Abs", [data])
    floor = builder.add("Floor", [size])
    rest = builder.add("Sub", [size, floor])
    kind = unwrap(builder.find_type(data), "the element type")
    up = builder.cast(builder.add("GreaterOrEqual", [rest, add_scalar(builder, 0.5, data)]), kind)
    return builder.add("Mul", [builder.add("Sign", [data]), builder.add("Add", [floor, up])])


def _write_swish(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, *beta = sources
    scaled = builder.add("Mul", [data, beta[0]]) if beta else data
    return builder.add("Mul", [data, builder.add("Sigmoid", [scaled])])


def _write_node(
    operator: str, names: Mapping[str, str], builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    """Write a node whose attributes are inputs of the layer. ``names`` maps attributes to input names."""
    rows = zip(names.items(), sources[1:], strict=True)
    attributes = {attr: _read_float(builder, layer, value, name) for (attr, name), value in rows}
    return builder.add(operator, sources[:1], attributes)


def _read_float(builder: NodeWriter, layer: Layer, value: ir.Value, name: str) -> float:
    """Return the value of a scalar constant input, to be written as an ONNX attribute.

    Raises:
        ModelError: it is not constant, not a single element, or not exactly a float32.
    """
    array = require_constant(builder, value, name)
    require(array.size == 1, f"{name} of {layer} has {array.size} elements")
    exact = float(array.reshape(()))
    require(float(np.float32(exact)) == exact, f"{name} = {exact} of {layer} is not a float32")
    return exact


def _write_prelu(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, slope = sources
    rank = get_rank(builder, data)
    shape = unwrap(builder.find_shape(slope), f"the rank of the slope of {layer}")
    if len(shape) == 1 and rank > 2 and shape[0] != 1:
        # A 1-D slope with one element per channel is applied per channel. Others are broadcast as in NumPy.
        channels = (builder.find_shape(data) or ())[1]
        both = isinstance(channels, int) and isinstance(shape[0], int)
        require(both, f"the number of channels of {layer} is unknown")
        if channels == shape[0]:
            slope = builder.add("Reshape", [slope, builder.add_ints([-1, *[1] * (rank - 2)])])
    return builder.add("PRelu", [data, slope])


def _write_is_inf(builder: NodeWriter, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    signs = {
        name: int(layer.read_boolean(name, default=True)) for name in ("detect_negative", "detect_positive")
    }
    return builder.add("IsInf", sources, signs)


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
    steps = add_scalar(builder, layer.read_number("levels") - 1, data)
    span, out_span = builder.add("Sub", [high, low]), builder.add("Sub", [out_high, out_low])
    level = builder.add(
        "Round", [builder.add("Mul", [builder.add("Div", [builder.add("Sub", [data, low]), span]), steps])]
    )
    inside = builder.add("Add", [builder.add("Mul", [builder.add("Div", [level, steps]), out_span]), out_low])
    above = builder.add("Greater", [data, builder.add("Max", [low, high])])
    below = builder.add("LessOrEqual", [data, builder.add("Min", [low, high])])
    return builder.add("Where", [below, out_low, builder.add("Where", [above, out_high, inside])])


_entry = partial(LayerConverter, versions=to_opsets(1), types=FLOATS)
_predicate = partial(_entry, versions=to_opsets(10))
_binary = partial(_entry, types=NUMBERS, broadcasts=True)

ELEMENTWISE: Final = (
    _binary(
        layer="NotEqual",
        write=lambda builder, layer, sources: builder.add("Not", [builder.add("Equal", sources)]),
        types=COMPARED | LOGICAL,
    ),
    _binary(layer="Mod", write=lambda builder, layer, sources: builder.add("Mod", sources, {"fmod": 1})),
    _binary(layer="FloorMod", write=_write_floor_mod),
    _binary(layer="SquaredDifference", write=_write_squared_difference),
    _binary(
        layer="Select",
        write=lambda builder, layer, sources: builder.add("Where", sources),
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
        write=lambda builder, layer, sources: builder.add(
            "HardSigmoid", sources, {"alpha": 1 / 6, "beta": 0.5}
        ),
    ),
    _entry(layer="Selu", write=partial(_write_node, "Selu", {"alpha": "alpha", "gamma": "lambda"})),
    _entry(layer="PReLU", write=_write_prelu),
    _predicate(
        layer="IsFinite",
        write=lambda builder, layer, sources: builder.add(
            "Not", [builder.add("Or", [builder.add("IsInf", sources), builder.add("IsNaN", sources)])]
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
        write=lambda builder, layer, sources: builder.add("Identity", sources),
        types=None,
    ),
)
