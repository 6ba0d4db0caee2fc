"""Layers that multiply matrices: products, attention, Einsum, Fourier transforms."""

from __future__ import annotations

import math
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
    NUMBERS,
    axes_of,
    must_know,
    rank_of,
    require,
    scalar,
)
from splitops.spec.elements.types import ELEMENT_TYPES


def _matmul(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    turned = [
        _transpose(builder, layer, value) if layer.read_boolean(name, default=False) else value
        for value, name in zip(sources, ("transpose_a", "transpose_b"), strict=True)
    ]
    return builder.op("MatMul", turned)


def _transpose(builder: LayerOpBuilder, layer: Layer, value: ir.Value) -> ir.Value:
    """Return matrices with rows for columns; a vector is one unchanged."""
    rank = rank_of(builder, layer, value)
    if rank < 2:
        return value
    return builder.op("Transpose", [value], {"perm": [*range(rank - 2), rank - 1, rank - 2]})


def _einsum(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    equation = layer.get_attribute("equation")
    require(bool(equation), f"{layer} has no equation")
    return builder.op("Einsum", sources, {"equation": equation})


def _attention(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    query, key, value, *more = sources
    causal = layer.read_boolean("causal")
    mask = more[0] if more and not causal else None
    scores = builder.op("MatMul", [_scaled(builder, layer, query, more[1:]), _transpose(builder, layer, key)])
    if causal:
        mask = _lower_triangle(builder, scores)
    if mask is not None:
        if builder.type_of(mask) is BOOL:
            zero, outside = scalar(builder, 0, query), scalar(builder, -math.inf, query)
            mask = builder.op("Where", [mask, zero, outside])
        scores = builder.op("Add", [scores, mask])
    return builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": -1}), value])


def _scaled(builder: LayerOpBuilder, layer: Layer, query: ir.Value, scale: Sequence[ir.Value]) -> ir.Value:
    if scale:
        return builder.op("Mul", [query, scale[0]])
    width = (builder.shape_of(query) or (None,))[-1]
    if isinstance(width, int):
        return builder.op("Mul", [query, scalar(builder, 1 / math.sqrt(width), query)])
    # With the precision of the constant: rounded once, to the type of the query.
    kind = must_know(builder.type_of(query), "the element type")
    size = builder.cast(builder.size(query, builder.constant(np.array(-1, np.int64))), FLOAT64)
    factor = builder.op("Div", [builder.constant(np.array(1.0)), builder.op("Sqrt", [size])])
    return builder.op("Mul", [query, builder.cast(factor, kind)])


def _lower_triangle(builder: LayerOpBuilder, scores: ir.Value) -> ir.Value:
    """Return which keys a query sees: those up to its own position."""
    sizes = builder.op(
        "Slice", [builder.op("Shape", [scores]), builder.integers([-2]), builder.integers([1 << 62])]
    )
    ones = builder.op("Expand", [builder.constant(np.array(1, np.int64)), sizes])
    return builder.cast(builder.op("Trilu", [ones], {"upper": 0}), BOOL)


def _fourier(
    builder: LayerOpBuilder,
    layer: Layer,
    sources: Sequence[ir.Value],
    *,
    inverse: bool = False,
    real: bool = False,
) -> ir.Value:
    """Write a transform as one of each axis; of real numbers, half of the last one is left out."""
    data, given, *stated = sources
    rank = rank_of(builder, layer, data) - (not real)
    axes = [axis % rank for axis in axes_of(builder, layer, given)]
    sizes = axes_of(builder, layer, stated[0], "sizes") if stated else [-1] * len(axes)
    if real:
        # As complex numbers: OpenVINO's frontend reads half of a transform with an axis too many.
        data = builder.op("Unsqueeze", [data, builder.integers([-1])])
        data = builder.op("Pad", [data, builder.integers([*[0] * (2 * rank + 1), 1])])
        length = (
            builder.integers(sizes[-1:])
            if sizes[-1] != -1
            else builder.size(data, builder.integers(axes[-1:]))
        )
    for axis, size in zip(axes, sizes, strict=True):
        stated_size = [] if size == -1 else [builder.constant(np.array(size, np.int64))]
        data = builder.op("DFT", [data, *stated_size], {"axis": axis, "inverse": int(inverse)})
    if not real:
        return data
    half = builder.op("Add", [builder.op("Div", [length, builder.integers([2])]), builder.integers([1])])
    return builder.part(data, axes[-1], builder.integers([0]), half)


FLOAT64: Final = ELEMENT_TYPES["float64"]
WIDE: Final = frozenset(kind for kind in FLOATS if kind.bits >= 32)
"""The floats of which runtimes transform."""
_transform = partial(LayerForm, opset=17, types=WIDE)

PRODUCTS: Final = (
    LayerForm(layer="MatMul", versions=opsets(1), write=_matmul, types=NUMBERS),
    LayerForm(layer="Einsum", versions=opsets(7), write=_einsum, types=NUMBERS),
    LayerForm(layer="ScaledDotProductAttention", versions=opsets(13), write=_attention, types=FLOATS),
    _transform(layer="DFT", versions=opsets(7), write=_fourier),
    _transform(layer="IDFT", versions=opsets(7), write=partial(_fourier, inverse=True)),
    _transform(layer="RDFT", versions=opsets(9), write=partial(_fourier, real=True)),
)
