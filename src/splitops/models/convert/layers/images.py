"""Layers of images: resizing, sampling, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.pens import LayerPen
from splitops.models.formats.openvino import Layer
from splitops.models.movers.form import (
    FLOATS,
    INT32,
    LayerForm,
    Values,
    as_int64,
    boolean,
    constant,
    integers,
    number,
    opsets,
    prove,
    rank_of,
    text,
)
from splitops.spec.elements.types import ELEMENT_TYPES

_COORDINATES: Final = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _interpolate(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, rank = sources[0], rank_of(pen, layer, sources[0])
    by_sizes = text(layer, "shape_calculation_mode") == "sizes"
    if layer.version == "opset4":  # sizes and scales both, of which one counts
        wanted, given = (sources[1] if by_sizes else sources[2]), sources[3:]
    else:
        wanted, given = sources[1], sources[2:]
    padding = (*integers(layer, "pads_begin", []), *integers(layer, "pads_end", []))
    prove(not any(padding), f"{layer} pads what it resizes")
    prove(not boolean(layer, "antialias", default=False), f"{layer} smooths what it resizes")
    axes = [int(axis) for axis in constant(pen, layer, given[0], "axes")] if given else list(range(rank))
    attributes = _resizing(layer, [axis % rank for axis in axes])
    if by_sizes:
        sizes = _on_every_axis(pen, pen.op("Shape", [data]), as_int64(pen, wanted), axes, rank)
        return pen.op("Resize", [data, None, None, sizes], attributes)
    kind = ELEMENT_TYPES["float32"]
    ones = pen.constant(np.ones(rank, np.float32))
    scales = wanted if pen.type_of(wanted) is kind else pen.cast(wanted, kind)
    return pen.op("Resize", [data, None, _on_every_axis(pen, ones, scales, axes, rank)], attributes)


def _resizing(layer: Layer, axes: Sequence[int]) -> dict[str, Any]:
    mode = text(layer, "mode")
    words = {"nearest": "nearest", "linear_onnx": "linear", "cubic": "cubic"}
    # OpenVINO's "linear" weighs neighbours in another way than along one axis after the other.
    prove(mode in words, f"{layer} has mode = {mode!r}, which ONNX lacks")
    prove(mode != "cubic" or len(axes) == 2, f"{layer} is cubic on {len(axes)} axes")
    coordinates = text(layer, "coordinate_transformation_mode", "half_pixel")
    prove(coordinates in _COORDINATES, f"{layer} has coordinate_transformation_mode = {coordinates!r}")
    found: dict[str, Any] = {"mode": words[mode], "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        rounding = text(layer, "nearest_mode", "round_prefer_floor")
        prove(rounding in _ROUNDINGS, f"{layer} has nearest_mode = {rounding!r}")
        found["nearest_mode"] = rounding
    if mode == "cubic":
        found["cubic_coeff_a"] = number(layer, "cube_coeff", -0.75)
    return found


def _on_every_axis(
    pen: LayerPen, others: ir.Value, some: ir.Value, axes: Sequence[int], rank: int
) -> ir.Value:
    """Return one number for each axis: those of some axes, and the others'."""
    places = [axis % rank for axis in axes]
    if places == list(range(rank)):
        return some
    joined = pen.op("Concat", [others, some], {"axis": 0})
    taken = [rank + places.index(axis) if axis in places else axis for axis in range(rank)]
    return pen.op("Gather", [joined, pen.integers(taken)], {"axis": 0})


def _roi_align(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    mode, aligned = text(layer, "mode"), text(layer, "aligned_mode", "asymmetric")
    prove(mode == "avg", f"{layer} has mode = {mode!r}, which ONNX reads in another way")
    # OpenVINO's "half_pixel" moves boxes by half a pixel of the image, ONNX's by half a pixel of the data.
    words = {"asymmetric": "output_half_pixel", "half_pixel_for_nn": "half_pixel"}
    prove(aligned in words, f"{layer} has aligned_mode = {aligned!r}")
    data, boxes, batches = sources
    attributes = {
        "output_height": integers(layer, "pooled_h")[0],
        "output_width": integers(layer, "pooled_w")[0],
        "sampling_ratio": integers(layer, "sampling_ratio")[0],
        "spatial_scale": number(layer, "spatial_scale"),
        "mode": mode,
        "coordinate_transformation_mode": words[aligned],
    }
    return pen.op("RoiAlign", [data, boxes, as_int64(pen, batches)], attributes)


def _suppression(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> Values:
    inputs, deviation = list(sources[:5]), sources[5:]
    sorted_ = boolean(layer, "sort_result_descending", default=True)
    prove(not sorted_, f"{layer} sorts what it selects of all classes together")
    soft = any(constant(pen, layer, value, "soft_nms_sigma").any() for value in deviation)
    prove(not soft, f"{layer} lowers scores where ONNX drops boxes")
    for output, name in ((1, "scores"), (2, "number")):
        read = output < len(layer.outputs) and pen.is_read(output)
        prove(not read, f"the {name} that {layer} gives ONNX does not")
    encoding = text(layer, "box_encoding", "corner")
    prove(encoding in ("corner", "center"), f"{layer} has box_encoding = {encoding!r}")
    if len(inputs) > 2:
        inputs[2] = as_int64(pen, inputs[2])
    one = pen.integers([1])
    inputs[2:] = [pen.op("Reshape", [value, one]) for value in inputs[2:]]
    attributes = {"center_point_box": int(encoding == "center")}
    selected = pen.op("NonMaxSuppression", inputs, attributes)
    if text(layer, "output_type", "i64") == "i32":
        selected = pen.cast(selected, INT32)
    return [selected, None, None][: len(layer.outputs)]


def _grid_sample(pen: LayerPen, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    mode, padding = text(layer, "mode", "bilinear"), text(layer, "padding_mode", "zeros")
    prove(mode in ("bilinear", "nearest", "bicubic"), f"{layer} has mode = {mode!r}")
    prove(padding in ("zeros", "border", "reflection"), f"{layer} has padding_mode = {padding!r}")
    corners = int(boolean(layer, "align_corners", default=False))
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    return pen.op("GridSample", sources, attributes)


_form = partial(LayerForm, types=FLOATS)

IMAGES: Final = (
    _form(layer="Interpolate", versions=opsets(4, 11), write=_interpolate),
    _form(layer="ROIAlign", versions=opsets(3, 9), write=_roi_align, opset=16),
    _form(layer="NonMaxSuppression", versions=opsets(5, 9), write=_suppression),
    _form(layer="GridSample", versions=opsets(9), write=_grid_sample, opset=16),
)
