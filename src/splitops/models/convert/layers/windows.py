"""Layers that slide a window over the data: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import onnx_ir as ir

from splitops.models.convert.layers.form import (
    FLOATS,
    LayerForm,
    Tape,
    Values,
    boolean,
    constant,
    integers,
    opsets,
    prove,
    rank_of,
    text,
)
from splitops.models.formats.openvino import Layer

__all__ = ["WINDOWS"]


@dataclass(frozen=True, slots=True)
class _Window:
    """How a layer moves its window: one number for each spatial axis."""

    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]
    auto_pad: str

    @classmethod
    def of(cls, layer: Layer) -> _Window:
        strides = integers(layer, "strides")
        ones, zeros = [1] * len(strides), [0] * len(strides)
        auto_pad = text(layer, "auto_pad", "explicit")
        known = ("explicit", "notset", "valid", "same_upper", "same_lower")
        prove(auto_pad in known, f"{layer} has auto_pad = {auto_pad!r}")
        begins, ends = integers(layer, "pads_begin", zeros), integers(layer, "pads_end", zeros)
        if auto_pad not in ("explicit", "notset"):
            begins, ends = zeros, zeros  # the text ignores them, whatever the file states
        prove(min((*begins, *ends), default=0) >= 0, f"{layer} has a negative padding")
        return cls(strides, integers(layer, "dilations", ones), begins, ends, auto_pad)

    @property
    def is_same(self) -> bool:
        """Whether the padding depends on the size of the data."""
        return self.auto_pad.startswith("same")

    def attributes(self) -> dict[str, Any]:
        """Return what a node states of it."""
        found: dict[str, Any] = {"strides": self.strides}
        if any(step != 1 for step in self.dilations):
            found["dilations"] = self.dilations
        if self.is_same:
            found["auto_pad"] = self.auto_pad.upper()
        elif any(self.begins) or any(self.ends):
            found["pads"] = [*self.begins, *self.ends]
        return found


# Convolutions


def _convolution(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    return tape.op("Conv", sources, _Window.of(layer).attributes())


def _group_convolution(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, filters = sources
    window, groups, shape = _Window.of(layer), *_grouped(tape, layer, filters)
    flat = _reshaped(tape, filters, [groups * shape[1], *shape[2:]])
    return tape.op("Conv", [data, flat], {**window.attributes(), "group": groups})


def _transposed(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    return tape.op("ConvTranspose", _without_shape(layer, sources), _transposed_attributes(layer))


def _group_transposed(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, filters = _without_shape(layer, sources)
    groups, shape = _grouped(tape, layer, filters)
    flat = _reshaped(tape, filters, [groups * shape[1], *shape[2:]])
    return tape.op("ConvTranspose", [data, flat], {**_transposed_attributes(layer), "group": groups})


def _without_shape(layer: Layer, sources: Sequence[ir.Value]) -> Sequence[ir.Value]:
    prove(len(sources) == 2, f"{layer} states the shape of its output, which ONNX pads in another way")
    return sources


def _transposed_attributes(layer: Layer) -> dict[str, Any]:
    window = _Window.of(layer)
    prove(not window.is_same, f"{layer} has auto_pad = {window.auto_pad!r}, which ONNX reads in another way")
    added = integers(layer, "output_padding", [0] * len(window.strides))
    return window.attributes() | ({"output_padding": added} if any(added) else {})


def _grouped(tape: Tape, layer: Layer, filters: ir.Value) -> tuple[int, list[int]]:
    """Return the number of groups and the shape of filters [groups, ...]."""
    shape = tape.shape_of(filters) or ()
    sizes = [size for size in shape if isinstance(size, int)]
    prove(len(sizes) == len(shape) >= 4, f"the shape of the filters of {layer} is not known")
    return sizes[0], sizes


def _reshaped(tape: Tape, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return a value in another shape, a constant one as a constant: runtimes prepare constant weights."""
    array = tape.numbers(value)
    if array is None:
        return tape.op("Reshape", [value, tape.integers(shape)])
    return tape.initializer(array.reshape(shape), value)


# Pools


