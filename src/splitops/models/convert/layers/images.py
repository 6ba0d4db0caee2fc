"""Layers of images: resizing, sampling, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    FLOATS,
    INT32,
    Values,
    as_int64,
    axes_of,
    constant,
    rank_of,
    require,
)
from splitops.spec.elements.types import ELEMENT_TYPES

_COORDINATES: Final = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _interpolate(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, rank = sources[0], rank_of(builder, layer, sources[0])
    by_sizes = layer.read_text("shape_calculation_mode") == "sizes"
    if layer.version == "opset4":  # sizes and scales both, of which one counts
        wanted, given = (sources[1] if by_sizes else sources[2]), sources[3:]
    else:
        wanted, given = sources[1], sources[2:]
    padding = (*layer.read_integers("pads_begin", []), *layer.read_integers("pads_end", []))
    require(not any(padding), f"{layer} pads what it resizes")
    require(not layer.read_boolean("antialias", default=False), f"{layer} smooths what it resizes")
    axes = axes_of(builder, layer, given[0]) if given else list(range(rank))
    attributes = _resizing(layer, [axis % rank for axis in axes])
    if by_sizes:
        sizes = _on_every_axis(builder, builder.op("Shape", [data]), as_int64(builder, wanted), axes, rank)
        return builder.op("Resize", [data, None, None, sizes], attributes)
    kind = ELEMENT_TYPES["float32"]
    ones = builder.constant(np.ones(rank, np.float32))
    scales = wanted if builder.type_of(wanted) is kind else builder.cast(wanted, kind)
    return builder.op("Resize", [data, None, _on_every_axis(builder, ones, scales, axes, rank)], attributes)


def _resizing(layer: Layer, axes: Sequence[int]) -> dict[str, Any]:
    # OpenVINO's "linear" weighs neighbours in another way than along one axis after the other.
    mode = layer.read_enum("mode", {"nearest": "nearest", "linear_onnx": "linear", "cubic": "cubic"})
    require(mode != "cubic" or len(axes) == 2, f"{layer} is cubic on {len(axes)} axes")
    coordinates = layer.read_enum("coordinate_transformation_mode", _COORDINATES, "half_pixel")
    found: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        found["nearest_mode"] = layer.read_enum("nearest_mode", _ROUNDINGS, "round_prefer_floor")
    if mode == "cubic":
        found["cubic_coeff_a"] = layer.read_number("cube_coeff", -0.75)
    return found


def _on_every_axis(
    builder: LayerOpBuilder, others: ir.Value, some: ir.Value, axes: Sequence[int], rank: int
) -> ir.Value:
    """Return one number for each axis: those of some axes, and the others'."""
    places = [axis % rank for axis in axes]
    if places == list(range(rank)):
        return some
    joined = builder.op("Concat", [others, some], {"axis": 0})
    taken = [rank + places.index(axis) if axis in places else axis for axis in range(rank)]
    return builder.op("Gather", [joined, builder.integers(taken)], {"axis": 0})


def _roi_align(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    # OpenVINO's "half_pixel" moves boxes by half a pixel of the image, ONNX's by half a pixel of the data.
    words = {"asymmetric": "output_half_pixel", "half_pixel_for_nn": "half_pixel"}
    data, boxes, batches = sources
    attributes = {
        "output_height": layer.read_integers("pooled_h")[0],
        "output_width": layer.read_integers("pooled_w")[0],
        "sampling_ratio": layer.read_integers("sampling_ratio")[0],
        "spatial_scale": layer.read_number("spatial_scale"),
        "mode": layer.read_enum("mode", ("avg",)),
        "coordinate_transformation_mode": layer.read_enum("aligned_mode", words, "asymmetric"),
    }
    return builder.op("RoiAlign", [data, boxes, as_int64(builder, batches)], attributes)


def _suppression(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> Values:
    inputs, deviation = list(sources[:5]), sources[5:]
    sorted_ = layer.read_boolean("sort_result_descending", default=True)
    require(not sorted_, f"{layer} sorts what it selects of all classes together")
    soft = any(constant(builder, layer, value, "soft_nms_sigma").any() for value in deviation)
    require(not soft, f"{layer} lowers scores where ONNX drops boxes")
    for output, name in ((1, "scores"), (2, "number")):
        read = output < len(layer.outputs) and builder.has_consumers(output)
        require(not read, f"the {name} that {layer} gives ONNX does not")
    centred = layer.read_enum("box_encoding", {"corner": 0, "center": 1}, "corner")
    if len(inputs) > 2:
        inputs[2] = as_int64(builder, inputs[2])
    one = builder.integers([1])
    inputs[2:] = [builder.op("Reshape", [value, one]) for value in inputs[2:]]
    selected = builder.op("NonMaxSuppression", inputs, {"center_point_box": centred})
    if layer.read_text("output_type", "i64") == "i32":
        selected = builder.cast(selected, INT32)
    return [selected, None, None][: len(layer.outputs)]


def _grid_sample(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    mode = layer.read_enum("mode", ("bilinear", "nearest", "bicubic"), "bilinear")
    padding = layer.read_enum("padding_mode", ("zeros", "border", "reflection"), "zeros")
    corners = int(layer.read_boolean("align_corners", default=False))
    return builder.op(
        "GridSample", sources, {"mode": mode, "padding_mode": padding, "align_corners": corners}
    )


_form = partial(LayerForm, types=FLOATS)

IMAGES: Final = (
    _form(layer="Interpolate", versions=opsets(4, 11), write=_interpolate),
    _form(layer="ROIAlign", versions=opsets(3, 9), write=_roi_align, opset=16),
    _form(layer="NonMaxSuppression", versions=opsets(5, 9), write=_suppression),
    _form(layer="GridSample", versions=opsets(9), write=_grid_sample, opset=16),
)
