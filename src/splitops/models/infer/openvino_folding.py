"""Layers of constants, evaluated as OpenVINO folds them: what its fusions ask for is then known.

Movers follow partly known numbers themselves. These are the other layers from which bounds, axes and steps
are made, on small tensors of which every element is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.models.formats.openvino.model import Layer
from splitops.models.known import MAX_ELEMENTS, Tensor
from splitops.spec.elements.types import element_type_of

_Array = npt.NDArray[Any]
_Evaluate = Callable[..., Any]
_MOST_BITS: Final = 64


def folded(layer: Layer, inputs: Sequence[Tensor], declared: Tensor) -> Tensor | None:
    """Return the output of a layer whose inputs are all known; None where it is not known.

    ``declared`` is what the layer says of it.
    """
    evaluate = _FOLDED.get(layer.type)
    if evaluate is None or not inputs:
        return None
    arrays = []
    for tensor in inputs:
        if tensor.type is None or tensor.value is None or not tensor.is_whole or not _is_followed(tensor):
            return None
        arrays.append(tensor.value.astype(tensor.type.numpy))
    kind = declared.type or inputs[0].type
    try:
        with np.errstate(all="raise"):
            found = np.asarray(evaluate(layer, *arrays))
    except (ValueError, IndexError, TypeError, KeyError, ArithmeticError, MemoryError):
        return None  # the layer fails when it runs, or says what is not known here
    if kind is None or found.size > MAX_ELEMENTS or element_type_of(found.dtype) is not kind:
        return None
    return Tensor(kind, found.shape, found)


def _is_followed(tensor: Tensor) -> bool:
    return tensor.type is not None and tensor.type.name in ("bool", "int32", "int64", "float32")


def _numpy(operation: _Evaluate) -> _Evaluate:
    """Evaluate an elementwise layer; only integers of 32 bits and wider, and floats of 32, come here."""

    def evaluate(layer: Layer, *arrays: _Array) -> Any:
        if layer.attribute("auto_broadcast") not in (None, "numpy"):
            raise ValueError("not broadcast as NumPy does")
        _check_size(np.broadcast_shapes(*(array.shape for array in arrays)))
        return operation(*arrays)

    return evaluate


def _check_size(shape: Sequence[int]) -> None:
    if math.prod(map(int, shape)) > MAX_ELEMENTS:
        raise ValueError("too large")


def _divide(layer: Layer, left: _Array, right: _Array) -> Any:
    if left.dtype.kind == "f":
        return left / right
    if (right == 0).any():
        raise ValueError("a division by zero")
    down = left // right
    if layer.attribute("m_pythondiv") != "false":
        return down
    return down + ((left % right != 0) & ((left < 0) != (right < 0)))


def _broadcast(layer: Layer, data: _Array, target: _Array, *mapping: _Array) -> Any:
    shape = [int(size) for size in target]
    _check_size(shape)
    mode = layer.attribute("mode") or "numpy"
    if mode == "bidirectional":
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))
    if mode == "explicit" or mapping:
        axes = [int(axis) for axis in mapping[0]]
        data = data.reshape(
            [data.shape[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape))]
        )
    return np.broadcast_to(data, shape)


def _tile(layer: Layer, data: _Array, repeats: _Array) -> Any:
    _check_size([data.size, *repeats])
    return np.tile(data, repeats)


def _range(layer: Layer, start: _Array, stop: _Array, step: _Array) -> Any:
    numbers = start, stop, step
    if any(one.dtype.kind != "i" or one.size != 1 for one in numbers):
        raise ValueError("fractions are counted in another way")
    counted = range(*(int(one.reshape(())) for one in numbers))
    if len(counted) > MAX_ELEMENTS:
        raise ValueError("too large")
    kinds: dict[str | None, Any] = {"i32": np.int32, "i64": np.int64, None: start.dtype}
    return np.array(counted, kinds[layer.attribute("output_type")])


def _reduce(operation: _Evaluate, layer: Layer, data: _Array, axes: _Array) -> Any:
    kept = (layer.attribute("keep_dims") or "false").lower() in ("true", "1")
    return operation(
        data, axis=tuple(int(axis) for axis in axes.reshape(-1)), keepdims=kept, dtype=data.dtype
    )


def _extreme(operation: _Evaluate, layer: Layer, data: _Array, axes: _Array) -> Any:
    kept = (layer.attribute("keep_dims") or "false").lower() in ("true", "1")
    return operation(data, axis=tuple(int(axis) for axis in axes.reshape(-1)), keepdims=kept)


def _strided_slice(layer: Layer, data: _Array, begin: _Array, end: _Array, *strides: _Array) -> Any:
    steps = strides[0] if strides else np.ones_like(begin)
    masks = [
        set(np.flatnonzero(layer.integers(f"{name}_mask", [])))
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    ]
    keys: list[Any] = []
    for index, bounds in enumerate(zip(begin.tolist(), end.tolist(), steps.tolist(), strict=True)):
        first, last, step = bounds
        if index in masks[4]:
            keys.append(...)
        elif index in masks[2]:
            keys.append(None)
        elif index in masks[3]:
            keys.append(first)
        else:
            keys.append(
                slice(None if index in masks[0] else first, None if index in masks[1] else last, step)
            )
    return data[tuple(keys)]


def _clamp(layer: Layer, data: _Array) -> Any:
    low, high = layer.number("min"), layer.number("max")
    if data.dtype.kind == "i":
        low, high = math.ceil(low), math.floor(high)
    return np.clip(data, low, high).astype(data.dtype)


def _pad(layer: Layer, data: _Array, begin: _Array, end: _Array, *value: _Array) -> Any:
    if layer.attribute("pad_mode") != "constant" or min(*begin, *end) < 0:
        raise ValueError("pads otherwise")
    _check_size([size + int(a) + int(b) for size, a, b in zip(data.shape, begin, end, strict=True)])
    return np.pad(data, list(zip(begin, end, strict=True)), constant_values=value[0] if value else 0)


def _power(layer: Layer, data: _Array, exponent: _Array) -> Any:
    if data.dtype.kind != "i" or ((exponent < 0) | (exponent > _MOST_BITS)).any():
        raise ValueError("rounded in another way, or too large")
    _check_size(np.broadcast_shapes(data.shape, exponent.shape))
    exact = np.power(data.astype(object), exponent.astype(object))
    return exact.astype(data.dtype)


def _one_hot(layer: Layer, indices: _Array, depth: _Array, on: _Array, off: _Array) -> Any:
    (axis,) = layer.integers("axis")
    count = int(depth.reshape(()))
    _check_size([*indices.shape, count])
    if (layer.attribute("negative_indices_mode") or "ignore_negative") != "ignore_negative":
        raise ValueError("counted otherwise")
    return np.moveaxis(np.where(indices[..., None] == np.arange(count), on, off), -1, axis)


def _scatter(layer: Layer, data: _Array, indices: _Array, updates: _Array, axis: _Array) -> Any:
    made, at = data.copy(), int(axis.reshape(())) % data.ndim
    _check_positions(layer, indices)
    keys: tuple[Any, ...] = (*[slice(None)] * at, indices)
    made[keys] = updates
    return made


def _scatter_elements(layer: Layer, data: _Array, indices: _Array, updates: _Array, axis: _Array) -> Any:
    made = data.copy()
    _check_positions(layer, indices)
    np.put_along_axis(made, indices, updates, int(axis.reshape(())))
    return made


def _scatter_nd(layer: Layer, data: _Array, indices: _Array, updates: _Array) -> Any:
    made = data.copy()
    _check_positions(layer, indices)
    made[tuple(np.moveaxis(indices, -1, 0))] = updates
    return made


def _round(layer: Layer, data: _Array) -> Any:
    if layer.text("mode", "half_to_even") != "half_to_even":
        raise ValueError("rounded in another way")
    return np.round(data)


def _check_positions(layer: Layer, indices: _Array) -> None:
    if (indices < 0).any() or (layer.attribute("reduction") or "none") != "none":
        raise ValueError("read otherwise")


def _non_zero(layer: Layer, data: _Array) -> Any:
    kind = np.int32 if layer.attribute("output_type") == "i32" else np.int64
    return np.stack(np.nonzero(data)).astype(kind)


_FOLDED: Final[Mapping[str, _Evaluate]] = {
    "Abs": _numpy(np.abs),
    "Add": _numpy(np.add),
    "Broadcast": _broadcast,
    "Ceiling": _numpy(np.ceil),
    "Clamp": _clamp,
    "Divide": _divide,
    "Equal": _numpy(np.equal),
    "Floor": _numpy(np.floor),
    "FloorMod": _numpy(np.mod),
    "Greater": _numpy(np.greater),
    "GreaterEqual": _numpy(np.greater_equal),
    "Less": _numpy(np.less),
    "LessEqual": _numpy(np.less_equal),
    "LogicalAnd": _numpy(np.logical_and),
    "LogicalNot": _numpy(np.logical_not),
    "LogicalOr": _numpy(np.logical_or),
    "LogicalXor": _numpy(np.logical_xor),
    "Maximum": _numpy(np.maximum),
    "Minimum": _numpy(np.minimum),
    "Mod": _numpy(np.fmod),
    "Multiply": _numpy(np.multiply),
    "Negative": _numpy(np.negative),
    "NonZero": _non_zero,
    "NotEqual": _numpy(np.not_equal),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Power": _power,
    "Range": _range,
    "ReLU": _numpy(lambda data: np.maximum(data, np.zeros((), data.dtype))),
    "ReduceMax": partial(_extreme, np.max),
    "ReduceMin": partial(_extreme, np.min),
    "ReduceProd": partial(_reduce, np.prod),
    "ReduceSum": partial(_reduce, np.sum),
    "Round": _round,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "ScatterUpdate": _scatter,
    "Select": _numpy(np.where),
    "Sign": _numpy(np.sign),
    "Sqrt": _numpy(np.sqrt),
    "StridedSlice": _strided_slice,
    "Subtract": _numpy(np.subtract),
    "Tile": _tile,
}
