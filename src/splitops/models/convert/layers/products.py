"""Layers that multiply matrices: products, attention, Einsum, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.pens import LayerPen
from splitops.models.formats.openvino import Layer
from splitops.models.movers.form import (
    BOOL,
    FLOATS,
    NUMBERS,
    LayerForm,
    axes_of,
    must_know,
    opsets,
    prove,
    rank_of,
    scalar,
)
from splitops.spec.elements.types import ELEMENT_TYPES


def _matmul(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    turned = [
        _turned(pen, layer, value) if layer.boolean(name, default=False) else value
        for value, name in zip(sources, ("transpose_a", "transpose_b"), strict=True)
    ]
    return pen.op("MatMul", turned)


def _turned(pen: LayerPen, layer: Layer, value: ir.Value) -> ir.Value:
    """Return matrices with rows for columns; a vector is one unchanged."""
    rank = rank_of(pen, layer, value)
    if rank < 2:
        return value
    return pen.op("Transpose", [value], {"perm": [*range(rank - 2), rank - 1, rank - 2]})


def _einsum(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    equation = layer.attribute("equation")
    prove(bool(equation), f"{layer} has no equation")
    return pen.op("Einsum", sources, {"equation": equation})


def _attention(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    query, key, value, *more = sources
    causal = layer.boolean("causal")
    mask = more[0] if more and not causal else None
    scores = pen.op("MatMul", [_scaled(pen, layer, query, more[1:]), _turned(pen, layer, key)])
    if causal:
        mask = _lower_triangle(pen, scores)
    if mask is not None:
        if pen.type_of(mask) is BOOL:
            zero, outside = scalar(pen, 0, query), scalar(pen, -math.inf, query)
            mask = pen.op("Where", [mask, zero, outside])
        scores = pen.op("Add", [scores, mask])
    return pen.op("MatMul", [pen.op("Softmax", [scores], {"axis": -1}), value])


def _scaled(pen: LayerPen, layer: Layer, query: ir.Value, scale: Sequence[ir.Value]) -> ir.Value:
    if scale:
        return pen.op("Mul", [query, scale[0]])
    width = (pen.shape_of(query) or (None,))[-1]
    if isinstance(width, int):
        return pen.op("Mul", [query, scalar(pen, 1 / math.sqrt(width), query)])
    # With the precision of the constant: rounded once, to the type of the query.
    kind = must_know(pen.type_of(query), "the element type")
    size = pen.cast(pen.size(query, pen.constant(np.array(-1, np.int64))), FLOAT64)
    factor = pen.op("Div", [pen.constant(np.array(1.0)), pen.op("Sqrt", [size])])
    return pen.op("Mul", [query, pen.cast(factor, kind)])


def _lower_triangle(pen: LayerPen, scores: ir.Value) -> ir.Value:
    """Return which keys a query sees: those up to its own position."""
    sizes = pen.op("Slice", [pen.op("Shape", [scores]), pen.integers([-2]), pen.integers([1 << 62])])
    ones = pen.op("Expand", [pen.constant(np.array(1, np.int64)), sizes])
    return pen.cast(pen.op("Trilu", [ones], {"upper": 0}), BOOL)


def _fourier(
    pen: LayerPen, layer: Layer, sources: Sequence[ir.Value], *, inverse: bool = False, real: bool = False
) -> ir.Value:
    """Write a transform as one of each axis; of real numbers, half of the last one is left out."""
    data, given, *stated = sources
    rank = rank_of(pen, layer, data) - (not real)
    axes = [axis % rank for axis in axes_of(pen, layer, given)]
    sizes = axes_of(pen, layer, stated[0], "sizes") if stated else [-1] * len(axes)
    if real:
        # As complex numbers: OpenVINO's frontend reads half of a transform with an axis too many.
        data = pen.op("Unsqueeze", [data, pen.integers([-1])])
        data = pen.op("Pad", [data, pen.integers([*[0] * (2 * rank + 1), 1])])
        length = pen.integers(sizes[-1:]) if sizes[-1] != -1 else pen.size(data, pen.integers(axes[-1:]))
    for axis, size in zip(axes, sizes, strict=True):
        stated_size = [] if size == -1 else [pen.constant(np.array(size, np.int64))]
        data = pen.op("DFT", [data, *stated_size], {"axis": axis, "inverse": int(inverse)})
    if not real:
        return data
    half = pen.op("Add", [pen.op("Div", [length, pen.integers([2])]), pen.integers([1])])
    return pen.part(data, axes[-1], pen.integers([0]), half)


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
