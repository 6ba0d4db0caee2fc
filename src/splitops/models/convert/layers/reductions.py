"""Layers that make one number of many: reductions and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    BOOL,
    FLOATS,
    INT32,
    NUMBERS,
    axes_of,
    must_know,
    rank_of,
    require,
    scalar,
)
from splitops.spec.elements.types import ElementType


def _reduced(
    builder: LayerOpBuilder, operator: str, data: ir.Value, axes: Sequence[int], *, keep: bool = True
) -> ir.Value:
    """Reduce some axes; none is none, where ONNX takes an empty list for all of them."""
    if not axes:
        return builder.op("Identity", [data])
    if operator == "ReduceSum":  # its axes are an input since opset 13, those of the others since 18
        return builder.op(operator, [data, builder.integers(axes)], {"keepdims": int(keep)})
    return builder.op(operator, [data], {"axes": list(axes), "keepdims": int(keep)})


def _reduction(operator: str, builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources[0], axes_of(builder, layer, sources[1])
    # The text has the identity there, OpenVINO the size of each number.
    require(bool(axes) or operator not in ("ReduceL1", "ReduceL2"), f"{layer} reduces no axis")
    return _reduced(builder, operator, data, axes, keep=layer.read_boolean("keep_dims", default=False))


def _logical_reduction(
    operator: str, builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]
) -> ir.Value:
    """Write a layer as the least or greatest of 0 and 1."""
    numbers = builder.cast(sources[0], INT32)
    return builder.cast(_reduction(operator, builder, layer, [numbers, sources[1]]), BOOL)


def _batch_norm(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    if layer.version == "opset1":
        scale, shift, data, mean, variance = sources
    else:
        data, scale, shift, mean, variance = sources
    inputs = [data, scale, shift, mean, variance]
    return builder.op("BatchNormalization", inputs, {"epsilon": _epsilon(layer, "epsilon")})


def _epsilon(layer: Layer, name: str) -> float:
    """Return a number as ONNX's attributes have it."""
    return float(np.float32(layer.read_number(name)))


def _mvn(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources[0], axes_of(builder, layer, sources[1])
    outside = layer.read_enum("eps_mode", {"inside_sqrt": False, "outside_sqrt": True})
    return _standardised(builder, layer, data, axes, outside=outside)


def _mvn_of_images(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    (data,) = sources
    across = layer.read_boolean("across_channels", default=False)
    stated = layer.read_integers("reduction_axes", [])
    axes = stated or list(range(1 if across else 2, rank_of(builder, layer, data)))
    return _standardised(builder, layer, data, axes, outside=False)


def _standardised(
    builder: LayerOpBuilder, layer: Layer, data: ir.Value, axes: Sequence[int], *, outside: bool
) -> ir.Value:
    require(bool(axes), f"{layer} has no axes")
    centred = builder.op("Sub", [data, _reduced(builder, "ReduceMean", data, axes)])
    if not layer.read_boolean("normalize_variance", default=True):
        return centred
    epsilon = scalar(builder, layer.read_number("eps"), data)
    variance = _reduced(builder, "ReduceMean", builder.op("Mul", [centred, centred]), axes)
    if outside:
        deviation = builder.op("Add", [builder.op("Sqrt", [variance]), epsilon])
    else:
        deviation = builder.op("Sqrt", [builder.op("Add", [variance, epsilon])])
    return builder.op("Div", [centred, deviation])


def _normalize_l2(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources[0], axes_of(builder, layer, sources[1])
    require(bool(axes), f"{layer} has no axes")
    bound = layer.read_enum("eps_mode", {"add": "Add", "max": "Max"})
    squares = _reduced(builder, "ReduceSum", builder.op("Mul", [data, data]), axes)
    bounded = builder.op(bound, [squares, scalar(builder, layer.read_number("eps"), data)])
    return builder.op("Div", [data, builder.op("Sqrt", [bounded])])


def _group_norm(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, scale, shift = sources
    (groups,), rank = layer.read_integers("num_groups"), rank_of(builder, layer, data)
    kind = must_know(builder.type_of(data), "the element type").numpy
    one, none = np.ones(groups, kind), np.zeros(groups, kind)
    folded = builder.op("Reshape", [data, builder.integers([0, groups, -1])])
    inputs = [folded, builder.constant(one), builder.constant(none)]
    even = builder.op("InstanceNormalization", inputs, {"epsilon": _epsilon(layer, "epsilon")})
    unfolded = builder.op("Reshape", [even, builder.op("Shape", [data])])
    beside = builder.integers([-1, *[1] * (rank - 2)])
    scaled = builder.op("Mul", [unfolded, builder.op("Reshape", [scale, beside])])
    return builder.op("Add", [scaled, builder.op("Reshape", [shift, beside])])


def _local_response(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axes = sources
    size = layer.read_integers("size")[0]
    require(axes_of(builder, layer, axes) == [1], f"{layer} is not across channels alone")
    require(size % 2 == 1, f"{layer} has an even size, whose middle the texts place differently")
    names = ("alpha", "beta", "bias")
    return builder.op("LRN", [data], {name: layer.read_number(name) for name in names} | {"size": size})


def _row(layer: str, types: frozenset[ElementType], versions: frozenset[str] = opsets(1)) -> LayerForm:
    return LayerForm(layer=layer, versions=versions, write=partial(_reduction, layer), types=types)


_form = partial(LayerForm, types=FLOATS)

REDUCTIONS: Final = (
    _row("ReduceMean", FLOATS),
    _row("ReduceSum", NUMBERS),
    _row("ReduceProd", NUMBERS),
    _row("ReduceMax", NUMBERS),
    _row("ReduceMin", NUMBERS),
    _row("ReduceL1", FLOATS, opsets(4)),
    _row("ReduceL2", FLOATS, opsets(4)),
    LayerForm(layer="ReduceLogicalAnd", versions=opsets(1), write=partial(_logical_reduction, "ReduceMin")),
    LayerForm(layer="ReduceLogicalOr", versions=opsets(1), write=partial(_logical_reduction, "ReduceMax")),
    _form(layer="BatchNormInference", versions=opsets(1, 5), write=_batch_norm),
    _form(layer="MVN", versions=opsets(6), write=_mvn),
    _form(layer="MVN", versions=opsets(2), write=_mvn_of_images),
    _form(layer="NormalizeL2", versions=opsets(1), write=_normalize_l2),
    _form(layer="GroupNormalization", versions=opsets(12), write=_group_norm),
    _form(layer="LRN", versions=opsets(1), write=_local_response),
)
