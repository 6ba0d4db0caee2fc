"""Layers that take, put, count and order elements by their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    INT32,
    INT64,
    INTEGERS,
    NUMBERS,
    SIZES,
    Values,
    as_int64,
    as_positions,
    axis_input,
    constant,
    rank_of,
    require,
)
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_openvino


def _typed_result(
    builder: LayerOpBuilder, layer: Layer, value: ir.Value, name: str, default: str = "i64"
) -> ir.Value:
    """Return positions in the type that a layer gives them; ONNX gives int64."""
    kind = from_openvino(layer.read_text(name, default))
    require(kind in (INT32, INT64), f"{layer} has {name} = {kind}")
    assert kind is not None
    return value if kind is INT64 else builder.cast(value, kind)


def _gather_elements(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    # The other way round is another question: ONNX counts negative positions from the end.
    data, indices = sources
    (axis,) = layer.read_integers("axis")
    return builder.op("GatherElements", [data, as_positions(builder, indices)], {"axis": axis})


def _gather_nd(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, indices = sources
    (batch,) = layer.read_integers("batch_dims", [0])
    # Version 5 makes one axis of all batches.
    require(layer.version != "opset5" or batch < 2, f"{layer} of opset5 joins {batch} axes of batches")
    return builder.op("GatherND", [data, as_int64(builder, indices)], {"batch_dims": batch} if batch else {})


_REDUCTIONS: Final = {"none": None, "sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _reduction(layer: Layer) -> str | None:
    found: str | None = layer.read_enum("reduction", _REDUCTIONS, "none")
    return found


def _scatter_elements(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, indices, updates, axis = sources
    attributes: dict[str, int | str] = {"axis": axis_input(builder, layer, axis)}
    if (reduction := _reduction(layer)) is not None:
        uses = layer.read_boolean("use_init_val", default=True)
        require(uses, f"{layer} leaves out the first value, which ONNX does not")
        attributes["reduction"] = reduction
    return builder.op("ScatterElements", [data, as_positions(builder, indices), updates], attributes)


def _scatter_nd(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, indices, updates = sources
    reduction = _reduction(layer)
    attributes = {} if reduction is None else {"reduction": reduction}
    return builder.op("ScatterND", [data, as_int64(builder, indices), updates], attributes)


def _scatter(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, indices, updates, given = sources
    rank, axis = rank_of(builder, layer, data), axis_input(builder, layer, given)
    require(axis in (0, -rank), f"{layer} replaces along axis {axis}, ONNX along the first one")
    inner = builder.op("Unsqueeze", [as_int64(builder, indices), builder.integers([-1])])
    return builder.op("ScatterND", [data, inner, updates])


def _cumulative_sum(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, axis = sources
    flags = {name: int(layer.read_boolean(name, default=False)) for name in ("exclusive", "reverse")}
    return builder.op("CumSum", [data, axis], flags)


def _top_k(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> Values:
    data, count = sources
    largest = layer.read_enum("mode", {"max": 1, "min": 0})
    layer.read_enum("sort", ("value", "none"))  # without an order, any is right
    (axis,) = layer.read_integers("axis")
    count = builder.op("Reshape", [as_int64(builder, count), builder.integers([1])])
    attributes = {"axis": axis, "largest": largest, "sorted": 1}
    values, positions = builder.multi("TopK", [data, count], attributes, outputs=2)
    return [values, _typed_result(builder, layer, positions, "index_element_type", "i32")]


def _non_zero(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    return _typed_result(builder, layer, builder.op("NonZero", sources), "output_type")


def _one_hot(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    """Compare positions with 0, 1, 2 ...: ONNX's OneHot counts negative ones from the end."""
    indices, depth, on, off = sources
    layer.read_enum("negative_indices_mode", ("ignore_negative",), "ignore_negative")
    size = int(constant(builder, layer, depth, "depth").reshape(()))
    rank = rank_of(builder, layer, indices) + 1
    (axis,) = layer.read_integers("axis")
    axis %= rank
    shape = [size if index == axis else 1 for index in range(rank)]
    positions = builder.constant(np.arange(size, dtype=np.int64).reshape(shape))
    wide = builder.op("Unsqueeze", [as_int64(builder, indices), builder.integers([axis])])
    return builder.op("Where", [builder.op("Equal", [wide, positions]), on, off])


def _reverse_sequence(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, lengths = sources
    rank = rank_of(builder, layer, data)
    batch, time = (
        layer.read_integers(name, [default])[0] % rank
        for name, default in (("batch_axis", 0), ("seq_axis", 1))
    )
    first = [batch, time] if {batch, time} != {0, 1} else [0, 1]
    order = [*first, *(axis for axis in range(rank) if axis not in first)]
    moved = order != sorted(order)  # ONNX has both among the first two axes
    attributes = {"batch_axis": 0 if moved else batch, "time_axis": 1 if moved else time}
    data = builder.op("Transpose", [data], {"perm": order}) if moved else data
    made = builder.op("ReverseSequence", [data, as_int64(builder, lengths)], attributes)
    back = sorted(range(rank), key=order.__getitem__)
    return builder.op("Transpose", [made], {"perm": back}) if moved else made


_COUNTED: Final = SIZES | {ELEMENT_TYPES["float32"], ELEMENT_TYPES["float64"]}
"""The types in which ONNX and layers both count."""


def _range(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    stated = layer.get_attribute("output_type")
    kind = builder.type_of(sources[0]) if stated is None else from_openvino(stated)
    given = [builder.type_of(source) for source in sources]
    # Of fractions, OpenVINO counts before it converts them to integers.
    same = kind in _COUNTED and all(own is kind or own in INTEGERS for own in given)
    require(same, f"{layer} counts {', '.join(map(str, given))} as {kind}")
    assert kind is not None
    return builder.op("Range", [_as_scalar(builder, source, kind) for source in sources])


def _as_scalar(builder: LayerOpBuilder, value: ir.Value, kind: ElementType) -> ir.Value:
    value = value if builder.type_of(value) is kind else builder.cast(value, kind)
    return value if builder.shape_of(value) == () else builder.op("Reshape", [value, builder.integers([])])


POSITIONS: Final = (
    LayerForm(layer="GatherElements", versions=opsets(6), write=_gather_elements),
    LayerForm(layer="GatherND", versions=opsets(5, 8), write=_gather_nd),
    LayerForm(layer="ScatterElementsUpdate", versions=opsets(3), write=_scatter_elements),
    LayerForm(layer="ScatterElementsUpdate", versions=opsets(12), write=_scatter_elements, opset=18),
    LayerForm(layer="ScatterNDUpdate", versions=opsets(4), write=_scatter_nd),
    LayerForm(layer="ScatterNDUpdate", versions=opsets(15), write=_scatter_nd, opset=18),
    LayerForm(layer="ScatterUpdate", versions=opsets(3), write=_scatter),
    LayerForm(layer="CumSum", versions=opsets(3), write=_cumulative_sum, types=NUMBERS),
    LayerForm(layer="TopK", versions=opsets(1, 3, 11), write=_top_k, types=NUMBERS),
    LayerForm(layer="NonZero", versions=opsets(3), write=_non_zero),
    LayerForm(layer="OneHot", versions=opsets(1, 16), write=_one_hot),
    LayerForm(layer="ReverseSequence", versions=opsets(1), write=_reverse_sequence),
    LayerForm(layer="Range", versions=opsets(4), write=_range, types=NUMBERS | INTEGERS),
)
