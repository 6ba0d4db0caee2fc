"""Converters of image layers: resizing, sampling and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.ops.writing import (
    FLOATS,
    INT32,
    Values,
    as_int64,
    get_rank,
    read_integers,
    require,
    require_constant,
)
from splitops.spec.elements.types import ELEMENT_TYPES

_COORDINATES: Final = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _write_interpolate(
    builder: LayerOpBuilder, data: ir.Value, wanted: ir.Value, *more: ir.Value
) -> ir.Value:
    rank = get_rank(builder, data)
    by_sizes = builder.layer.read_string("shape_calculation_mode") == "sizes"
    if builder.layer.version == "opset4":  # it has inputs for sizes and for scales, and uses one of them
        wanted, more = (wanted if by_sizes else more[0]), more[1:]
    padding = (*builder.layer.read_integers("pads_begin", []), *builder.layer.read_integers("pads_end", []))
    require(builder, not any(padding), "pads its data, which ONNX does not")
    require(
        builder,
        not builder.layer.read_boolean("antialias", default=False),
        "sets antialias, which cannot be converted",
    )
    axes = read_integers(builder, more[0]) if more else list(range(rank))
    attributes = _read_resize_attributes(builder, [axis % rank for axis in axes])
    if by_sizes:
        sizes = _replace_axes(builder, builder.add("Shape", [data]), as_int64(builder, wanted), axes, rank)
        return builder.add("Resize", [data, None, None, sizes], attributes)
    kind = ELEMENT_TYPES["float32"]
    ones = builder.add_constant(np.ones(rank, np.float32))
    scales = wanted if builder.find_type(wanted) is kind else builder.cast(wanted, kind)
    return builder.add("Resize", [data, None, _replace_axes(builder, ones, scales, axes, rank)], attributes)


def _read_resize_attributes(builder: LayerOpBuilder, axes: Sequence[int]) -> dict[str, Any]:
    layer = builder.layer
    # OpenVINO's "linear" differs from linear interpolation along one axis after the other.
    mode = layer.read_enum("mode", {"nearest": "nearest", "linear_onnx": "linear", "cubic": "cubic"})
    require(
        builder,
        mode != "cubic" or len(axes) == 2,
        f"is cubic on {len(axes)} axes, but only 2 can be converted",
    )
    coordinates = layer.read_enum("coordinate_transformation_mode", _COORDINATES, "half_pixel")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = layer.read_enum("nearest_mode", _ROUNDINGS, "round_prefer_floor")
    if mode == "cubic":
        attributes["cubic_coeff_a"] = layer.read_number("cube_coeff", -0.75)
    return attributes


def _replace_axes(
    builder: LayerOpBuilder, others: ir.Value, some: ir.Value, axes: Sequence[int], rank: int
) -> ir.Value:
    """Return ``others`` with its elements at ``axes`` replaced with those of ``some``. Both are 1-D."""
    places = [axis % rank for axis in axes]
    if places == list(range(rank)):
        return some
    joined = builder.add("Concat", [others, some], {"axis": 0})
    order = [rank + places.index(axis) if axis in places else axis for axis in range(rank)]
    return builder.add("Gather", [joined, builder.add_ints(order)], {"axis": 0})


def _write_roi_align(builder: LayerOpBuilder, data: ir.Value, boxes: ir.Value, batches: ir.Value) -> ir.Value:
    # OpenVINO's "half_pixel" shifts boxes by half an image pixel, ONNX's by half a pixel of the feature map.
    modes = {"asymmetric": "output_half_pixel", "half_pixel_for_nn": "half_pixel"}
    layer = builder.layer
    attributes = {
        "output_height": layer.read_integers("pooled_h")[0],
        "output_width": layer.read_integers("pooled_w")[0],
        "sampling_ratio": layer.read_integers("sampling_ratio")[0],
        "spatial_scale": layer.read_number("spatial_scale"),
        "mode": layer.read_enum("mode", ("avg",)),
        "coordinate_transformation_mode": layer.read_enum("aligned_mode", modes, "asymmetric"),
    }
    return builder.add("RoiAlign", [data, boxes, as_int64(builder, batches)], attributes)


def _write_non_max_suppression(builder: LayerOpBuilder, *sources: ir.Value) -> Values:
    inputs, deviation = list(sources[:5]), sources[5:]
    sorted_ = builder.layer.read_boolean("sort_result_descending", default=True)
    require(builder, not sorted_, "sorts the selected boxes across classes, which ONNX does not")
    soft = any(require_constant(builder, value, "soft_nms_sigma").any() for value in deviation)
    require(builder, not soft, "sets soft_nms_sigma, which ONNX does not have")
    for output, name in ((1, "scores"), (2, "number")):
        if output < len(builder.layer.outputs) and builder.has_consumers(output):
            raise ModelError(f"ONNX does not return the {name} of {builder.layer}")
    centred = builder.layer.read_enum("box_encoding", {"corner": 0, "center": 1}, "corner")
    if len(inputs) > 2:
        inputs[2] = as_int64(builder, inputs[2])
    one = builder.add_ints([1])
    inputs[2:] = [builder.add("Reshape", [value, one]) for value in inputs[2:]]
    selected = builder.add("NonMaxSuppression", inputs, {"center_point_box": centred})
    if builder.layer.read_string("output_type", "i64") == "i32":
        selected = builder.cast(selected, INT32)
    return [selected, None, None][: len(builder.layer.outputs)]


def _write_grid_sample(builder: LayerOpBuilder, *sources: ir.Value) -> ir.Value:
    mode = builder.layer.read_enum("mode", ("bilinear", "nearest", "bicubic"), "bilinear")
    padding = builder.layer.read_enum("padding_mode", ("zeros", "border", "reflection"), "zeros")
    corners = int(builder.layer.read_boolean("align_corners", default=False))
    return builder.add(
        "GridSample", sources, {"mode": mode, "padding_mode": padding, "align_corners": corners}
    )


_entry = partial(LayerConverter, types=FLOATS)

IMAGES: Final = (
    _entry(layer="Interpolate", versions=(4, 11), write=_write_interpolate),
    _entry(layer="ROIAlign", versions=(3, 9), write=_write_roi_align, opset=16),
    _entry(layer="NonMaxSuppression", versions=(5, 9), write=_write_non_max_suppression),
    _entry(layer="GridSample", versions=(9,), write=_write_grid_sample, opset=16),
)
