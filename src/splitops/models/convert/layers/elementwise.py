"""Converters of elementwise layers, many of which need several ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.layers.converter import LayerConverter
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


def _write_floor_mod(builder: NodeWriter, left: ir.Value, right: ir.Value) -> ir.Value:
    if builder.find_type(left) in SIZES:
        return builder.add("Mod", [left, right])
    quotient = builder.add("Floor", [builder.add("Div", [left, right])])
    return builder.add("Sub", [left, builder.add("Mul", [quotient, right])])


def _write_squared_difference(builder: NodeWriter, *sources: ir.Value) -> ir.Value:
    difference = builder.add("Sub", sources)
    return builder.add("Mul", [difference, difference])


def _write_clamp(builder: NodeWriter, data: ir.Value) -> ir.Value:
    low, high = builder.layer.read_number("min"), builder.layer.read_number("max")
    if builder.find_type(data) in SIZES:
        # Integers are clamped to the integers between the bounds.
        info = np.iinfo(builder.find_type(data).numpy)  # type: ignore[union-attr]
        low, high = max(np.ceil(low), info.min), min(np.floor(high), info.max)
    return builder.add("Clip", [data, add_scalar(builder, low, data), add_scalar(builder, high, data)])


def _write_round(builder: NodeWriter, data: ir.Value) -> ir.Value:
    if builder.find_type(data) in INTEGERS:
        return builder.add("Identity", [data])
    if builder.layer.read_string("mode", "half_to_even") == "half_to_even":
        return builder.add("Round", [data])
    # Round halves away from zero: floor(x + 0.5) would round the number just below 0.5 up.
    size = builder.add("Abs", [data])
    floor = builder.add("Floor", [size])
    rest = builder.add("Sub", [size, floor])
    kind = unwrap(builder.find_type(data), "the element type")
    up = builder.cast(builder.add("GreaterOrEqual", [rest, add_scalar(builder, 0.5, data)]), kind)
    return builder.add("Mul", [builder.add("Sign", [data]), builder.add("Add", [floor, up])])


def _write_same(
    operator: str, attributes: Mapping[str, Any], builder: NodeWriter, *sources: ir.Value
) -> ir.Value:
    """Write one node with the inputs of the layer."""
    return builder.add(operator, sources, dict(attributes))


def _write_not_equal(builder: NodeWriter, *sources: ir.Value) -> ir.Value:
    return builder.add("Not", [builder.add("Equal", sources)])


def _write_is_finite(builder: NodeWriter, data: ir.Value) -> ir.Value:
    return builder.add("Not", [builder.add("Or", [builder.add(name, [data]) for name in ("IsInf", "IsNaN")])])


def _write_swish(builder: NodeWriter, data: ir.Value, *beta: ir.Value) -> ir.Value:
    scaled = builder.add("Mul", [data, beta[0]]) if beta else data
    return builder.add("Mul", [data, builder.add("Sigmoid", [scaled])])


def _write_node(operator: str, names: Mapping[str, str], builder: NodeWriter, *sources: ir.Value) -> ir.Value:
    """Write a node whose attributes are inputs of the layer. ``names`` maps attributes to input names."""
    rows = zip(names.items(), sources[1:], strict=True)
    attributes = {attr: _read_float(builder, value, name) for (attr, name), value in rows}
    return builder.add(operator, sources[:1], attributes)


def _read_float(builder: NodeWriter, value: ir.Value, name: str) -> float:
    """Return the value of a scalar constant input, to be written as an ONNX attribute.

    Raises:
        ModelError: the input is not a constant with one element that float32 represents exactly.
    """
    array = require_constant(builder, value, name)
    if array.size != 1:
        raise ModelError(f"{name} of {builder.layer} has {array.size} elements, not 1")
    exact = float(array.reshape(()))
    if float(np.float32(exact)) != exact:
        what = f"{name} = {exact} of {builder.layer}"
        raise ModelError(f"{what} is not exact in float32, the type of ONNX attributes")
    return exact


def _write_prelu(builder: NodeWriter, data: ir.Value, slope: ir.Value) -> ir.Value:
    rank = get_rank(builder, data)
    shape = unwrap(builder.find_shape(slope), f"the rank of the slope of {builder.layer}")
    if len(shape) == 1 and rank > 2 and shape[0] != 1:
        # A 1-D slope with one element per channel is applied per channel. Others are broadcast as in NumPy.
        channels = (builder.find_shape(data) or ())[1]
        if not isinstance(channels, int) or not isinstance(shape[0], int):
            raise ModelError(f"the number of channels of {builder.layer} is unknown")
        if channels == shape[0]:
            slope = builder.add("Reshape", [slope, builder.add_ints([-1, *[1] * (rank - 2)])])
    return builder.add("PRelu", [data, slope])


def _write_is_inf(builder: NodeWriter, *sources: ir.Value) -> ir.Value:
    signs = {
        name: int(builder.layer.read_boolean(name, default=True))
        for name in ("detect_negative", "detect_positive")
    }
    return builder.add("IsInf", sources, signs)


def _write_convert_like(builder: NodeWriter, data: ir.Value, like: ir.Value) -> ir.Value:
    source, target = builder.find_type(data), builder.find_type(like)
    same = {source, target} <= NUMBERS | LOGICAL and (source not in FLOATS or target in FLOATS)
    require(builder, same, f"converts from {source} to {target}, which is not the same in ONNX")
    return builder.cast(data, unwrap(target, "the element type"))


def _write_fake_quantize(
    builder: NodeWriter, data: ir.Value, low: ir.Value, high: ir.Value, out_low: ir.Value, out_high: ir.Value
) -> ir.Value:
    steps = add_scalar(builder, builder.layer.read_number("levels") - 1, data)
    span, out_span = builder.add("Sub", [high, low]), builder.add("Sub", [out_high, out_low])
    level = builder.add(
        "Round", [builder.add("Mul", [builder.add("Div", [builder.add("Sub", [data, low]), span]), steps])]
    )
    inside = builder.add("Add", [builder.add("Mul", [builder.add("Div", [level, steps]), out_span]), out_low])
    above = builder.add("Greater", [data, builder.add("Max", [low, high])])
    below = builder.add("LessOrEqual", [data, builder.add("Min", [low, high])])
    return builder.add("Where", [below, out_low, builder.add("Where", [above, out_high, inside])])


_entry = partial(LayerConverter, types=FLOATS)
_binary = partial(_entry, types=NUMBERS, broadcasts=True)
_HALF: Final = {"alpha": 1 / 6, "beta": 0.5}

ELEMENTWISE: Final = (
    _binary(layer="NotEqual", write=_write_not_equal, types=COMPARED | LOGICAL),
    _binary(layer="Mod", write=partial(_write_same, "Mod", {"fmod": 1})),
    _binary(layer="FloorMod", write=_write_floor_mod),
    _binary(layer="SquaredDifference", write=_write_squared_difference),
    _binary(layer="Select", write=partial(_write_same, "Where", {}), types=None),
    _entry(layer="Clamp", write=_write_clamp, types=NUMBERS),
    _entry(layer="Round", versions=(5,), write=_write_round, types=FLOATS | INTEGERS),
    _entry(layer="Swish", versions=(4,), write=_write_swish),
    _entry(
        layer="HardSigmoid", write=partial(_write_node, "HardSigmoid", {"alpha": "alpha", "beta": "beta"})
    ),
    _entry(layer="HSigmoid", versions=(5,), write=partial(_write_same, "HardSigmoid", _HALF)),
    _entry(layer="Selu", write=partial(_write_node, "Selu", {"alpha": "alpha", "gamma": "lambda"})),
    _entry(layer="PReLU", write=_write_prelu),
    _entry(layer="IsFinite", versions=(10,), write=_write_is_finite),
    _entry(layer="IsInf", versions=(10,), write=_write_is_inf),
    _entry(layer="ConvertLike", write=_write_convert_like, types=NUMBERS | LOGICAL),
    _binary(layer="FakeQuantize", write=_write_fake_quantize, types=FLOATS),
    _entry(layer="Identity", versions=(16,), write=partial(_write_same, "Identity", {}), types=None),
)
