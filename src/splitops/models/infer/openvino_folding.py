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

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor
from splitops.models.formats.openvino.model import Layer
from splitops.models.movers.conversion import convert, is_convertible
from splitops.spec.elements.types import element_type_of, from_openvino

_Array = npt.NDArray[Any]
_Evaluate = Callable[..., Any]
_MAX_BITS: Final = 64
_FOLLOWED: Final = frozenset({"bool", "int32", "int64", "float16", "float32"})
"""OpenVINO folds no arithmetic of float64, and narrow integers sometimes wrap and sometimes saturate."""


def folded(
    layer: Layer, inputs: Sequence[AbstractTensor], declared: Sequence[AbstractTensor]
) -> list[AbstractTensor] | None:
    """Return the outputs of a layer whose inputs are all known; None if they are not known.

    ``declared`` is what the layer says of them.
    """
    evaluate = _FOLDED.get(layer.type)
    if evaluate is None or not inputs:
        return None
    arrays = []
    for tensor in inputs:
        if (
            tensor.type is None
            or tensor.elements is None
            or not tensor.is_complete
            or not _is_followed(tensor)
        ):
            return None
        arrays.append(tensor.elements.astype(tensor.type.numpy))
    try:
        with np.errstate(all="raise"):
            found = evaluate(layer, *arrays)
        results = [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]
        return [_known(*pair, arrays[0]) for pair in zip(results, declared, strict=True)]
    except (ValueError, IndexError, TypeError, KeyError, ArithmeticError, MemoryError):
        return None  # the layer fails when it runs, or says what is not known here


def _known(array: _Array, declared: AbstractTensor, data: _Array) -> AbstractTensor:
    kind = declared.type or element_type_of(data.dtype)
    if array.size > MAX_ELEMENTS or element_type_of(array.dtype) is not kind:
        raise ValueError("another type than is declared, or too large")
    return AbstractTensor(kind, array.shape, array)


def _is_followed(tensor: AbstractTensor) -> bool:
    return tensor.type is not None and tensor.type.name in _FOLLOWED


def _numpy(operation: _Evaluate) -> _Evaluate:
    """Evaluate an elementwise layer."""

    def evaluate(layer: Layer, *arrays: _Array) -> Any:
        if layer.attribute("auto_broadcast") not in (None, "numpy"):
            raise ValueError("not broadcast as NumPy does")
        _check_size(np.broadcast_shapes(*(array.shape for array in arrays)))
        return operation(*arrays)

    return evaluate


def _rounded(operation: Callable[[Any], Any]) -> _Evaluate:
    """Evaluate a function of floats, rounded once to their type."""

    def evaluate(layer: Layer, data: _Array) -> Any:
        found = np.asarray(operation(data.astype(np.float64)))
        if data.dtype.kind != "f" and (found != np.floor(found)).any():
            raise ValueError("some layers round it, and some cut it off")
        return found.astype(data.dtype)

    return evaluate


def _convert(layer: Layer, data: _Array, *like: _Array) -> Any:
    source = element_type_of(data.dtype)
    target = (
        element_type_of(like[0].dtype) if like else from_openvino(layer.attribute("destination_type") or "")
    )
    if source is None or target is None or not is_convertible(source, target):
        raise ValueError("not converted")
    return convert(data, source, target)


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
    return down + ((left % right != 0) & ((left < 0) != (right < 0))).astype(down.dtype)


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
    numbers = [one.reshape(()).item() for one in (start, stop, step)]
    if any(one != int(one) for one in numbers):
        raise ValueError("fractions are counted in another way")
    counted = range(*map(int, numbers))
    if len(counted) > MAX_ELEMENTS:
        raise ValueError("too large")
    return np.array(counted, _numpy_type(layer.attribute("output_type"), start.dtype))


def _numpy_type(precision: str | None, default: Any = np.int64) -> Any:
    """Return the type that an attribute names."""
    named = None if precision is None else from_openvino(precision)
    return default if named is None else named.numpy


def _reduce(operation: _Evaluate, layer: Layer, data: _Array, axes: _Array) -> Any:
    kept = (layer.attribute("keep_dims") or "false").lower() in ("true", "1")
    found = operation(data, axis=tuple(int(axis) for axis in axes.reshape(-1)), keepdims=kept)
    return np.asarray(found).astype(data.dtype)  # sums of integers wrap, means of them lose the fraction


def _strided_slice(layer: Layer, data: _Array, begin: _Array, end: _Array, *strides: _Array) -> Any:
    steps = strides[0] if strides else np.ones_like(begin)
    masks = [
        set(np.flatnonzero(layer.integers(f"{name}_mask", [])))
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    ]
    keys: list[Any] = []
    for index, bounds in enumerate(zip(begin.tolist(), end.tolist(), steps.tolist(), strict=True)):
        first, last, step = bounds
        if sum(index in mask for mask in masks[2:]) > 1:
            raise ValueError("what wins is not specified")
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
    if low > high:
        raise ValueError("no number is between them")
    return np.clip(data, low, high).astype(data.dtype)


def _pad(layer: Layer, data: _Array, begin: _Array, end: _Array, *value: _Array) -> Any:
    if min(*begin, *end) < 0:
        raise ValueError("crops")
    _check_size([size + int(a) + int(b) for size, a, b in zip(data.shape, begin, end, strict=True)])
    widths, mode = list(zip(begin, end, strict=True)), layer.attribute("pad_mode")
    if mode == "constant":
        return np.pad(data, widths, constant_values=value[0] if value else 0)
    return np.pad(data, widths, "edge") if mode == "edge" else None


