"""Slice and StridedSlice, which select ranges of positions along axes, with steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from splitops.common.integers import INT64_MAX
from splitops.models.abstract_values import AbstractTensor, Value
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Role,
    Spelling,
    Unknown,
    as_integers,
    infer_result,
)
from splitops.models.ops.shapes import clamp, normalise_axis, read_axes, slice_size
from splitops.models.ops.writing import NodeWriter, Reader, as_int64, get_length, require
from splitops.spec.sizes.dims import UNKNOWN, Dim


def _infer(operands: Operands) -> AbstractTensor:
    sizes: list[Dim] = list(operands.get_shape())
    starts, ends = operands.get_entries("starts"), operands.get_entries("ends")
    axes = read_axes(operands, len(sizes), range(len(starts)))
    steps = operands.get_integers("steps", [1] * len(starts))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Unknown(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    bounds = list(zip(axes, starts, ends, steps, strict=True))
    for axis, start, end, step in bounds:
        sizes[axis] = slice_size(sizes[axis], start, end, step)

    def take() -> Value:
        data = operands.get_elements()
        keys = [slice(None)] * data.ndim
        for axis, start, end, step in bounds:
            if not isinstance(start, int) or not isinstance(end, int):
                raise Unknown("a bound is unknown")
            keys[axis] = clamp(data.shape[axis], slice(start, end, step))
        return data[tuple(keys)]

    return infer_result(operands.get_tensor(), tuple(sizes), take)


def _adapt_layer(writer: NodeWriter, operands: dict[str, Any]) -> dict[str, Any]:
    data = operands.pop("data")
    bounds = {name: as_int64(writer, value) for name, value in operands.items()}
    if "axes" not in bounds:
        count = get_length(writer, operands["starts"], f"the number of bounds of {writer.layer}")
        return {"data": data, **bounds, "axes": range(count)}
    axes, shape = writer.read_constant(bounds["axes"]), writer.find_shape(data)
    if axes is not None and shape is not None:
        places = [normalise_axis(int(axis), len(shape)) for axis in axes.reshape(-1)]
        require(writer, len(set(places)) == len(places), f"has an axis twice: axes = {places}")
    return {"data": data, **bounds}


def _can_convert_node(reader: Reader, operands: dict[str, Any]) -> bool:
    kind = reader.find_type(operands["data"])
    return kind is not None and kind.bits >= 8  # OpenVINO slices neither strings nor sub-byte types


def _adapt_node(reader: Reader, operands: dict[str, Any]) -> dict[str, Any] | None:
    """Add steps of 1 if a node does not set them. Return None if their number or type is unknown."""
    if "steps" in operands:
        return operands
    starts, bounds = operands["starts"], [operands.get(name) for name in ("starts", "ends", "axes")]
    if not hasattr(starts, "producer"):
        return {**operands, "steps": [1] * len(starts)}
    shapes = [reader.find_shape(value) for value in bounds if value is not None]
    counts = [shape[0] for shape in shapes if shape is not None and len(shape) == 1]
    count = next((count for count in counts if isinstance(count, int)), None)
    type_ = reader.find_type(starts)
    if count is None or type_ is None:
        return None
    return {**operands, "steps": np.ones(count, type_.numpy)}


_BOUNDS: Final = {
    **{name: Attribute(as_integers) for name in ("starts", "ends")},
    "axes": Attribute(as_integers, None),
}
SLICE: Final = Operator(
    onnx=(Spelling("Slice", "data starts ends axes? steps?", since=10), Spelling("Slice", "data", _BOUNDS)),
    openvino=(Spelling("Slice", "data starts ends steps axes?", since=8),),
    role=Role.SLICE,
    infer=_infer,
    converts=True,
    adapt_layer=_adapt_layer,
    adapt_node=_adapt_node,
    can_convert_node=_can_convert_node,
)

_NUMPY: Final[dict[str, Any]] = {"new": None, "...": ...}
_MASKS: Final = ("begin", "end", "new_axis", "shrink_axis", "ellipsis")


def _iter_keys(operands: Operands) -> Iterator[Any]:
    """Yield a NumPy index for each bound, but ``"new"`` for a new axis and ``"..."`` for an ellipsis."""
    starts, ends = operands.get_entries("starts"), operands.get_entries("ends")
    steps = operands.get_integers("steps", [1] * len(starts))
    if not len(starts) == len(ends) == len(steps):
        raise Unknown(f"{len(starts)} starts, {len(ends)} ends and {len(steps)} steps")
    masks = [set(np.flatnonzero(operands[f"{name}_mask"])) for name in _MASKS]
    if len(masks[4]) > 1:
        raise Unknown("two ellipses")
    for index, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
        if sum(index in mask for mask in masks[2:]) > 1 or step == 0:
            raise Unknown("which mask wins is not specified")
        if index in masks[4]:
            yield "..."
        elif index in masks[2]:
            yield "new"
        elif index in masks[3]:
            yield start
        else:
            first, last = (INT64_MAX, -INT64_MAX) if step < 0 else (0, INT64_MAX)
            yield slice(first if index in masks[0] else start, last if index in masks[1] else end, step)


def _infer_strided(operands: Operands) -> AbstractTensor:
    shape, keys = operands.get_shape(), list(_iter_keys(operands))
    missing = len(shape) - sum(key not in ("new", "...") for key in keys)
    if missing < 0:
        raise Unknown("more bounds than axes")
    if "..." not in keys:
        keys.append("...")
    remaining, sizes = iter(shape), list[Dim]()
    for key in keys:
        if key == "...":
            sizes += [next(remaining) for _ in range(missing)]
        elif key == "new":
            sizes.append(1)
        elif isinstance(key, slice):
            sizes.append(_slice_size(next(remaining), key))
        else:
            next(remaining)

    def take() -> Value:
        data = operands.get_elements()
        bounds = [
            bound for key in keys for bound in ((key.start, key.stop) if isinstance(key, slice) else (key,))
        ]
        if any(not isinstance(bound, int | str) for bound in bounds):
            raise Unknown("a bound is unknown")
        try:
            return np.asarray(
                data[tuple(_NUMPY.get(key, key) if isinstance(key, str) else key for key in keys)]
            )
        except IndexError as error:
            raise Unknown("outside") from error

    return infer_result(operands.get_tensor(), tuple(sizes), take)


def _slice_size(size: Dim, key: slice) -> Dim:
    if key.step < 0 and not (isinstance(key.start, int) and key.start >= -1):
        return UNKNOWN  # it may be before the first position, for which NumPy and runtimes differ
    return slice_size(size, key.start, key.stop, key.step)


_MASKED: Final = {f"{name}_mask": Attribute(as_integers, ()) for name in _MASKS}
STRIDED_SLICE: Final = Operator(
    openvino=(Spelling("StridedSlice", "data starts ends steps?", _MASKED),), infer=_infer_strided
)
