"""Converters of convolutions and pools, which slide a window over the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.ops.writing import FLOATS, INT32, Values, get_rank, read_integers, require
from splitops.spec.sizes.dims import Dim, to_exact


@dataclass(frozen=True, slots=True)
class _Window:
    """The strides, dilations and padding of a layer: one number for each spatial axis."""

    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]
    auto_pad: str

    @classmethod
    def read(cls, builder: LayerOpBuilder) -> _Window:
        layer = builder.layer
        strides = layer.read_integers("strides")
        ones, zeros = [1] * len(strides), [0] * len(strides)
        known = ("explicit", "notset", "valid", "same_upper", "same_lower")
        auto_pad = layer.read_enum("auto_pad", known, "explicit")
        begins, ends = layer.read_integers("pads_begin", zeros), layer.read_integers("pads_end", zeros)
        if auto_pad not in ("explicit", "notset"):
            begins, ends = zeros, zeros  # the specification then ignores the pads in the file
        require(builder, min((*begins, *ends), default=0) >= 0, "has negative padding")
        return cls(strides, layer.read_integers("dilations", ones), begins, ends, auto_pad)

    @property
    def is_same(self) -> bool:
        """Whether the padding depends on the size of the data."""
        return self.auto_pad.startswith("same")

    def resolve(self, kernel: Sequence[int], sizes: Sequence[Dim | None]) -> _Window:
        """Return the window with automatic padding made explicit, if all spatial ``sizes`` are known.

        Runtimes reject dilations together with automatic padding.
        """
        exact = to_exact(sizes)
        if not self.is_same or exact is None:
            return self
        rows = zip(exact, kernel, self.strides, self.dilations, strict=True)
        totals = [_compute_padding(*row) for row in rows]
        halves = [total // 2 for total in totals]
        rest = [total - half for total, half in zip(totals, halves, strict=True)]
        begins, ends = (halves, rest) if self.auto_pad == "same_upper" else (rest, halves)
        return replace(self, begins=begins, ends=ends, auto_pad="explicit")

    def make_attributes(self) -> dict[str, Any]:
        """Return the attributes of an ONNX node with this window."""
        attributes: dict[str, Any] = {"strides": self.strides}
        if any(step != 1 for step in self.dilations):
            attributes["dilations"] = self.dilations
        if self.is_same:
            attributes["auto_pad"] = self.auto_pad.upper()
        elif any(self.begins) or any(self.ends):
            attributes["pads"] = [*self.begins, *self.ends]
        return attributes


def _compute_padding(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Return the total padding that an axis needs for ``ceil(size / stride)`` windows."""
    last = -(size // -stride) * stride - stride
    return max(0, last + (kernel - 1) * dilation + 1 - size)


def _get_sizes(builder: LayerOpBuilder, value: ir.Value, axes: int, *, first: int = 2) -> list[Dim | None]:
    """Return the sizes of the axes from index ``first``, or ``axes`` times None if the rank is unknown."""
    shape = builder.find_shape(value)
    return [None] * axes if shape is None else list(shape[first:])


# Convolutions


def _write_convolution(
    builder: LayerOpBuilder, *sources: ir.Value, operator: str = "Conv", first: int = 2
) -> ir.Value:
    """Write a convolution. ``first`` is the first spatial axis of the filters: 2, or 3 with groups."""
    data, filters = sources[:2]
    read = _read_window_attributes if operator == "Conv" else _read_transposed_attributes
    attributes = read(builder, sources, first=first)
    if first == 3:
        exact = to_exact(builder.find_shape(filters))
        if exact is None or len(exact) < 4:
            raise ModelError(f"the shape of the filters of {builder.layer} is unknown")
        groups, *shape = exact
        filters = _reshape(builder, filters, [groups * shape[0], *shape[1:]])
        attributes["group"] = groups
    return builder.add(operator, [data, filters], attributes)


def _read_window_attributes(
    builder: LayerOpBuilder, sources: Sequence[ir.Value], *, first: int
) -> dict[str, Any]:
    window = _Window.read(builder)
    kernel = [size for size in _get_sizes(builder, sources[1], 0, first=first) if isinstance(size, int)]
    axes = len(window.strides)
    window = window.resolve(kernel, _get_sizes(builder, sources[0], axes)) if len(kernel) == axes else window
    return window.make_attributes()


def _read_transposed_attributes(
    builder: LayerOpBuilder, sources: Sequence[ir.Value], *, first: int
) -> dict[str, Any]:
    window = _Window.read(builder)
    added = builder.layer.read_integers("output_padding", [0] * len(window.strides))
    if len(sources) > 2:
        window, added = _pad_to_shape(builder, sources, window, added, first)
    require(builder, not window.is_same, f"has auto_pad = {window.auto_pad!r}, which differs in ONNX")
    return window.make_attributes() | ({"output_padding": added} if any(added) else {})


def _pad_to_shape(
    builder: LayerOpBuilder, sources: Sequence[ir.Value], window: _Window, added: list[int], first: int
) -> tuple[_Window, list[int]]:
    """Return the window with explicit padding, and the output padding, for a given output shape.

    ONNX would distribute automatic padding differently. If the total is odd, OpenVINO's plugin puts the
    larger half first for same_upper, unlike in a convolution.
    """
    wanted = read_integers(builder, sources[2], "output shape")
    axes = len(window.strides)
    sizes, kernel = _get_sizes(builder, sources[0], axes), _get_sizes(builder, sources[1], axes, first=first)
    begins, ends, more = list(window.begins), list(window.ends), list(added)
    for axis, (size, width, goal) in enumerate(zip(sizes, kernel, wanted, strict=True)):
        if not isinstance(size, int) or not isinstance(width, int):
            where = f"axis {axis + 2} of {builder.layer}"
            raise ModelError(f"the size of {where} must be known, as its output shape is set")
        full = window.strides[axis] * (size - 1) + (width - 1) * window.dilations[axis] + 1 + added[axis]
        if window.is_same:
            total = max(0, full - goal)
            half = total // 2
            begins[axis] = total - half if window.auto_pad == "same_upper" else half
            ends[axis] = total - begins[axis]
        missing = goal - (full - begins[axis] - ends[axis])
        require(builder, missing >= 0, f"omits the last {-missing} of axis {axis + 2}, which ONNX does not")
        more[axis] += missing
    return replace(window, begins=begins, ends=ends, auto_pad="explicit"), more


def _reshape(builder: LayerOpBuilder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Reshape a value. A constant stays constant, because runtimes pre-pack only constant weights."""
    array = builder.read_weights(value)
    if array is None:
        return builder.add("Reshape", [value, builder.add_ints(shape)])
    return builder.add_weights(array.reshape(shape), value)


# Pools


def _write_max_pool(builder: LayerOpBuilder, data: ir.Value) -> Values:
    attributes = _read_pool(builder, data).attributes
    if len(builder.layer.outputs) < 2 or not builder.has_consumers(1):
        return [builder.add("MaxPool", [data], attributes), None][: len(builder.layer.outputs)]
    rank = get_rank(builder, data)
    (axis,) = builder.layer.read_integers("axis", [0])
    # ONNX returns positions in the whole tensor.
    require(builder, axis in (0, -rank), f"counts positions from axis {axis}, but ONNX from the first one")
    result, positions = builder.add_node("MaxPool", [data], attributes, outputs=2)
    wide = builder.layer.read_string("index_element_type", "i64") == "i64"
    return [result, positions if wide else builder.cast(positions, INT32)]


def _write_average_pool(builder: LayerOpBuilder, data: ir.Value) -> ir.Value:
    pool = _read_pool(builder, data)
    counts = not builder.layer.read_boolean("exclude-pad") and pool.pads
    # The specifications do not define the count of elements of a window that ends after the padding.
    defined = not (counts and pool.rounds_up)
    require(builder, defined, "counts padding and rounds up, which the specifications leave undefined")
    return builder.add("AveragePool", [data], pool.attributes | ({"count_include_pad": 1} if counts else {}))


@dataclass(frozen=True, slots=True)
class _Pool:
    """Attributes of the ONNX node of a pool, and whether it pads its data."""

    attributes: dict[str, Any]
    pads: bool
    rounds_up: bool
    """Whether the output size may be rounded up."""


def _read_pool(builder: LayerOpBuilder, data: ir.Value) -> _Pool:
    """Return the attributes of a pool, without ``ceil_mode`` if the sizes are known.

    If the last window begins in the padding, PyTorch (``ceil_torch``) and ONNX runtimes drop it, OpenVINO's
    ``ceil`` keeps it, and ONNX's inference counts it. All agree if the padding ends where this window ends.
    """
    kernel = builder.layer.read_integers("kernel")
    rounding = builder.layer.read_enum("rounding_type", ("floor", "ceil", "ceil_torch"), "floor")
    sizes = _get_sizes(builder, data, len(kernel))
    window = _Window.read(builder).resolve(kernel, sizes)
    pads = window.is_same or any(window.begins) or any(window.ends)
    attributes = window.make_attributes() | {"kernel_shape": kernel}
    rows = zip(sizes, kernel, window.strides, window.dilations, window.begins, window.ends, strict=True)
    axes = [_Axis(*row) for row in rows]
    inside = all(max(axis.begin, axis.end) < axis.span for axis in axes)
    require(builder, inside, "has windows that contain only padding")
    if rounding == "floor" or window.is_same or all(axis.is_even for axis in axes):
        return _Pool(attributes, pads, rounds_up=False)
    if not all(isinstance(axis.size, int) for axis in axes):
        always = all(axis.end + axis.stride <= axis.span for axis in axes)
        require(builder, always, "has windows that may begin in the padding, for which runtimes differ")
        return _Pool(attributes | {"ceil_mode": 1}, pads, rounds_up=True)
    ends = []
    for axis in axes:
        begins = axis.compute_last_begin(drops=rounding == "ceil_torch")
        inside = axis.is_inside(begins)
        require(builder, inside, "has windows that begin in the padding, for which runtimes differ")
        ends.append(max(axis.end, axis.compute_end(begins)))
    if ends == window.ends:
        return _Pool(attributes, pads, rounds_up=False)
    wider = replace(window, ends=ends).make_attributes() | {"kernel_shape": kernel}
    return _Pool(wider, pads, rounds_up=True)


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a pool. A size that is not an integer is unknown."""

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
    def is_even(self) -> bool:
        """Whether the output size is the same if it is rounded up or down."""
        if self.stride == 1:
            return True
        return (
            isinstance(self.size, int) and (self.size + self.begin + self.end - self.span) % self.stride == 0
        )

    def compute_last_begin(self, *, drops: bool) -> int:
        """Return the position of the last window if the size is rounded up. 0 is the start of the padding.

        With ``drops``, windows that begin in the padding at the end do not count.
        """
        assert isinstance(self.size, int)
        last = -((self.size + self.begin + self.end - self.span) // -self.stride) * self.stride
        return last - self.stride if drops and not self.is_inside(last) else last

    def is_inside(self, begins: int) -> bool:
        """Return whether a window at the position ``begins`` starts before the padding at the end."""
        assert isinstance(self.size, int)
        return begins < self.size + self.begin

    def compute_end(self, begins: int) -> int:
        """Return the padding at the end that a window at the position ``begins`` needs."""
        assert isinstance(self.size, int)
        return begins + self.span - self.size - self.begin


def _write_adaptive_average(builder: LayerOpBuilder, data: ir.Value, wanted: ir.Value) -> ir.Value:
    outputs = read_integers(builder, wanted, "size")
    if all(size == 1 for size in outputs):
        return builder.add("GlobalAveragePool", [data])
    shape = (builder.find_shape(data) or ())[2:]
    even = len(shape) == len(outputs) and all(
        isinstance(size, int) and size % out == 0 for size, out in zip(shape, outputs, strict=True)
    )
    require(builder, even, "has windows of different sizes, which ONNX does not have")
    steps = [int(size) // out for size, out in zip(shape, outputs, strict=True)]  # type: ignore[arg-type]
    return builder.add("AveragePool", [data], {"kernel_shape": steps, "strides": steps})


_entry = partial(LayerConverter, types=FLOATS)
_transposed = partial(_write_convolution, operator="ConvTranspose")

WINDOWS: Final = (
    _entry(layer="Convolution", write=_write_convolution),
    _entry(layer="GroupConvolution", write=partial(_write_convolution, first=3)),
    _entry(layer="ConvolutionBackpropData", write=_transposed),
    _entry(layer="GroupConvolutionBackpropData", write=partial(_transposed, first=3)),
    _entry(layer="MaxPool", versions=(1, 8, 14), write=_write_max_pool),
    _entry(layer="AvgPool", versions=(1, 14, 16), write=_write_average_pool),
    _entry(layer="AdaptiveAvgPool", versions=(8,), write=_write_adaptive_average),
)