def _power(layer: Layer, data: _Array, exponent: _Array) -> Any:
    if data.dtype.kind == "f":
        return _numpy(np.power)(layer, data.astype(np.float64), exponent.astype(np.float64)).astype(
            data.dtype
        )
    if ((exponent < 0) | (exponent > _MAX_BITS)).any():
        raise ValueError("rounded in another way, or too large")
    _check_size(np.broadcast_shapes(data.shape, exponent.shape))
    return np.asarray(np.power(data.astype(object), exponent.astype(object))).astype(data.dtype)


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
    made, at = data.copy(), int(axis.reshape(())) % data.ndim
    _check_positions(layer, indices)
    # Other axes may be shorter than those of the data.
    part = made[tuple(slice(None if axis == at else size) for axis, size in enumerate(indices.shape))]
    np.put_along_axis(part, indices, updates, at)
    return made


def _scatter_nd(layer: Layer, data: _Array, indices: _Array, updates: _Array) -> Any:
    made = data.copy()
    _check_positions(layer, indices)
    made[tuple(np.moveaxis(indices, -1, 0))] = updates
    return made


def _round(layer: Layer, data: _Array) -> Any:
    if layer.text("mode", "half_to_even") == "half_to_even" or data.dtype.kind != "f":
        return np.round(data)
    wide = data.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(data.dtype)


def _top_k(layer: Layer, data: _Array, count: _Array) -> Any:
    (axis,), number = layer.integers("axis"), int(count.reshape(()))
    if np.isnan(data).any() or not 0 < number <= data.shape[axis]:
        raise ValueError("not ordered, or more than there are")
    order = layer.text("sort", "none")
    if order == "none" and number > 1:
        raise ValueError("their order is not specified")
    ranks = np.unique(data, return_inverse=True)[1].reshape(data.shape)
    positions = np.argsort(-ranks if layer.text("mode", "max") == "max" else ranks, axis, kind="stable")
    positions = positions.take(range(number), axis)
    if order == "index":
        positions = np.sort(positions, axis)
    kind = _numpy_type(layer.attribute("index_element_type"), np.int32)
    return np.take_along_axis(data, positions, axis), positions.astype(kind)


def _matmul(layer: Layer, *factors: _Array) -> Any:
    left, right = (
        np.swapaxes(factor, -1, -2) if factor.ndim > 1 and layer.attribute(name) in ("true", "1") else factor
        for factor, name in zip(factors, ("transpose_a", "transpose_b"), strict=True)
    )
    _check_size([*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.size, right.size])
    return np.matmul(left, right)


def _eye(layer: Layer, rows: _Array, columns: _Array, shift: _Array) -> Any:
    sizes = [int(one.reshape(())) for one in (rows, columns, shift)]
    _check_size(sizes[:2])
    return np.eye(*sizes, dtype=_numpy_type(layer.attribute("output_type")))


def _norm(data: _Array, **options: Any) -> Any:
    return np.sqrt(np.sum(np.square(data.astype(np.float64)), **options))


def _check_positions(layer: Layer, indices: _Array) -> None:
    if (indices < 0).any() or (layer.attribute("reduction") or "none") != "none":
        raise ValueError("read otherwise")


def _non_zero(layer: Layer, data: _Array) -> Any:
    return np.stack(np.nonzero(data)).astype(_numpy_type(layer.attribute("output_type")))


_ELEMENTWISE: Final[Mapping[str, _Evaluate]] = {
    "Abs": np.abs,
    "Add": np.add,
    "BitwiseLeftShift": np.left_shift,
    "BitwiseRightShift": np.right_shift,
    "Equal": np.equal,
    "FloorMod": np.mod,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalNot": np.logical_not,
    "LogicalOr": np.logical_or,
    "LogicalXor": np.logical_xor,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mod": np.fmod,
    "Multiply": np.multiply,
    "Negative": np.negative,
    "NotEqual": np.not_equal,
    "ReLU": lambda data: np.maximum(data, np.zeros((), data.dtype)),
    "Select": np.where,
    "Sign": np.sign,
    "Subtract": np.subtract,
}
_FUNCTIONS: Final[Mapping[str, _Evaluate]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceiling": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Sigmoid": lambda data: 1 / (1 + np.exp(-data)),
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
_REDUCTIONS: Final[Mapping[str, _Evaluate]] = {
    "L1": lambda data, **options: np.sum(np.abs(data), **options),
    "L2": _norm,
    "LogicalAnd": np.all,
    "LogicalOr": np.any,
    "Max": np.max,
    "Mean": np.mean,
    "Min": np.min,
    "Prod": np.prod,
    "Sum": np.sum,
}
_FOLDED: Final[Mapping[str, _Evaluate]] = {
    **{name: _numpy(operation) for name, operation in _ELEMENTWISE.items()},
    **{name: _rounded(operation) for name, operation in _FUNCTIONS.items()},
    **{f"Reduce{name}": partial(_reduce, operation) for name, operation in _REDUCTIONS.items()},
    "Broadcast": _broadcast,
    "Clamp": _clamp,
    "Convert": _convert,
    "ConvertLike": _convert,
    "Divide": _divide,
    "Eye": _eye,
    "MatMul": _matmul,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Power": _power,
    "Range": _range,
    "Round": _round,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "ScatterUpdate": _scatter,
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "TopK": _top_k,
}
