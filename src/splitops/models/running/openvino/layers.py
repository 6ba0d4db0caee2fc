"""The layers that are evaluated without OpenVINO: the split family and the plain data movers around it.

A kernel takes a layer and the values of its input ports and gives the values of its output ports. Shapes are
those of the values, never those that the file states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.calls.node import evaluate
from splitops.elements.types import ELEMENT_TYPES, ElementType, from_openvino
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.shapes import MAX_RANK, parse_integer
from splitops.models.formats.openvino.splits import split_attributes, split_schema
from splitops.models.running.openvino.conversion import convert, is_convertible
from splitops.native.resources import memory_bytes
from splitops.operators import FAMILY

__all__ = [
    "KERNELS",
    "Value",
    "is_own",
    "prove_size",
]

_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor between layers.

    Attributes:
        array: its elements, of dtype ``element_type.numpy``.
        element_type: their type, which uint8 codes of nf4, u1, u3 and u6 do not tell.
        constant: whether it follows from constants alone.
    """

    array: npt.NDArray[Any]
    element_type: ElementType
    constant: bool = False


Kernel = Callable[[Layer, Sequence[Value], Where], Sequence[Value]]


def is_own(layer: Layer) -> bool:
    """Return whether a layer is evaluated here, instead of by OpenVINO."""
    if layer.type not in KERNELS:
        return layer.type in {"Parameter", "Const", "Result"}
    versions = _VERSIONS.get(layer.type)
    if layer.version not in _OPSETS or (versions is not None and layer.version not in versions):
        return False
    return layer.type != "Gather" or layer.attribute("batch_dims") in {None, "0"}


