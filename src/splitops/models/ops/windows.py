"""Operators that slide a window over the data: convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from splitops.models.abstract_values import AbstractTensor
from splitops.models.ops.copying import read_pads
from splitops.models.ops.integer_math import add, divide, multiply
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    as_integers,
    as_name,
    as_type,
)
from splitops.models.ops.shapes import clamp_negative, divide_up, to_size
from splitops.models.ops.writing import INT64
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape

_EXPLICIT: Final = frozenset({"explicit", "notset"})


@dataclass(frozen=True, slots=True)
class _Window:
    """The strides, dilations and total padding of a window on each spatial axis, and its padding mode."""

    strides: Sequence[int]
    dilations: Sequence[int]
    padding: Sequence[int]
    auto_pad: str

    @classmethod
    def read(cls, operands: Operands, axes: int) -> _Window:
        strides, dilations = operands["strides"] or [1] * axes, operands["dilations"] or [1] * axes
        begins, ends = read_pads(operands)
        auto_pad = operands["auto_pad"]
        if auto_pad not in _EXPLICIT:  # the specifications then ignore the pads in the file
            begins, ends = [], []
        begins, ends = begins or [0] * axes, ends or [0] * axes
        settings = (strides, dilations, begins, ends)
        if any(len(numbers) != axes for numbers in settings) or min(*strides, *dilations, 1) < 1:
            raise Unknown("the window does not fit the data")
        return cls(strides, dilations, [sum(pair) for pair in zip(begins, ends, strict=True)], auto_pad)

    def count(self, shape: Shape, kernel: Sequence[Dim], *, fits: bool, rounds_up: bool = False) -> list[Dim]:
        """Return the number of window positions on each axis.

        With ``fits``, it is unknown if the window does not fit into the padded data. Otherwise, it may be 0.
        """
        rows = zip(shape, kernel, self.strides, self.dilations, self.padding, strict=True)
        return [self._count_axis(*row, min_count=int(fits), rounds_up=rounds_up) for row in rows]

    def _count_axis(
        self,
        size: Dim,
        kernel: Dim,
        stride: int,
        dilation: int,
        padding: int,
        *,
        min_count: int,
        rounds_up: bool,
    ) -> Dim:
        if self.auto_pad.startswith("same"):
            return divide_up(size, stride)
        if not isinstance(kernel, int) or kernel < 1 or (rounds_up and stride > 1):
            return UNKNOWN  # if the size is rounded up, the dialects differ in the last window
        room = add(size, padding - (kernel - 1) * dilation - 1 + stride * (1 - min_count))
        return to_size(add(divide(clamp_negative(room), stride), min_count))


def _infer_convolution(operands: Operands) -> AbstractTensor:
    shape, filters = operands.get_shape(), operands.get_shape("filters")
    first = operands["first_spatial"]
    kernel = filters[first:]
    if len(shape) != len(kernel) + 2:
        raise Unknown("the filters do not fit the data")
    channels = filters[0] if first == 2 else to_size(multiply(filters[0], filters[1]))
    sizes = _Window.read(operands, len(kernel)).count(shape[2:], kernel, fits=operands.of_layer)
    return AbstractTensor(operands.get_type(), (shape[0], channels, *sizes))


def _infer_transposed(operands: Operands) -> AbstractTensor:
    shape, filters = operands.get_shape(), operands.get_shape("filters")
    first = operands["first_spatial"]
    kernel = filters[first:]
    axes = len(kernel)
    if len(shape) != axes + 2:
        raise Unknown("the filters do not fit the data")
    groups = operands["groups"] if first == 2 else filters[0]
    channels = to_size(multiply(filters[first - 1], groups))
    window = _Window.read(operands, axes)
    if "output_shape" in operands:
        sizes = [to_size(entry) for entry in operands.get_entries("output_shape")][-axes:]
    elif window.auto_pad not in (*_EXPLICIT, "valid"):
        sizes = [UNKNOWN] * axes
    else:
        added = operands["output_padding"] or [0] * axes
        rows = zip(shape[2:], kernel, window.strides, window.dilations, window.padding, added, strict=True)
        sizes = [_infer_output_size(*row) for row in rows] if len(added) == axes else [UNKNOWN] * axes
    return AbstractTensor(operands.get_type(), (shape[0], channels, *sizes))


def _infer_output_size(size: Dim, kernel: Dim, stride: int, dilation: int, padding: int, added: int) -> Dim:
    extent = add(multiply(size, stride), multiply(kernel, dilation))
    whole = add(extent, added - stride - dilation + 1 - padding)
    return to_size(clamp_negative(whole))


def _infer_pool(operands: Operands, *, outputs: int) -> list[AbstractTensor]:
    shape, kernel = operands.get_shape(), operands["kernel"]
    if len(shape) != len(kernel) + 2:
        raise Unknown("the kernel does not fit the data")
    window, rounds_up = _Window.read(operands, len(kernel)), operands["rounds_up"]
    sizes = window.count(shape[2:], kernel, fits=operands.of_layer, rounds_up=rounds_up)
    result = (*shape[:2], *sizes)
    types = (operands.get_type(), operands.get("type", INT64))
    return [AbstractTensor(kind, result) for kind in types[:outputs]]


def _infer_adaptive(operands: Operands) -> list[AbstractTensor]:
    shape, sizes = operands.get_shape(), operands.get_entries("sizes")
    result = (*shape[:2], *map(to_size, sizes))
    if len(result) != len(shape):
        raise Unknown("the sizes do not fit the data")
    return [AbstractTensor(operands.get_type(), result), AbstractTensor(operands.get("type", INT64), result)]


_INDEX_TYPE: Final = {"type": Attribute(as_type, INT64, "index_element_type")}
_LISTS: Final = {name: Attribute(as_integers, ()) for name in ("strides", "dilations")}
_NODE: Final = {**_LISTS, "pads": Attribute(as_integers, ()), "auto_pad": Attribute(as_name, "notset")}
_LAYER: Final = {
    **_LISTS,
    "begins": Attribute(as_integers, (), "pads_begin"),
    "ends": Attribute(as_integers, (), "pads_end"),
    "auto_pad": Attribute(as_name, "explicit"),
}
_SHAPED: Final = {
    "groups": Attribute(as_integer, 1, "group"),
    "output_padding": Attribute(as_integers, ()),
    "output_shape": Attribute(as_integers, None),
}
_NODE_POOL: Final = {
    **_NODE,
    "kernel": Attribute(as_integers, name="kernel_shape"),
    "rounds_up": Attribute(as_flag, default=False, name="ceil_mode"),
}
_LAYER_POOL: Final = {
    **_LAYER,
    "kernel": Attribute(as_integers),
    "rounds_up": Attribute(
        {"floor": False, "ceil": True, "ceil_torch": True}, default=False, name="rounding_type"
    ),
    **_INDEX_TYPE,
}


def _make_convolution(
    infer: Callable[[Operands], AbstractTensor], onnx: str, openvino: tuple[str, str], shaped: str, more: Any
) -> Operator:
    layer, grouped = openvino
    added = {"output_padding": Attribute(as_integers, ())} if shaped else {}
    fixed = {"first_spatial": 2, **({"groups": 1} if shaped else {})}
    return Operator(
        onnx=(Spelling(onnx, "data filters bias?", {**_NODE, **more}, fixed={"first_spatial": 2}),),
        openvino=(
            Spelling(layer, f"data filters{shaped}", {**_LAYER, **added}, fixed=fixed),
            Spelling(grouped, f"data filters{shaped}", {**_LAYER, **added}, fixed={"first_spatial": 3}),
        ),
        infer=infer,
    )


WINDOWS: Final = (
    _make_convolution(_infer_convolution, "Conv", ("Convolution", "GroupConvolution"), "", {}),
    _make_convolution(
        _infer_transposed,
        "ConvTranspose",
        ("ConvolutionBackpropData", "GroupConvolutionBackpropData"),
        " output_shape?",
        _SHAPED,
    ),
    Operator(
        onnx=(Spelling("MaxPool", "data", _NODE_POOL),),
        openvino=(Spelling("MaxPool", "data", _LAYER_POOL),),
        infer=partial(_infer_pool, outputs=2),
    ),
    Operator(
        onnx=(Spelling("AveragePool", "data", _NODE_POOL), Spelling("LpPool", "data", _NODE_POOL)),
        openvino=(Spelling("AvgPool", "data", _LAYER_POOL),),
        infer=partial(_infer_pool, outputs=1),
    ),
    Operator(
        openvino=(
            Spelling("AdaptiveAvgPool", "data sizes"),
            Spelling("AdaptiveMaxPool", "data sizes", _INDEX_TYPE),
        ),
        infer=_infer_adaptive,
    ),
)
