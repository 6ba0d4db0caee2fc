"""Converters of matrix products, attention, Einsum and Fourier transforms."""

from __future__ import annotations

import math
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
    NUMBERS,
    add_scalar,
    get_rank,
    read_integers,
    require,
    unwrap,
)
from splitops.spec.elements.types import ELEMENT_TYPES


def _write_matmul(builder: LayerOpBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    factors = [
        _transpose(builder, value) if builder.layer.read_boolean(name, default=False) else value
        for value, name in ((left, "transpose_a"), (right, "transpose_b"))
    ]
    return builder.add("MatMul", factors)


def _transpose(builder: LayerOpBuilder, value: ir.Value) -> ir.Value:
    """Transpose the last two axes. Vectors are returned unchanged."""
    rank = get_rank(builder, value)
    if rank < 2:
        return value
    return builder.add("Transpose", [value], {"perm": [*range(rank - 2), rank - 1, rank - 2]})


def _write_einsum(builder: LayerOpBuilder, *sources: ir.Value) -> ir.Value:
    equation = builder.layer.get_attribute("equation")
    require(builder, bool(equation), "has no equation")
    return builder.add("Einsum", sources, {"equation": equation})


def _write_attention(
    builder: LayerOpBuilder, query: ir.Value, key: ir.Value, value: ir.Value, *more: ir.Value
) -> ir.Value:
    causal = builder.layer.read_boolean("causal")
    mask = more[0] if more and not causal else None
    scores = builder.add("MatMul", [_scale(builder, query, more[1:]), _transpose(builder, key)])
    if causal:
        mask = _make_causal_mask(builder, scores)
    if mask is not None:
        if builder.find_type(mask) is BOOL:
            zero, outside = add_scalar(builder, 0, query), add_scalar(builder, -math.inf, query)
            mask = builder.add("Where", [mask, zero, outside])
        scores = builder.add("Add", [scores, mask])
    return builder.add("MatMul", [builder.add("Softmax", [scores], {"axis": -1}), value])


def _scale(builder: LayerOpBuilder, query: ir.Value, scale: Sequence[ir.Value]) -> ir.Value:
    if scale:
        return builder.add("Mul", [query, scale[0]])
    width = (builder.find_shape(query) or (None,))[-1]
    if isinstance(width, int):
        return builder.add("Mul", [query, add_scalar(builder, 1 / math.sqrt(width), query)])
    # This is as precise as the constant above: it is rounded once, to the type of the query.
    kind = unwrap(builder.find_type(query), "the element type")
    size = builder.cast(builder.add_size(query, builder.add_constant(np.array(-1, np.int64))), FLOAT64)
    factor = builder.add("Div", [builder.add_constant(np.array(1.0)), builder.add("Sqrt", [size])])
    return builder.add("Mul", [query, builder.cast(factor, kind)])


def _make_causal_mask(builder: LayerOpBuilder, scores: ir.Value) -> ir.Value:
    """Return the mask of the keys that each query attends to: those up to its own position."""
    sizes = builder.add(
        "Slice", [builder.add("Shape", [scores]), builder.add_ints([-2]), builder.add_ints([1 << 62])]
    )
    ones = builder.add("Expand", [builder.add_constant(np.array(1, np.int64)), sizes])
    return builder.cast(builder.add("Trilu", [ones], {"upper": 0}), BOOL)


def _write_dft(
    builder: LayerOpBuilder,
    data: ir.Value,
    axes_input: ir.Value,
    *lengths: ir.Value,
    inverse: bool = False,
    real: bool = False,
) -> ir.Value:
    """Write a transform as one DFT per axis. For ``real`` data, the last of these axes is one-sided."""
    rank = get_rank(builder, data) - (not real)
    axes = [axis % rank for axis in read_integers(builder, axes_input)]
    sizes = read_integers(builder, lengths[0], "sizes") if lengths else [-1] * len(axes)
    if real:
        # Transform complex numbers: OpenVINO's frontend adds an axis to one-sided transforms.
        data = builder.add("Unsqueeze", [data, builder.add_ints([-1])])
        data = builder.add("Pad", [data, builder.add_ints([*[0] * (2 * rank + 1), 1])])
        length = (
            builder.add_ints(sizes[-1:])
            if sizes[-1] != -1
            else builder.add_size(data, builder.add_ints(axes[-1:]))
        )
    for axis, size in zip(axes, sizes, strict=True):
        dft_length = [] if size == -1 else [builder.add_constant(np.array(size, np.int64))]
        data = builder.add("DFT", [data, *dft_length], {"axis": axis, "inverse": int(inverse)})
    if not real:
        return data
    half = builder.add("Add", [builder.add("Div", [length, builder.add_ints([2])]), builder.add_ints([1])])
    return builder.slice_axis(data, axes[-1], builder.add_ints([0]), half)


FLOAT64: Final = ELEMENT_TYPES["float64"]
WIDE: Final = frozenset(kind for kind in FLOATS if kind.bits >= 32)
"""Floating-point types that runtimes support in transforms."""
_entry = partial(LayerConverter, opset=17, types=WIDE)

PRODUCTS: Final = (
    LayerConverter(layer="MatMul", write=_write_matmul, types=NUMBERS),
    LayerConverter(layer="Einsum", versions=(7,), write=_write_einsum, types=NUMBERS),
    LayerConverter(layer="ScaledDotProductAttention", versions=(13,), write=_write_attention, types=FLOATS),
    _entry(layer="DFT", versions=(7,), write=_write_dft),
    _entry(layer="IDFT", versions=(7,), write=partial(_write_dft, inverse=True)),
    _entry(layer="RDFT", versions=(9,), write=partial(_write_dft, real=True)),
)
