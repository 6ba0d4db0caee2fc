"""Layers that slide a window over the data: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    FLOATS,
    INT32,
    Values,
    axes_of,
    rank_of,
    require,
)
from splitops.spec.sizes.dims import Dim


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
        strides = layer.read_integers("strides")
        ones, zeros = [1] * len(strides), [0] * len(strides)
        known = ("explicit", "notset", "valid", "same_upper", "same_lower")
        auto_pad = layer.read_enum("auto_pad", known, "explicit")
        begins, ends = layer.read_integers("pads_begin", zeros), layer.read_integers("pads_end", zeros)
        if auto_pad not in ("explicit", "notset"):
            begins, ends = zeros, zeros  # the text ignores them, whatever the file declares
        require(min((*begins, *ends), default=0) >= 0, f"{layer} has a negative padding")
        return cls(strides, layer.read_integers("dilations", ones), begins, ends, auto_pad)

    @property
    def is_same(self) -> bool:
        """Whether the padding depends on the size of the data."""
        return self.auto_pad.startswith("same")

    def padded(self, kernel: Sequence[int], sizes: Sequence[Dim | None]) -> _Window:
        """Return a window whose padding is set, where it depends on sizes that are known.

        Runtimes take no dilations beside a padding that they are to find themselves.
        """
        known = [size for size in sizes if isinstance(size, int)]
        if not self.is_same or len(known) < len(sizes):
            return self
        rows = zip(known, kernel, self.strides, self.dilations, strict=True)
        totals = [_total_padding(*row) for row in rows]
        halves = [total // 2 for total in totals]
        rest = [total - half for total, half in zip(totals, halves, strict=True)]
        begins, ends = (halves, rest) if self.auto_pad == "same_upper" else (rest, halves)
        return replace(self, begins=begins, ends=ends, auto_pad="explicit")

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a node for it."""
        found: dict[str, Any] = {"strides": self.strides}
        if any(step != 1 for step in self.dilations):
            found["dilations"] = self.dilations
        if self.is_same:
            found["auto_pad"] = self.auto_pad.upper()
        elif any(self.begins) or any(self.ends):
            found["pads"] = [*self.begins, *self.ends]
        return found


