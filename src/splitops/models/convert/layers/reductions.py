"""Converters of reductions and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter, to_opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    BOOL,
    FLOATS,
    INT32,
    NUMBERS,
    add_scalar,
    get_rank,
    read_integers,
    require,
    unwrap,
)
from splitops.spec.elements.types import ElementType


def _reduce(
    builder: LayerOpBuilder, operator: str, data: ir.Value, axes: Sequence[int], *, keep: bool = True
) -> ir.Value:
    """Add a reduction over ``axes``. Empty ``axes`` reduce nothing; in ONNX, they would reduce all axes."""
    if not axes:
        return builder.add("Identity", [data])
    if operator == "ReduceSum":  # axes are an input since opset 13; in other reductions, since 18
        return builder.add(operator, [data, builder.add_ints(axes)], {"keepdims": int(keep)})
    return builder.add(operator, [data], {"axes": list(axes), "keepdims": int(keep)})


def _write_reduction(
    operator: str, builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    data, axes = sources[0], read_integers(builder, sources[1])
    # The specification defines the identity, but OpenVINO returns absolute values.
    require(bool(axes) or operator not in ("ReduceL1", "ReduceL2"), f"{layer} reduces no axis")
    return _reduce(builder, operator, data, axes, keep=layer.read_boolean("keep_dims", default=False))


def _write_logic(
    operator: str, builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    """Write a logical reduction as the minimum or maximum of zeros and ones."""
    numbers = builder.cast(sources[0], INT32)
    return builder.cast(_write_reduction(operator, builder, layer, [numbers, sources[1]]), BOOL)


def _write_batch_norm(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    if layer.version == "opset1":
        scale, shift, data, mean, variance = sources
    else:
        data, scale, shift, mean, variance = sources
    inputs = [data, scale, shift, mean, variance]
    return builder.add("BatchNormalization", inputs, {"epsilon": _read_float(layer, "epsilon")})


def _read_float(layer: Layer, name: str) -> float:
    """Return an attribute rounded to float32, the precision of attributes in ONNX."""
    return float(np.float32(layer.read_number(name)))


def _write_mvn(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources[0], read_integers(builder, sources[1])
    outside = layer.read_enum("eps_mode", {"inside_sqrt": False, "outside_sqrt": True})
    return _normalise(builder, layer, data, axes, outside=outside)


def _write_mvn_opset2(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    (data,) = sources
    across = layer.read_boolean("across_channels", default=False)
    axes = layer.read_integers("reduction_axes", [])
    axes = axes or list(range(1 if across else 2, get_rank(builder, data)))
    return _normalise(builder, layer, data, axes, outside=False)


def _normalise(
    builder: LayerOpBuilder, layer: Layer, data: ir.Value, axes: Sequence[int], *, outside: bool
) -> ir.Value:
    require(bool(axes), f"{layer} has no axes")
    centred = builder.add("Sub", [data, _reduce(builder, "ReduceMean", data, axes)])
    if not layer.read_boolean("normalize_variance", default=True):
        return centred
    epsilon = add_scalar(builder, layer.read_number("eps"), data)
    variance = _reduce(builder, "ReduceMean", builder.add("Mul", [centred, centred]), axes)
    if outside:
        deviation = builder.add("Add", [builder.add("Sqrt", [variance]), epsilon])
    else:
        deviation = builder.add("Sqrt", [builder.add("Add", [variance, epsilon])])
    return builder.add("Div", [centred, deviation])


def _write_normalize_l2(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources[0], read_integers(builder, sources[1])
    require(bool(axes), f"{layer} has no axes")
    bound = layer.read_enum("eps_mode", {"add": "Add", "max": "Max"})
    squares = _reduce(builder, "ReduceSum", builder.add("Mul", [data, data]), axes)
    bounded = builder.add(bound, [squares, add_scalar(builder, layer.read_number("eps"), data)])
    return builder.add("Div", [data, builder.add("Sqrt", [bounded])])


def _write_group_norm(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, scale, shift = sources
    (groups,), rank = layer.read_integers("num_groups"), get_rank(builder, data)
    kind = unwrap(builder.find_type(data), "the element type").numpy
    ones, zeros = np.ones(groups, kind), np.zeros(groups, kind)
    folded = builder.add("Reshape", [data, builder.add_ints([0, groups, -1])])
    inputs = [folded, builder.add_constant(ones), builder.add_constant(zeros)]
    even = builder.add("InstanceNormalization", inputs, {"epsilon": _read_float(layer, "epsilon")})
    unfolded = builder.add("Reshape", [even, builder.add("Shape", [data])])
    channels = builder.add_ints([-1, *[1] * (rank - 2)])
    scaled = builder.add("Mul", [unfolded, builder.add("Reshape", [scale, channels])])
    return builder.add("Add", [scaled, builder.add("Reshape", [shift, channels])])


def _write_lrn(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources
    size = layer.read_integers("size")[0]
    require(read_integers(builder, axes) == [1], f"{layer} normalises other axes than channels")
    require(size % 2 == 1, f"{layer} has an even size, whose center is ambiguous")
    names = ("alpha", "beta", "bias")
    return builder.add("LRN", [data], {name: layer.read_number(name) for name in names} | {"size": size})


def _make_entry(
    layer: str, types: frozenset[ElementType], versions: frozenset[str] = to_opsets(1)
) -> LayerConverter:
    return LayerConverter(layer=layer, versions=versions, write=partial(_write_reduction, layer), types=types)


_entry = partial(LayerConverter, types=FLOATS)

REDUCTIONS: Final = (
    _make_entry("ReduceMean", FLOATS),
    _make_entry("ReduceSum", NUMBERS),
    _make_entry("ReduceProd", NUMBERS),
    _make_entry("ReduceMax", NUMBERS),
    _make_entry("ReduceMin", NUMBERS),
    _make_entry("ReduceL1", FLOATS, to_opsets(4)),
    _make_entry("ReduceL2", FLOATS, to_opsets(4)),
    LayerConverter(layer="ReduceLogicalAnd", versions=to_opsets(1), write=partial(_write_logic, "ReduceMin")),
    LayerConverter(layer="ReduceLogicalOr", versions=to_opsets(1), write=partial(_write_logic, "ReduceMax")),
    _entry(layer="BatchNormInference", versions=to_opsets(1, 5), write=_write_batch_norm),
    _entry(layer="MVN", versions=to_opsets(6), write=_write_mvn),
    _entry(layer="MVN", versions=to_opsets(2), write=_write_mvn_opset2),
    _entry(layer="NormalizeL2", versions=to_opsets(1), write=_write_normalize_l2),
    _entry(layer="GroupNormalization", versions=to_opsets(12), write=_write_group_norm),
    _entry(layer="LRN", versions=to_opsets(1), write=_write_lrn),
)
