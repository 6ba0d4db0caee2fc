"""What is known of the outputs of OpenVINO layers: the data movers around splits, and elementwise operations.

Of every other layer the ports' own statements are taken. They cannot tell a scalar from an unknown rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from splitops.elements.types import ELEMENT_TYPES, from_openvino
from splitops.models.formats.openvino.model import Layer, Port
from splitops.models.known import (
    MAX_ELEMENTS,
    Tensor,
    Value,
    meet_shapes,
    value_of_shape,
)
from splitops.models.movers.numbers import ARITHMETIC, apply
from splitops.models.movers.shapes import concatenated, reshaped
from splitops.sizes.dims import UNKNOWN, Dim, Range, Shape, dimension

__all__ = ["infer_layer", "stated"]

Rule = Callable[[Layer, Sequence[Tensor]], Tensor]


def infer_layer(layer: Layer, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return what is known of a layer's outputs from its inputs, and from what the file states."""
    ports = [stated(port) for port in layer.outputs]
    rule = _RULES.get(layer.type)
    if rule is None or len(ports) != 1 or not layer.version.startswith("opset"):
        return ports
    try:
        found = rule(layer, inputs)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, StopIteration):
        return ports  # inputs that do not fit one another: the layer fails when it runs
    if layer.type in _RESTATED:
        return [Tensor(found.type or ports[0].type, meet_shapes(found.shape, ports[0].shape), found.value)]
    return [Tensor(found.type or ports[0].type, found.shape or ports[0].shape, found.value)]


def stated(port: Port) -> Tensor:
    """Return what the file states of a port; of one without dimensions nothing, it may be of any rank."""
    shape = tuple(size if size >= 0 else UNKNOWN for size in port.dims) if port.dims else None
    return Tensor(port.element_type, shape)


def _value(tensor: Tensor) -> Value:
    if tensor.value is None:
        raise ValueError("not followed")
    return tensor.value


def _whole(tensor: Tensor) -> list[int]:
    if not tensor.is_whole:
        raise ValueError("not known")
    return [int(entry) for entry in np.atleast_1d(_value(tensor)).tolist()]


def _shape(tensor: Tensor) -> Shape:
    if tensor.shape is None:
        raise ValueError("not known")
    return tensor.shape


def _like(tensor: Tensor, value: Value | None, shape: Shape | None) -> Tensor:
    if value is None or value.size > MAX_ELEMENTS:
        return Tensor(tensor.type, shape)
    return Tensor(tensor.type, tuple(value.shape), value)


def _maybe(compute: Callable[[], Any]) -> Any:
    """Return the numbers of a layer's output, None where they cannot be followed."""
    try:
        return compute()
    except (ValueError, IndexError, TypeError):
        return None