def _total_padding(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Return how much padding gives a window for every so many elements, the last few included."""
    last = -(size // -stride) * stride - stride
    return max(0, last + (kernel - 1) * dilation + 1 - size)


def _sizes(builder: LayerOpBuilder, value: ir.Value, axes: int, *, first: int = 2) -> list[Dim | None]:
    """Return the sizes of the spatial axes."""
    shape = builder.shape_of(value)
    return [None] * axes if shape is None else list(shape[first:])


# Convolutions


def _convolution(
    builder: LayerOpBuilder,
    layer: Layer,
    sources: Sequence[ir.Value],
    *,
    operator: str = "Conv",
    first: int = 2,
) -> ir.Value:
    """Write a convolution; the spatial axes of its filters begin at 2, or at 3 behind one of groups."""
    data, filters = sources[:2]
    read = _moved if operator == "Conv" else _transposed_attributes
    attributes = read(builder, layer, sources, first=first)
    if first == 3:
        groups, *shape = _grouped(builder, layer, filters)
        filters = _reshaped(builder, filters, [groups * shape[0], *shape[1:]])
        attributes["group"] = groups
    return builder.op(operator, [data, filters], attributes)


def _moved(
    builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value], *, first: int
) -> dict[str, Any]:
    window = _Window.of(layer)
    kernel = [size for size in _sizes(builder, sources[1], 0, first=first) if isinstance(size, int)]
    axes = len(window.strides)
    window = window.padded(kernel, _sizes(builder, sources[0], axes)) if len(kernel) == axes else window
    return window.attributes()


def _transposed_attributes(
    builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value], *, first: int
) -> dict[str, Any]:
    window = _Window.of(layer)
    added = layer.read_integers("output_padding", [0] * len(window.strides))
    if len(sources) > 2:
        window, added = _of_a_shape(builder, layer, sources, window, added, first)
    require(
        not window.is_same, f"{layer} has auto_pad = {window.auto_pad!r}, which ONNX reads in another way"
    )
    return window.attributes() | ({"output_padding": added} if any(added) else {})


def _of_a_shape(
    builder: LayerOpBuilder,
    layer: Layer,
    sources: Sequence[ir.Value],
    window: _Window,
    added: list[int],
    first: int,
) -> tuple[_Window, list[int]]:
    """Return the padding that gives a declared shape: ONNX shares it out in another way, so it is in numbers.

    Of an odd one, OpenVINO's plugin puts the larger half first for same_upper, unlike in a convolution.
    """
    wanted = axes_of(builder, layer, sources[2], "output shape")
    axes = len(window.strides)
    sizes, kernel = _sizes(builder, sources[0], axes), _sizes(builder, sources[1], axes, first=first)
    begins, ends, more = list(window.begins), list(window.ends), list(added)
    for axis, (size, width, goal) in enumerate(zip(sizes, kernel, wanted, strict=True)):
        known = isinstance(size, int) and isinstance(width, int)
        require(known, f"the size of axis {axis + 2} of {layer} is not known, and its output declares one")
        assert isinstance(size, int)
        assert isinstance(width, int)
        whole = window.strides[axis] * (size - 1) + (width - 1) * window.dilations[axis] + 1 + added[axis]
        if window.is_same:
            total = max(0, whole - goal)
            half = total // 2
            begins[axis] = total - half if window.auto_pad == "same_upper" else half
            ends[axis] = total - begins[axis]
        missing = goal - (whole - begins[axis] - ends[axis])
        require(
            missing >= 0, f"{layer} leaves out the last {-missing} of axis {axis + 2}, which ONNX does not"
        )
        more[axis] += missing
    return replace(window, begins=begins, ends=ends, auto_pad="explicit"), more


def _grouped(builder: LayerOpBuilder, layer: Layer, filters: ir.Value) -> list[int]:
    """Return the shape of filters [groups, ...]."""
    shape = builder.shape_of(filters) or ()
    sizes = [size for size in shape if isinstance(size, int)]
    require(len(sizes) == len(shape) >= 4, f"the shape of the filters of {layer} is not known")
    return sizes


def _reshaped(builder: LayerOpBuilder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return a value in another shape, a constant one as a constant: runtimes prepare constant weights."""
    array = builder.stored(value)
    if array is None:
        return builder.op("Reshape", [value, builder.integers(shape)])
    return builder.initializer(array.reshape(shape), value)


# Pools


def _max_pool(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> Values:
    attributes = _pool(builder, layer, sources[0]).attributes
    if len(layer.outputs) < 2 or not builder.has_consumers(1):
        return [builder.op("MaxPool", sources, attributes), None][: len(layer.outputs)]
    rank = rank_of(builder, layer, sources[0])
    (axis,) = layer.read_integers("axis", [0])
    # ONNX counts positions through the whole tensor.
    require(axis in (0, -rank), f"{layer} counts positions from axis {axis}, ONNX from the first one")
    data, positions = builder.multi("MaxPool", sources, attributes, outputs=2)
    wide = layer.read_text("index_element_type", "i64") == "i64"
    return [data, positions if wide else builder.cast(positions, INT32)]


def _average_pool(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    pool = _pool(builder, layer, sources[0])
    counts = not layer.read_boolean("exclude-pad") and pool.pads
    # How many numbers a window counts that ends behind the padding, the texts do not say.
    require(not (counts and pool.rounds_up), f"{layer} counts padding and rounds up")
    return builder.op("AveragePool", sources, pool.attributes | ({"count_include_pad": 1} if counts else {}))


@dataclass(frozen=True, slots=True)
class _Pool:
    """The attributes of a pool."""

    attributes: dict[str, Any]
    pads: bool
    rounds_up: bool
    """Whether its size may be one that only rounding up gives."""


def _pool(builder: LayerOpBuilder, layer: Layer, data: ir.Value) -> _Pool:
    """Return the attributes of a pool, without rounding where sizes are known.

    PyTorch (``ceil_torch``) and runtimes of ONNX drop a last window that begins in the padding, OpenVINO's
    ``ceil`` keeps it, ONNX's own inference counts it. With as much padding as the windows take, all agree.
    """
    kernel = layer.read_integers("kernel")
    rounding = layer.read_enum("rounding_type", ("floor", "ceil", "ceil_torch"), "floor")
    sizes = _sizes(builder, data, len(kernel))
    window = _Window.of(layer).padded(kernel, sizes)
    pads = window.is_same or any(window.begins) or any(window.ends)
    stated = window.attributes() | {"kernel_shape": kernel}
    rows = zip(sizes, kernel, window.strides, window.dilations, window.begins, window.ends, strict=True)
    axes = [_Axis(*row) for row in rows]
    inside = all(max(axis.begin, axis.end) < axis.span for axis in axes)
    require(inside, f"{layer} has windows of nothing but padding")
    if rounding == "floor" or window.is_same or all(axis.divides for axis in axes):
        return _Pool(stated, pads, rounds_up=False)
    if not all(isinstance(axis.size, int) for axis in axes):
        require(all(axis.stays_inside for axis in axes), f"{layer} has windows that may begin in the padding")
        return _Pool(stated | {"ceil_mode": 1}, pads, rounds_up=True)
    ends = []
    for axis in axes:
        begins = axis.last_begin(drops=rounding == "ceil_torch")
        require(axis.is_inside(begins), f"{layer} has windows that begin in the padding")
        ends.append(max(axis.end, axis.end_of(begins)))
    if ends == window.ends:
        return _Pool(stated, pads, rounds_up=False)
    wider = replace(window, ends=ends).attributes() | {"kernel_shape": kernel}
    return _Pool(wider, pads, rounds_up=True)


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a pool; a size that is not an integer is not known."""

    size: Dim | None
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int

    @property
    def span(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def divides(self) -> bool:
        """Whether rounding up and down are the same."""
        if self.stride == 1:
            return True
        return (
            isinstance(self.size, int) and (self.size + self.begin + self.end - self.span) % self.stride == 0
        )

    @property
    def stays_inside(self) -> bool:
        """Whether no window begins in the padding, whatever the size."""
        return self.end + self.stride <= self.span

    def last_begin(self, *, drops: bool) -> int:
        """Return where the last window begins, the padding counted, if the size is rounded up."""
        assert isinstance(self.size, int)
        last = -((self.size + self.begin + self.end - self.span) // -self.stride) * self.stride
        return last - self.stride if drops and not self.is_inside(last) else last

    def is_inside(self, begins: int) -> bool:
        """Return whether a window begins before the padding behind the data."""
        assert isinstance(self.size, int)
        return begins < self.size + self.begin

    def end_of(self, begins: int) -> int:
        """Return the padding behind the data that a window takes which begins here."""
        assert isinstance(self.size, int)
        return begins + self.span - self.size - self.begin


def _adaptive_average(builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> ir.Value:
    data, wanted = sources
    outputs = axes_of(builder, layer, wanted, "size")
    if all(size == 1 for size in outputs):
        return builder.op("GlobalAveragePool", [data])
    shape = (builder.shape_of(data) or ())[2:]
    even = len(shape) == len(outputs) and all(
        isinstance(size, int) and size % out == 0 for size, out in zip(shape, outputs, strict=True)
    )
    require(even, f"{layer} has windows of different sizes")
    steps = [int(size) // out for size, out in zip(shape, outputs, strict=True)]  # type: ignore[arg-type]
    return builder.op("AveragePool", [data], {"kernel_shape": steps, "strides": steps})


_form = partial(LayerForm, types=FLOATS)
_transposed = partial(_convolution, operator="ConvTranspose")

WINDOWS: Final = (
    _form(layer="Convolution", versions=opsets(1), write=_convolution),
    _form(layer="GroupConvolution", versions=opsets(1), write=partial(_convolution, first=3)),
    _form(layer="ConvolutionBackpropData", versions=opsets(1), write=_transposed),
    _form(layer="GroupConvolutionBackpropData", versions=opsets(1), write=partial(_transposed, first=3)),
    _form(layer="MaxPool", versions=opsets(1, 8, 14), write=_max_pool),
    _form(layer="AvgPool", versions=opsets(1, 14, 16), write=_average_pool),
    _form(layer="AdaptiveAvgPool", versions=opsets(8), write=_adaptive_average),
)