def _max_pool(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> Values:
    window, kernel = _Window.of(layer), integers(layer, "kernel")
    attributes = {**window.attributes(), "kernel_shape": kernel}
    attributes |= _rounding(tape, layer, window, kernel, sources[0])
    if len(layer.outputs) < 2 or not tape.is_read(1):
        return [tape.op("MaxPool", sources, attributes), None][: len(layer.outputs)]
    rank = rank_of(tape, layer, sources[0])
    axis = int(text(layer, "axis", "0"))
    # ONNX counts positions through the whole tensor.
    prove(axis in (0, -rank), f"{layer} counts positions from axis {axis}, ONNX from the first one")
    data, positions = tape.multi("MaxPool", sources, attributes, outputs=2)
    if text(layer, "index_element_type", "i64") == "i32":
        positions = tape.op("Cast", [positions], {"to": ir.DataType.INT32.value})
    return [data, positions]


def _average_pool(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    window, kernel = _Window.of(layer), integers(layer, "kernel")
    attributes = {**window.attributes(), "kernel_shape": kernel}
    rounding = _rounding(tape, layer, window, kernel, sources[0])
    counts = not boolean(layer, "exclude-pad") and (any(window.begins) or any(window.ends) or window.is_same)
    # How many numbers a window counts that ends behind the padding, the texts do not say.
    prove(not (counts and rounding), f"{layer} counts padding and rounds up")
    if counts:
        attributes["count_include_pad"] = 1
    return tape.op("AveragePool", sources, attributes | rounding)


def _rounding(
    tape: Tape, layer: Layer, window: _Window, kernel: Sequence[int], data: ir.Value
) -> dict[str, Any]:
    """Return how a node says that a pool rounds its size, where up and down differ.

    ONNX and PyTorch drop a last window that begins in the padding; OpenVINO's ``ceil`` keeps it.
    """
    rounding = text(layer, "rounding_type", "floor")
    prove(rounding in ("floor", "ceil", "ceil_torch"), f"{layer} has rounding_type = {rounding!r}")
    if rounding == "floor" or window.is_same:
        return {}
    shape = (tape.shape_of(data) or ())[2:] or [None] * len(kernel)
    rows = list(zip(shape, kernel, window.strides, window.dilations, window.begins, window.ends, strict=True))
    if all(_divides(*row) for row in rows):
        return {}
    kept = rounding == "ceil" and not all(_begins_inside(*row) for row in rows)
    prove(not kept, f"{layer} has windows that may begin in the padding, which ONNX drops")
    return {"ceil_mode": 1}


def _divides(size: Any, kernel: int, stride: int, dilation: int, begin: int, end: int) -> bool:
    if stride == 1:
        return True
    return isinstance(size, int) and (size + begin + end - (kernel - 1) * dilation - 1) % stride == 0


def _begins_inside(size: Any, kernel: int, stride: int, dilation: int, begin: int, end: int) -> bool:
    """Return whether the last window begins in the data even where the size is rounded up."""
    span = (kernel - 1) * dilation + 1
    if not isinstance(size, int):
        return end + stride <= span
    return -((size + begin + end - span) // -stride) * stride < size + begin


def _adaptive_average(tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, wanted = sources
    outputs = [int(size) for size in constant(tape, layer, wanted, "size").reshape(-1)]
    if all(size == 1 for size in outputs):
        return tape.op("GlobalAveragePool", [data])
    shape = (tape.shape_of(data) or ())[2:]
    even = len(shape) == len(outputs) and all(
        isinstance(size, int) and size % out == 0 for size, out in zip(shape, outputs, strict=True)
    )
    prove(even, f"{layer} has windows of different sizes")
    steps = [int(size) // out for size, out in zip(shape, outputs, strict=True)]  # type: ignore[arg-type]
    return tape.op("AveragePool", [data], {"kernel_shape": steps, "strides": steps})


_form = partial(LayerForm, types=FLOATS)

WINDOWS: Final = (
    _form(layer="Convolution", versions=opsets(1), write=_convolution),
    _form(layer="GroupConvolution", versions=opsets(1), write=_group_convolution),
    _form(layer="ConvolutionBackpropData", versions=opsets(1), write=_transposed),
    _form(layer="GroupConvolutionBackpropData", versions=opsets(1), write=_group_transposed),
    _form(layer="MaxPool", versions=opsets(1, 8, 14), write=_max_pool),
    _form(layer="AvgPool", versions=opsets(1, 14, 16), write=_average_pool),
    _form(layer="AdaptiveAvgPool", versions=opsets(8), write=_adaptive_average),
)
