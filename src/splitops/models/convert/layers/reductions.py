"""Converters of reductions and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
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


def _reduce(
    builder: LayerOpBuilder, operator: str, data: ir.Value, axes: Sequence[int], *, keep: bool = True
) -> ir.Value:
    """Add a reduction over ``axes``. Empty ``axes`` reduce nothing; in ONNX, they would reduce all axes."""
    if not axes:
        return builder.add("Identity", [data])
    if operator == "ReduceSum":  # axes are an input since opset 13; in other reductions, since 18
        return builder.add(operator, [data, builder.add_ints(axes)], {"keepdims": int(keep)})
    return builder.add(operator, [data], {"axes": list(axes), "keepdims": int(keep)})


def _write_reduction(operator: str, builder: LayerOpBuilder, data: ir.Value, given: ir.Value) -> ir.Value:
    axes = read_integers(builder, given)
    # The specification defines the identity, but OpenVINO returns absolute values.
    same = bool(axes) or operator not in ("ReduceL1", "ReduceL2")
    require(builder, same, "reduces no axis: OpenVINO then differs from its specification")
    return _reduce(builder, operator, data, axes, keep=builder.layer.read_boolean("keep_dims", default=False))


def _write_logic(operator: str, builder: LayerOpBuilder, data: ir.Value, axes: ir.Value) -> ir.Value:
    """Write a logical reduction as the minimum or maximum of zeros and ones."""
    return builder.cast(_write_reduction(operator, builder, builder.cast(data, INT32), axes), BOOL)


def _write_batch_norm(builder: LayerOpBuilder, *sources: ir.Value) -> ir.Value:
    if builder.layer.version == "opset1":
        scale, shift, data, mean, variance = sources
    else:
        data, scale, shift, mean, variance = sources
    inputs = [data, scale, shift, mean, variance]
    return builder.add("BatchNormalization", inputs, _read_epsilon(builder))


def _read_epsilon(builder: LayerOpBuilder) -> dict[str, float]:
    """Return the attribute ``epsilon``, rounded to float32, the precision of attributes in ONNX."""
    return {"epsilon": float(np.float32(builder.layer.read_number("epsilon")))}


def _write_mvn(builder: LayerOpBuilder, data: ir.Value, axes: ir.Value) -> ir.Value:
    outside = builder.layer.read_enum("eps_mode", {"inside_sqrt": False, "outside_sqrt": True})
    return _normalise(builder, data, read_integers(builder, axes), outside=outside)


def _write_mvn_opset2(builder: LayerOpBuilder, data: ir.Value) -> ir.Value:
    across = builder.layer.read_boolean("across_channels", default=False)
    axes = builder.layer.read_integers("reduction_axes", [])
    axes = axes or list(range(1 if across else 2, get_rank(builder, data)))
    return _normalise(builder, data, axes, outside=False)


def _normalise(builder: LayerOpBuilder, data: ir.Value, axes: Sequence[int], *, outside: bool) -> ir.Value:
    require(builder, bool(axes), "has no axes")
    centred = builder.add("Sub", [data, _reduce(builder, "ReduceMean", data, axes)])
    if not builder.layer.read_boolean("normalize_variance", default=True):
        return centred
    epsilon = add_scalar(builder, builder.layer.read_number("eps"), data)
    variance = _reduce(builder, "ReduceMean", builder.add("Mul", [centred, centred]), axes)
    if outside:
        deviation = builder.add("Add", [builder.add("Sqrt", [variance]), epsilon])
    else:
        deviation = builder.add("Sqrt", [builder.add("Add", [variance, epsilon])])
    return builder.add("Div", [centred, deviation])


def _write_normalize_l2(builder: LayerOpBuilder, data: ir.Value, given: ir.Value) -> ir.Value:
    axes = read_integers(builder, given)
    require(builder, bool(axes), "has no axes")
    bound = builder.layer.read_enum("eps_mode", {"add": "Add", "max": "Max"})
    squares = _reduce(builder, "ReduceSum", builder.add("Mul", [data, data]), axes)
    bounded = builder.add(bound, [squares, add_scalar(builder, builder.layer.read_number("eps"), data)])
    return builder.add("Div", [data, builder.add("Sqrt", [bounded])])


def _write_group_norm(builder: LayerOpBuilder, data: ir.Value, scale: ir.Value, shift: ir.Value) -> ir.Value:
    (groups,), rank = builder.layer.read_integers("num_groups"), get_rank(builder, data)
    kind = unwrap(builder.find_type(data), "the element type").numpy
    ones, zeros = np.ones(groups, kind), np.zeros(groups, kind)
    folded = builder.add("Reshape", [data, builder.add_ints([0, groups, -1])])
    inputs = [folded, builder.add_constant(ones), builder.add_constant(zeros)]
    even = builder.add("InstanceNormalization", inputs, _read_epsilon(builder))
    unfolded = builder.add("Reshape", [even, builder.add("Shape", [data])])
    channels = builder.add_ints([-1, *[1] * (rank - 2)])
    scaled = builder.add("Mul", [unfolded, builder.add("Reshape", [scale, channels])])
    return builder.add("Add", [scaled, builder.add("Reshape", [shift, channels])])


def _write_lrn(builder: LayerOpBuilder, data: ir.Value, axes: ir.Value) -> ir.Value:
    layer = builder.layer
    size = layer.read_integers("size")[0]
    channels = read_integers(builder, axes) == [1]
    require(builder, channels, "normalises other axes than channels, which ONNX does not")
    require(builder, size % 2 == 1, "has an even size, whose centre is ambiguous")
    attributes = {name: layer.read_number(name) for name in ("alpha", "beta", "bias")}
    return builder.add("LRN", [data], attributes | {"size": size})


_entry = partial(LayerConverter, types=FLOATS)

REDUCTIONS: Final = (
    *(
        LayerConverter(layer=name, versions=versions, write=partial(_write_reduction, name), types=types)
        for name, types, versions in (
            ("ReduceMean", FLOATS, (1,)),
            ("ReduceSum", NUMBERS, (1,)),
            ("ReduceProd", NUMBERS, (1,)),
            ("ReduceMax", NUMBERS, (1,)),
            ("ReduceMin", NUMBERS, (1,)),
            ("ReduceL1", FLOATS, (4,)),
            ("ReduceL2", FLOATS, (4,)),
        )
    ),
    LayerConverter(layer="ReduceLogicalAnd", write=partial(_write_logic, "ReduceMin")),
    LayerConverter(layer="ReduceLogicalOr", write=partial(_write_logic, "ReduceMax")),
    _entry(layer="BatchNormInference", versions=(1, 5), write=_write_batch_norm),
    _entry(layer="MVN", versions=(6,), write=_write_mvn),
    _entry(layer="MVN", versions=(2,), write=_write_mvn_opset2),
    _entry(layer="NormalizeL2", write=_write_normalize_l2),
    _entry(layer="GroupNormalization", versions=(12,), write=_write_group_norm),
    _entry(layer="LRN", write=_write_lrn),
)
