"""Converters of layers that read, write, count and order elements by their positions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.ops.writing import (
    INT32,
    INT64,
    INTEGERS,
    NUMBERS,
    SIZES,
    Values,
    as_int64,
    as_positions,
    get_rank,
    read_axis,
    require,
    require_constant,
)
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_openvino


def _cast_positions(builder: LayerOpBuilder, value: ir.Value, name: str, default: str = "i64") -> ir.Value:
    """Cast positions from int64 to the element type in the attribute ``name`` of a layer."""
    kind = from_openvino(builder.layer.read_string(name, default))
    require(builder, kind in (INT32, INT64), f"has {name} = {kind}, but only i32 and i64 can be converted")
    assert kind is not None
    return value if kind is INT64 else builder.cast(value, kind)


def _write_gather_elements(builder: LayerOpBuilder, data: ir.Value, indices: ir.Value) -> ir.Value:
    # There is no conversion back: ONNX also accepts negative positions, which it counts from the end.
    (axis,) = builder.layer.read_integers("axis")
    return builder.add("GatherElements", [data, as_positions(builder, indices)], {"axis": axis})


def _write_gather_nd(builder: LayerOpBuilder, data: ir.Value, indices: ir.Value) -> ir.Value:
    (batch,) = builder.layer.read_integers("batch_dims", [0])
    # Version 5 flattens all batch axes into one.
    require(
        builder,
        builder.layer.version != "opset5" or batch < 2,
        f"of opset5 flattens {batch} batch axes, which ONNX does not",
    )
    return builder.add("GatherND", [data, as_int64(builder, indices)], {"batch_dims": batch} if batch else {})


_REDUCTIONS: Final = {"none": None, "sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _read_reduction(builder: LayerOpBuilder) -> dict[str, Any]:
    reduction = builder.layer.read_enum("reduction", _REDUCTIONS, "none")
    return {} if reduction is None else {"reduction": reduction}


def _write_scatter(
    builder: LayerOpBuilder, data: ir.Value, indices: ir.Value, updates: ir.Value, axis: ir.Value
) -> ir.Value:
    reduction = _read_reduction(builder)
    uses = not reduction or builder.layer.read_boolean("use_init_val", default=True)
    require(builder, uses, "omits the initial value, which ONNX does not")
    inputs = [data, as_positions(builder, indices), updates]
    return builder.add("ScatterElements", inputs, {"axis": read_axis(builder, axis)} | reduction)


def _write_scatter_nd(
    builder: LayerOpBuilder, data: ir.Value, indices: ir.Value, updates: ir.Value
) -> ir.Value:
    return builder.add("ScatterND", [data, as_int64(builder, indices), updates], _read_reduction(builder))


def _write_scatter_update(
    builder: LayerOpBuilder, data: ir.Value, indices: ir.Value, updates: ir.Value, given: ir.Value
) -> ir.Value:
    rank, axis = get_rank(builder, data), read_axis(builder, given)
    require(builder, axis in (0, -rank), f"replaces along axis {axis}, but ONNX only along the first one")
    inner = builder.add("Unsqueeze", [as_int64(builder, indices), builder.add_ints([-1])])
    return builder.add("ScatterND", [data, inner, updates])


def _write_cum_sum(builder: LayerOpBuilder, data: ir.Value, axis: ir.Value) -> ir.Value:
    flags = {name: int(builder.layer.read_boolean(name, default=False)) for name in ("exclusive", "reverse")}
    return builder.add("CumSum", [data, axis], flags)


def _write_top_k(builder: LayerOpBuilder, data: ir.Value, count: ir.Value) -> Values:
    largest = builder.layer.read_enum("mode", {"max": 1, "min": 0})
    builder.layer.read_enum("sort", ("value", "none"))  # without an order, every order is valid
    (axis,) = builder.layer.read_integers("axis")
    count = builder.add("Reshape", [as_int64(builder, count), builder.add_ints([1])])
    attributes = {"axis": axis, "largest": largest, "sorted": 1}
    values, positions = builder.add_node("TopK", [data, count], attributes, outputs=2)
    return [values, _cast_positions(builder, positions, "index_element_type", "i32")]


def _write_non_zero(builder: LayerOpBuilder, data: ir.Value) -> ir.Value:
    return _cast_positions(builder, builder.add("NonZero", [data]), "output_type")


def _write_one_hot(
    builder: LayerOpBuilder, indices: ir.Value, depth: ir.Value, on: ir.Value, off: ir.Value
) -> ir.Value:
    """Write a comparison with 0, 1, 2 ... instead of a OneHot, which counts negative indices from the end."""
    builder.layer.read_enum("negative_indices_mode", ("ignore_negative",), "ignore_negative")
    size = int(require_constant(builder, depth, "depth").reshape(()))
    rank = get_rank(builder, indices) + 1
    (axis,) = builder.layer.read_integers("axis")
    axis %= rank
    shape = [size if index == axis else 1 for index in range(rank)]
    positions = builder.add_constant(np.arange(size, dtype=np.int64).reshape(shape))
    wide = builder.add("Unsqueeze", [as_int64(builder, indices), builder.add_ints([axis])])
    return builder.add("Where", [builder.add("Equal", [wide, positions]), on, off])


def _write_reverse_sequence(builder: LayerOpBuilder, data: ir.Value, lengths: ir.Value) -> ir.Value:
    rank = get_rank(builder, data)
    batch, time = (
        builder.layer.read_integers(name, [default])[0] % rank
        for name, default in (("batch_axis", 0), ("seq_axis", 1))
    )
    first = [batch, time] if {batch, time} != {0, 1} else [0, 1]
    order = [*first, *(axis for axis in range(rank) if axis not in first)]
    moved = order != sorted(order)  # ONNX requires both to be among the first two axes
    attributes = {"batch_axis": 0 if moved else batch, "time_axis": 1 if moved else time}
    data = builder.add("Transpose", [data], {"perm": order}) if moved else data
    result = builder.add("ReverseSequence", [data, as_int64(builder, lengths)], attributes)
    back = sorted(range(rank), key=order.__getitem__)
    return builder.add("Transpose", [result], {"perm": back}) if moved else result


_COUNTED: Final = SIZES | {ELEMENT_TYPES["float32"], ELEMENT_TYPES["float64"]}
"""Element types for which a Range is converted."""


def _write_range(builder: LayerOpBuilder, *sources: ir.Value) -> ir.Value:
    name = builder.layer.get_attribute("output_type")
    kind = builder.find_type(sources[0]) if name is None else from_openvino(name)
    types = [builder.find_type(source) for source in sources]
    # OpenVINO computes with fractions before it converts them to integers.
    same = kind in _COUNTED and all(own is kind or own in INTEGERS for own in types)
    require(builder, same, f"counts {', '.join(map(str, types))} as {kind}, which differs in ONNX")
    assert kind is not None
    return builder.add("Range", [_as_scalar(builder, source, kind) for source in sources])


def _as_scalar(builder: LayerOpBuilder, value: ir.Value, kind: ElementType) -> ir.Value:
    value = value if builder.find_type(value) is kind else builder.cast(value, kind)
    return value if builder.find_shape(value) == () else builder.add("Reshape", [value, builder.add_ints([])])


POSITIONS: Final = (
    LayerConverter(layer="GatherElements", versions=(6,), write=_write_gather_elements),
    LayerConverter(layer="GatherND", versions=(5, 8), write=_write_gather_nd),
    LayerConverter(layer="ScatterElementsUpdate", versions=(3,), write=_write_scatter),
    LayerConverter(layer="ScatterElementsUpdate", versions=(12,), write=_write_scatter, opset=18),
    LayerConverter(layer="ScatterNDUpdate", versions=(4,), write=_write_scatter_nd),
    LayerConverter(layer="ScatterNDUpdate", versions=(15,), write=_write_scatter_nd, opset=18),
    LayerConverter(layer="ScatterUpdate", versions=(3,), write=_write_scatter_update),
    LayerConverter(layer="CumSum", versions=(3,), write=_write_cum_sum, types=NUMBERS),
    LayerConverter(layer="TopK", versions=(1, 3, 11), write=_write_top_k, types=NUMBERS),
    LayerConverter(layer="NonZero", versions=(3,), write=_write_non_zero),
    LayerConverter(layer="OneHot", versions=(1, 16), write=_write_one_hot),
    LayerConverter(layer="ReverseSequence", write=_write_reverse_sequence),
    LayerConverter(layer="Range", versions=(4,), write=_write_range, types=NUMBERS | INTEGERS),
)