def _concat(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    axis = int(layer.attribute("axis") or "")
    value = _maybe(lambda: np.concatenate([_value(tensor).astype(object) for tensor in inputs], axis=axis))
    return _like(inputs[0], value, concatenated([_shape(tensor) for tensor in inputs], axis))


def _convert(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    target = from_openvino(layer.attribute("destination_type") or "")
    value = inputs[0].value
    if target is None or target.name not in ("int32", "int64"):
        value = None
    elif value is not None and inputs[0].is_whole:
        value = value.astype(target.numpy)
    return Tensor(target, inputs[0].shape, value)


def _reshape(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data, pattern = inputs
    if pattern.value is None:
        rank = _shape(pattern)[0]
        return Tensor(data.type, (UNKNOWN,) * rank if isinstance(rank, int) and rank <= 64 else None)
    copies = (layer.attribute("special_zero") or "").lower() in ("true", "1")
    shape = reshaped(data.shape, pattern.value.tolist(), copies_zero=copies)
    value = _maybe(lambda: _value(data).reshape([size if isinstance(size, int) else -1 for size in shape]))
    return _like(data, value, shape)


def _squeeze(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data = inputs[0]
    shape = _shape(data)
    if len(inputs) > 1:
        axes = {range(len(shape))[axis] for axis in _whole(inputs[1])}
    else:
        axes = set(range(len(shape)))
    # Whether an axis of unknown size stays depends on what the version says of sizes other than 1.
    if any(isinstance(shape[axis], Range) for axis in axes):
        return Tensor(data.type)
    kept = [index for index in range(len(shape)) if index not in axes or shape[index] != 1]
    value = _maybe(lambda: _value(data).reshape([_value(data).shape[index] for index in kept]))
    return _like(data, value, tuple(shape[index] for index in kept))


def _unsqueeze(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data, stated = inputs[0], list(dict.fromkeys(_whole(inputs[1])))
    rank = len(_shape(data)) + len(stated)
    axes = {range(rank)[axis] for axis in stated}
    sizes = iter(_shape(data))
    shape = tuple(1 if axis in axes else next(sizes) for axis in range(rank))
    value = _maybe(lambda: _value(data).reshape([size for size in shape if isinstance(size, int)]))
    return _like(data, value, shape)


def _transpose(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data, shape = inputs[0], _shape(inputs[0])
    if not inputs[1].is_whole:
        return Tensor(data.type, (UNKNOWN,) * len(shape))
    order = _whole(inputs[1]) or list(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError("no order of the axes")
    value = _maybe(lambda: _value(data).transpose(order))
    return _like(data, value, tuple(shape[axis] for axis in order))


def _shape_of(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    narrow = layer.version not in ("opset1", "opset2") and layer.attribute("output_type") == "i32"
    kind = ELEMENT_TYPES["int32" if narrow else "int64"]
    value = value_of_shape(inputs[0].shape)
    if value is None:
        return Tensor(kind, (UNKNOWN,))
    if all(isinstance(entry, int) for entry in value.tolist()):
        value = value.astype(kind.numpy)
    return Tensor(kind, tuple(value.shape), value)


def _gather(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data, indices = inputs[0], inputs[1]
    if layer.attribute("batch_dims") not in (None, "0"):
        raise ValueError("not followed")
    shape, taken = _shape(data), _shape(indices)
    axis = range(len(shape))[_whole(inputs[2])[0]]
    size = shape[axis]

    def take() -> Value:
        least = 0 if layer.version in ("opset1", "opset7") else -_int(size)
        positions = np.array(_whole(indices), np.int64).reshape(_value(indices).shape)
        if ((positions < least) | (positions >= _int(size))).any():
            raise ValueError("zeros, in some versions")
        return np.asarray(np.take(_value(data), positions, axis=axis))

    return _like(data, _maybe(take), (*shape[:axis], *taken, *shape[axis + 1 :]))


def _slice(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    data, *given = inputs
    starts, stops, steps, *rest = map(_whole, given)
    shape: list[Dim] = list(_shape(data))
    index = [slice(None)] * len(shape)
    axes = rest[0] if rest else range(len(starts))
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        at = range(len(shape))[axis]
        index[at] = slice(start, stop, step)
        shape[at] = _sliced(shape[at], start, stop, step)
    return _like(data, _maybe(lambda: _value(data)[tuple(index)]), tuple(shape))


def _sliced(size: Dim, start: int, stop: int, step: int) -> Dim:
    """Return the size of a slice of an axis."""
    if isinstance(size, int):
        return len(range(*slice(start, stop, step).indices(size)))
    # Up to the least size, the slice is the same for all.
    if step == 1 and start >= 0 and 0 <= stop <= size.lo:
        return max(0, stop - start)
    return dimension(0, size.hi)


def _int(size: Dim) -> int:
    if not isinstance(size, int):
        raise ValueError("not known")
    return size


def _same_shape(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    return Tensor(inputs[0].type, inputs[0].shape)


def _broadcast(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    left, right = inputs
    if layer.attribute("auto_broadcast") not in (None, "numpy"):
        raise ValueError("not followed")
    value = None
    operation = _OPERATIONS.get(layer.type)
    if operation is not None and left.type == right.type == ELEMENT_TYPES["int64"]:
        value = _maybe(lambda: apply(ARITHMETIC[operation], _value(left), _value(right)))
    a, b = _shape(left), _shape(right)
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    kind = ELEMENT_TYPES["bool"] if layer.type in _COMPARISONS else left.type
    return _like(Tensor(kind), value, tuple(map(_broadcast_dims, a, b)))


def _broadcast_dims(left: Dim, right: Dim) -> Dim:
    if left == 1 or (left == right and isinstance(left, int)):
        return right
    if right == 1:
        return left
    if isinstance(left, int) or isinstance(right, int):
        size, other = (left, right) if isinstance(left, int) else (right, left)
        if isinstance(other, int):
            raise ValueError("do not broadcast")
        return size  # the other one is the same, or 1
    if left.name is not None and left == right:
        return left
    if left.lo > 1 and right.lo > 1:  # neither is 1, so they are the same
        return (meet_shapes((left,), (right,)) or (UNKNOWN,))[0]
    if left.lo > 1:
        return Range(left.lo, left.hi)
    if right.lo > 1:
        return Range(right.lo, right.hi)
    hi = None if left.hi is None or right.hi is None else max(left.hi, right.hi)
    return dimension(min(left.lo, right.lo), hi)


_COMPARISONS: Final = frozenset(["Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"])
_BINARY: Final = frozenset(
    [
        "Add",
        "Subtract",
        "Multiply",
        "Divide",
        "Power",
        "Maximum",
        "Minimum",
        "Mod",
        "FloorMod",
        "SquaredDifference",
        "LogicalAnd",
        "LogicalOr",
        "LogicalXor",
    ]
)
_OPERATIONS: Final = {
    "Add": "Add",
    "Subtract": "Sub",
    "Multiply": "Mul",
    "Divide": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
}
_UNARY: Final = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceiling",
        "Clamp",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HSigmoid",
        "HSwish",
        "HardSigmoid",
        "Log",
        "LogicalNot",
        "LogSoftmax",
        "Mish",
        "Negative",
        "ReLU",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "SoftPlus",
        "SoftSign",
        "SoftMax",
        "Softmax",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
    ]
)
_RESTATED: Final = _UNARY | _BINARY | _COMPARISONS

_RULES: Final[dict[str, Rule]] = {
    "Concat": _concat,
    "Convert": _convert,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "ShapeOf": _shape_of,
    "Gather": _gather,
    "Slice": _slice,
    **dict.fromkeys(sorted(_UNARY), _same_shape),
    **dict.fromkeys(sorted(_BINARY | _COMPARISONS), _broadcast),
}