def _split(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    parts = evaluate(
        split_schema(layer, where),
        split_attributes(layer, where),
        [value.array for value in inputs],
        outputs=len(layer.outputs),
        where=where,
        types=[value.element_type for value in inputs],
    )
    return [_like(inputs[0], part) for part in parts]


def _concat(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    axis = _attribute(layer, "axis", where)
    if not inputs:
        raise ModelError(f"{layer} has no inputs", where)
    first = inputs[0]
    rank = first.array.ndim
    if not -rank <= axis < rank:
        raise ModelError(f"axis = {axis} is not an axis of rank {rank}", where)
    for value in inputs:
        same_type = value.element_type is first.element_type
        others = [_without(v.array.shape, axis) for v in (first, value) if v.array.ndim == rank]
        if not same_type or len(others) < 2 or others[0] != others[1]:
            raise ModelError(
                f"{_described(first)} and {_described(value)} do not fit together on axis {axis}",
                where,
            )
    size = sum(value.array.shape[axis] for value in inputs)
    prove_size((size, *_without(first.array.shape, axis)), first.element_type, where)
    return [_like(first, np.concatenate([value.array for value in inputs], axis=axis))]


def _convert(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    value = _take(layer, inputs, 1, where)[0]
    text = layer.attribute("destination_type")
    target = from_openvino(text) if text is not None else None
    if target is None:
        raise ModelError(f"destination_type = {text!r} is not an element type", where)
    if not is_convertible(value.element_type, target):
        raise ModelError(f"OpenVINO does not convert {value.element_type} to {target}", where)
    prove_size(value.array.shape, target, where)
    return [replace(value, array=convert(value.array, value.element_type, target), element_type=target)]


def _reshape(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    data, pattern = _take(layer, inputs, 2, where)
    sizes = _integers(pattern, "pattern", where, ranks=(1,))
    special_zero = _boolean(layer, "special_zero", where)
    shape: list[int] = []
    known, taken = 1, data.array.size
    rest = list(data.array.shape)
    for index, size in enumerate(sizes):
        if size == 0 and special_zero:
            if index >= len(rest):
                raise ModelError(
                    f"pattern {sizes} copies dimension {index} of a tensor of rank {len(rest)}", where
                )
            shape.append(data.array.shape[index])
            rest[index] = 1
        elif size < -1:
            raise ModelError(f"pattern {sizes} has the negative size {size}", where)
        else:
            shape.append(size)
            known *= size if size >= 0 else 1
    if sizes.count(-1) > 1:
        raise ModelError(f"pattern {sizes} has two -1", where)
    if -1 in sizes:
        taken = math.prod(rest)
        # Nothing can be divided among no elements: OpenVINO takes 1.
        if known == 0 and taken == 0:
            shape[sizes.index(-1)] = 1
        elif known == 0 or taken % known:
            raise ModelError(f"pattern {sizes} does not fit shape {list(data.array.shape)}", where)
        else:
            shape[sizes.index(-1)] = taken // known
    if math.prod(shape) != data.array.size or max(shape, default=0) > _INT64_MAX:
        raise ModelError(f"pattern {sizes} does not fit shape {list(data.array.shape)}", where)
    prove_size(shape, data.element_type, where)
    return [_like(data, data.array.reshape(shape))]


def _squeeze(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    if len(inputs) == 1:
        data, axes = inputs[0], []
    else:
        data, given = _take(layer, inputs, 2, where)
        axes = _axes(given, data.array.ndim, where)
    shape = data.array.shape
    # An axis whose size is not 1 stays, in every version.
    dropped = {axis for axis in axes or range(len(shape)) if shape[axis] == 1}
    return [_like(data, data.array.reshape([size for axis, size in enumerate(shape) if axis not in dropped]))]


def _unsqueeze(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    data, given = _take(layer, inputs, 2, where)
    stated = list(dict.fromkeys(_integers(given, "axes", where, ranks=(0, 1))))
    rank = data.array.ndim + len(stated)
    if not stated or rank > MAX_RANK:
        raise ModelError(f"axes = {stated[:8]} of a tensor of rank {data.array.ndim}", where)
    axes = {_axis(axis, rank, where) for axis in stated}
    if len(axes) < len(stated):
        raise ModelError(f"axes = {stated} repeat one another", where)
    sizes = iter(data.array.shape)
    return [_like(data, data.array.reshape([1 if axis in axes else next(sizes) for axis in range(rank)]))]


def _transpose(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    data, given = _take(layer, inputs, 2, where)
    order = _integers(given, "order", where, ranks=(1,))
    rank = data.array.ndim
    if order and sorted(order) != list(range(rank)):
        raise ModelError(f"order = {order[:8]} is not an order of {rank} axes", where)
    return [_like(data, data.array.transpose(order or None))]


def _shape_of(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    value = _take(layer, inputs, 1, where)[0]
    text = "i64" if layer.version in {"opset1", "opset2"} else layer.attribute("output_type") or "i64"
    if text not in {"i32", "i64"}:
        raise ModelError(f"output_type = {text!r} is neither i32 nor i64", where)
    kind = ELEMENT_TYPES["int32" if text == "i32" else "int64"]
    if text == "i32" and max(value.array.shape, default=0) > np.iinfo(np.int32).max:
        raise ModelError(f"shape {list(value.array.shape)} does not fit i32", where)
    return [replace(value, array=np.array(value.array.shape, kind.numpy), element_type=kind)]


def _gather(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    data, indices, given = _take(layer, inputs, 3, where)
    if not indices.element_type.integer or indices.element_type.packed:
        raise ModelError(f"indices are {indices.element_type}, not integers", where)
    stated = _integers(given, "axis", where, ranks=(0, 1))
    if len(stated) != 1:
        raise ModelError(f"axis = {stated[:8]} is not one axis", where)
    axis = _axis(stated[0], data.array.ndim, where)
    shape = data.array.shape
    result = (*shape[:axis], *indices.array.shape, *shape[axis + 1 :])
    if len(result) > MAX_RANK:
        raise ModelError(f"the result has more than {MAX_RANK} dimensions", where)
    prove_size(result, data.element_type, where)
    positions = indices.array
    negative_counts = layer.version not in {"opset1", "opset7"}
    inside = positions < shape[axis]
    if positions.dtype.kind == "i":
        inside &= positions >= (-shape[axis] if negative_counts else 0)
    if inside.all():
        return [_like(data, np.take(data.array, positions, axis=axis))]
    # Indices outside the axis give zeros, as in OpenVINO.
    gathered = np.zeros(result, data.array.dtype)
    if data.array.dtype == object:
        gathered[...] = ""
    where_inside = (slice(None),) * axis + (inside,)
    gathered[where_inside] = np.take(data.array, positions[inside], axis=axis)
    return [_like(data, gathered)]


def _slice(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    data, *given = _take(layer, inputs, 5 if len(inputs) == 5 else 4, where)
    names = ("start", "stop", "step", "axes")
    starts, stops, steps, *rest = (
        _integers(value, name, where, ranks=(1,)) for value, name in zip(given, names, strict=False)
    )
    rank = data.array.ndim
    axes = [_axis(axis, rank, where) for axis in rest[0]] if rest else list(range(len(starts)))
    if not len(starts) == len(stops) == len(steps) == len(axes) == len(set(axes)) or len(axes) > rank:
        lengths = f"{len(starts)}, {len(stops)}, {len(steps)} and {len(set(axes))}"
        raise ModelError(f"start, stop, step and axes have {lengths} entries for rank {rank}", where)
    if 0 in steps:
        raise ModelError("step has a 0", where)
    index = [slice(None)] * rank
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        index[axis] = slice(start, stop, step)
    return [_like(data, data.array[tuple(index)])]


KERNELS: Final[Mapping[str, Kernel]] = {
    **dict.fromkeys(FAMILY["openvino"], _split),
    "Concat": _concat,
    "Convert": _convert,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "ShapeOf": _shape_of,
    "Gather": _gather,
    "Slice": _slice,
}
"""The kernels by layer type."""

_OPSETS: Final = frozenset(f"opset{number}" for number in range(1, 100))
_VERSIONS: Final[Mapping[str, frozenset[str]]] = {
    # Gather-8 is the last one that is read here; ShapeOf-3 and Squeeze-15 are that of each later opset.
    "Gather": frozenset({"opset1", "opset7", "opset8"}),
    "Slice": frozenset(f"opset{number}" for number in range(8, 100)),
}


def _take(layer: Layer, inputs: Sequence[Value], count: int, where: Where) -> Sequence[Value]:
    if len(inputs) != count:
        raise ModelError(f"{layer} has {len(inputs)} inputs, but it takes {count}", where)
    return inputs


def _described(value: Value) -> str:
    return f"{value.element_type} {list(value.array.shape)}"


def _like(value: Value, array: npt.NDArray[Any]) -> Value:
    return replace(value, array=array)


def _attribute(layer: Layer, name: str, where: Where) -> int:
    text = layer.attribute(name)
    if text is None:
        raise ModelError(f"{layer} has no {name}", where)
    return parse_integer(text, name, where)


def _boolean(layer: Layer, name: str, where: Where) -> bool:
    text = (layer.attribute(name) or "").strip().lower()
    if text not in {"true", "1", "false", "0"}:
        raise ModelError(f"{name} = {text[:80]!r} is neither true nor false", where)
    return text in {"true", "1"}


def _integers(value: Value, name: str, where: Where, *, ranks: tuple[int, ...]) -> list[int]:
    array = value.array
    if not value.element_type.integer or array.ndim not in ranks:
        raise ModelError(f"{name} is {_described(value)}, not integers of rank {ranks[-1]}", where)
    if array.size > MAX_RANK:
        raise ModelError(f"{name} has {array.size} entries, more than {MAX_RANK}", where)
    return [int(number) for number in array.reshape(-1)]


def _axes(value: Value, rank: int, where: Where) -> list[int]:
    return [_axis(axis, rank, where) for axis in _integers(value, "axes", where, ranks=(0, 1))]


def _axis(axis: int, rank: int, where: Where) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is not an axis of rank {rank}", where)
    return axis % rank


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]


_MEMORY: Final = memory_bytes()


def prove_size(shape: Sequence[int], element_type: ElementType, where: Where) -> None:
    """Prove that a result fits into memory before it is made.

    Raises:
        ModelError: it does not.
    """
    size = math.prod(dim or 1 for dim in shape) * element_type.numpy.itemsize
    if (size > _MEMORY and 0 not in shape) or size > _INT64_MAX or len(shape) > MAX_RANK:
        raise ModelError(f"the result of shape {list(shape)} is larger than the memory", where)
