"""Operators that copy or create elements: Expand, Broadcast, ConstantOfShape, Tile, Pad, Range and Resize."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, Entry
from splitops.models.ops.integer_math import add, divide, multiply
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_integers,
    as_name,
    as_type,
)
from splitops.models.ops.shapes import broadcast, count_range, read_axes, to_size
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape, to_exact

# Expand, Broadcast and ConstantOfShape


def _infer_expand(operands: Operands) -> AbstractTensor:
    mode, target = operands.get("mode", "bidirectional"), tuple(map(to_size, operands.get_entries("shape")))
    if mode == "bidirectional":
        target = broadcast(operands.get_shape(), target)
    elif mode not in ("numpy", "explicit", "none"):
        raise Unknown(f"mode = {mode}")
    elements = operands.get_tensor().elements
    if elements is not None and elements.size == 1:
        return _fill(operands.get_type(), target, elements.reshape(()).item())
    return AbstractTensor(operands.get_type(), target)


def _fill(kind: ElementType | None, shape: Shape, element: Entry) -> AbstractTensor:
    """Return a tensor of equal elements, which are tracked if the shape is known and small."""
    exact = to_exact(shape)
    if exact is None or math.prod(exact) > MAX_ELEMENTS:
        return AbstractTensor(kind, shape)
    elements = np.empty(exact, object)
    elements.fill(element)
    return AbstractTensor(kind, shape, elements)


def _fold_expand(operands: Operands, data: Any, target: Any, *mapping: Any) -> Any:
    shape, mode = [int(size) for size in target.reshape(-1)], operands.get("mode", "bidirectional")
    if mode == "bidirectional":
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))
    if mapping:
        axes = [int(axis) for axis in mapping[0]]
        sizes = [data.shape[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape))]
        data = data.reshape(sizes)
    return np.broadcast_to(data, shape)


EXPAND: Final = Operator(
    onnx=(Spelling("Expand", "data shape", since=8),),
    openvino=(Spelling("Broadcast", "data shape axes_mapping?", {"mode": Attribute(as_name, "numpy")}),),
    infer=_infer_expand,
    fold=_fold_expand,
)


def _infer_constant(operands: Operands) -> AbstractTensor:
    return _fill(None, tuple(map(to_size, operands.get_entries("shape"))), operands["value"])


def _read_single_element(value: Any) -> Any:
    array = value.numpy()
    if array.size != 1 or array.dtype.kind not in "iufb":
        raise ValueError("not one number")
    return array.reshape(()).item()


CONSTANT_OF_SHAPE: Final = Operator(
    onnx=(Spelling("ConstantOfShape", "shape", {"value": Attribute(_read_single_element, 0)}, since=9),),
    infer=_infer_constant,
)

# Tile


def _infer_tile(operands: Operands) -> AbstractTensor:
    shape, repeats = operands.get_shape(), operands.get_entries("repeats")
    rank = max(len(shape), len(repeats))
    padded = (1,) * (rank - len(shape)) + shape
    counts: list[Entry] = [1] * (rank - len(repeats)) + repeats
    sizes = [to_size(multiply(*pair)) for pair in zip(padded, counts, strict=True)]
    return AbstractTensor(operands.get_type(), tuple(sizes))


TILE: Final = Operator(
    onnx=(Spelling("Tile", "data repeats", since=6),),
    openvino=(Spelling("Tile", "data repeats"),),
    infer=_infer_tile,
    fold=lambda _, data, repeats: np.tile(data, repeats),
)

# Pad


def read_pads(operands: Operands) -> tuple[list[Any], list[Any]]:
    """Return the padding before and after each axis. Unknown entries are None."""
    if "pads" not in operands:
        return operands.get_entries("begins"), operands.get_entries("ends")
    pads = operands.get_entries("pads")
    return pads[: len(pads) // 2], pads[len(pads) // 2 :]


def _infer_pad(operands: Operands) -> AbstractTensor:
    sizes: list[Dim] = list(operands.get_shape())
    (before, after), axes = read_pads(operands), read_axes(operands, len(sizes))
    if not len(before) == len(after) == len(axes):
        raise Unknown(f"{len(before)} pads before and {len(after)} after {len(axes)} axes")
    for axis, first, last in zip(axes, before, after, strict=True):
        sizes[axis] = to_size(add(sizes[axis], add(first, last)))
    return AbstractTensor(operands.get_type(), tuple(sizes))


def _fold_pad(operands: Operands, data: Any, *_: Any) -> Any:
    if "axes" in operands:
        raise Unknown("some axes")
    begins, ends = read_pads(operands)
    if min(*begins, *ends, 0) < 0:
        raise ValueError("crops")
    widths = list(zip(begins, ends, strict=True))
    mode = operands["mode"]
    if mode == "constant":
        return np.pad(data, widths, constant_values=operands.get_array("value", 0).reshape(()))
    if mode == "edge":
        return np.pad(data, widths, "edge")
    raise Unknown("another mode")


_MODE: Final = {"mode": Attribute(as_name, "constant")}
PAD: Final = Operator(
    onnx=(
        Spelling("Pad", "data pads value? axes?", _MODE, since=18),
        Spelling("Pad", "data pads value?", _MODE, since=11),
        Spelling("Pad", "data", {"pads": Attribute(as_integers), **_MODE}, since=2),
        Spelling("Pad", "data", {"pads": Attribute(as_integers, name="paddings"), **_MODE}),
    ),
    openvino=(Spelling("Pad", "data begins ends value?", {"mode": Attribute(as_name, name="pad_mode")}),),
    infer=_infer_pad,
    fold=_fold_pad,
)

# Range


def _infer_range(operands: Operands) -> AbstractTensor:
    kind = operands.get("type") or operands.get_type("start")
    start, limit, step = (_to_integer(operands.get_entry(name)) for name in ("start", "limit", "step"))
    if isinstance(step, int) and step != 0 and not any(isinstance(one, float) for one in (start, limit)):
        if isinstance(start, int) and isinstance(limit, int):
            return AbstractTensor(kind, (max(0, -((start - limit) // step)),))
        if step > 0:
            return AbstractTensor(kind, (count_range(start, limit, step),))
    if operands.of_layer or not all(isinstance(one, int | float) for one in (start, limit, step)):
        return AbstractTensor(kind, (UNKNOWN,))
    # Runtimes divide in the type of the inputs, or in a wider one.
    types: set[Any] = {operands.get_type(name) for name in ("start", "limit", "step")} - {None}
    with np.errstate(all="ignore"):
        exact = {
            float((one(limit) - one(start)) / one(step))
            for one in (*(type_.numpy.type for type_ in types), np.float64)
        }
    counts = {math.ceil(count) for count in exact if math.isfinite(count)}
    if len(counts) != 1 or not all(map(math.isfinite, exact)):
        raise Unknown("the number of elements depends on rounding")
    return AbstractTensor(kind, (max(0, counts.pop()),))


def _to_integer(entry: Entry) -> Entry:
    """Convert a float to an integer if it is integral and below 2^53. Return other entries unchanged."""
    return int(entry) if isinstance(entry, float) and abs(entry) < 1 << 53 and entry == int(entry) else entry


def _fold_range(operands: Operands, start: Any, limit: Any, step: Any) -> Any:
    numbers = [one.reshape(()).item() for one in (start, limit, step)]
    if any(number != int(number) for number in numbers):
        raise ValueError("fractions are counted in another way")
    kind = operands.get("type")
    return np.array(range(*map(int, numbers)), start.dtype if kind is None else kind.numpy)


RANGE: Final = Operator(
    onnx=(Spelling("Range", "start limit step", since=11),),
    openvino=(
        Spelling("Range", "start limit step", {"type": Attribute(as_type, name="output_type")}, since=4),
        Spelling("Range", "start limit step"),
    ),
    infer=_infer_range,
    fold=_fold_range,
)

# Resize


def _infer_resize(operands: Operands) -> AbstractTensor:
    """Infer the output of a Resize, given sizes or scale factors. Scaled sizes are rounded down."""
    shape: list[Dim] = list(operands.get_shape())
    padded = any(any(operands.get(name, ())) for name in ("pads_begin", "pads_end"))
    if padded or operands.get("policy", "stretch") != "stretch":
        return AbstractTensor(operands.get_type(), (UNKNOWN,) * len(shape))
    axes = read_axes(operands, len(shape))
    by = operands.get("by")
    if by is None:  # in ONNX, an empty input counts as absent
        by = "sizes" if "sizes" in operands and len(operands.get_entries("sizes")) else "scales"
    entries = operands.get_entries("goal" if "goal" in operands else by)
    if len(entries) != len(axes):
        raise Unknown(f"{len(entries)} {by} of {len(axes)} axes")
    for axis, entry in zip(axes, entries, strict=True):
        shape[axis] = to_size(entry) if by == "sizes" else _scale(shape[axis], entry)
    return AbstractTensor(operands.get_type(), tuple(shape))


def _scale(size: Dim, factor: Entry) -> Dim:
    """Scale a size and round down. The result is unknown if it may depend on the floating-point type."""
    if not isinstance(factor, int | float) or not 0 < factor < _MAX_FACTOR:
        return UNKNOWN
    exact = Fraction(factor)
    if exact.denominator > _MAX_FACTOR:
        return UNKNOWN
    whole = multiply(size, exact.numerator)
    return to_size(whole if exact.denominator == 1 else divide(whole, exact.denominator))


_MAX_FACTOR: Final = 256
_AXES: Final = {"axes": Attribute(as_integers, None)}
_POLICY: Final = {"policy": Attribute(as_name, "stretch", "keep_aspect_ratio_policy")}
_PADDING: Final = {name: Attribute(as_integers, ()) for name in ("pads_begin", "pads_end")}
_BY: Final = {"by": Attribute(as_name, name="shape_calculation_mode")}
RESIZE: Final = Operator(
    onnx=(
        Spelling("Resize", "data roi? scales? sizes?", _AXES | _POLICY, since=18),
        Spelling("Resize", "data roi? scales? sizes?", since=11),
        Spelling("Resize", "data scales", since=10),
        Spelling("Upsample", "data scales", since=9),
    ),
    openvino=(
        Spelling("Interpolate", "data goal axes?", _BY | _PADDING, since=11),
        Spelling("Interpolate", "data sizes scales axes?", _BY | _PADDING, since=4),
    ),
    infer=_infer_resize,
)
COPYING: Final = (EXPAND, CONSTANT_OF_SHAPE, TILE, PAD, RANGE, RESIZE)
