"""The numbers that ONNX models compute from shapes, as far as they are known: Shape, Gather, Concat ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, NodeProto, helper

from splitops.errors import SplitError, Where
from splitops.models.formats.onnx.tensors import tensor_array
from splitops.models.known import (
    MAX_ELEMENTS,
    Entry,
    Known,
    SequenceOf,
    Tensor,
    Value,
    partial_value,
    value_of_shape,
)
from splitops.models.movers.numbers import ARITHMETIC, apply
from splitops.sizes.dims import Range

__all__ = ["computed_value", "constant_value"]

Attributes = Mapping[str, Any]
Kernel = Callable[[Attributes, Sequence[Known]], Value | None]


def computed_value(node: NodeProto, opset: int, inputs: Sequence[Known], output: Known) -> Value | None:
    """Return the numbers of a node's first output, as far as they can be followed.

    Args:
        node: a node of the ONNX domain.
        opset: the opset that it is of.
        inputs: what is known of its inputs.
        output: what is known of its first output.
    """
    kernel = _KERNELS.get(node.op_type)
    if kernel is None and node.op_type not in _FOLDED:
        return None
    if not isinstance(output, Tensor) or not _is_followed(output):
        return None
    attributes: dict[str, Any] = {"opset": opset}
    try:
        for attribute in node.attribute:
            attributes[str(attribute.name)] = helper.get_attribute_value(attribute)
        value = kernel(attributes, inputs) if kernel else _folded(node, opset, inputs, output)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, ZeroDivisionError):
        return None  # numbers that do not fit one another: the node fails when it runs
    if value is None or value.size > MAX_ELEMENTS:
        return None
    return _compact(value, output)


def constant_value(node: NodeProto, where: Where) -> Value | None:
    """Return the value of a Constant node that is a tensor or numbers, None of any other."""
    for attribute in node.attribute:
        match attribute.type:
            case AttributeProto.TENSOR if math.prod(attribute.t.dims) <= MAX_ELEMENTS:
                try:
                    return tensor_array(attribute.t, where)
                except SplitError:
                    return None
            case AttributeProto.INT:
                return np.array(attribute.i, np.int64)
            case AttributeProto.FLOAT:
                return np.array(attribute.f, np.float32)
            case AttributeProto.INTS:
                return np.array(attribute.ints, np.int64)
            case AttributeProto.FLOATS:
                return np.array(attribute.floats, np.float32)
    return None


def _is_followed(output: Tensor) -> bool:
    if output.type is None or not (output.type.integer or output.type.name in ("bool", "float32", "float64")):
        return False
    sizes = output.shape
    exact = sizes is not None and all(isinstance(size, int) for size in sizes)
    return not exact or math.prod(size for size in sizes or () if isinstance(size, int)) <= MAX_ELEMENTS


def _compact(value: Value, output: Tensor) -> Value:
    """Return a value of which all is known in its own dtype."""
    assert output.type is not None
    if value.dtype == object and all(isinstance(entry, int | float) for entry in value.flat):
        return value.astype(output.type.numpy)
    return value


def _value(known: Known) -> Value:
    if not isinstance(known, Tensor) or known.value is None:
        raise ValueError("not followed")
    return known.value


def _whole(known: Known) -> list[int]:
    """Return the numbers of a 1-D tensor (or the one of a scalar) that are all known."""
    if not isinstance(known, Tensor) or not known.is_whole:
        raise ValueError("not known")
    found: list[int] = np.atleast_1d(_value(known)).tolist()
    return found


def _shape(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    found = value_of_shape(inputs[0].shape) if isinstance(inputs[0], Tensor) else None
    return None if found is None else found[attributes.get("start", 0) : attributes.get("end")]


def _size(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    shape = value_of_shape(inputs[0].shape) if isinstance(inputs[0], Tensor) else None
    if shape is None:
        return None
    total: Any = partial_value(1)
    for entry in shape:
        total = apply(ARITHMETIC["Mul"], total, partial_value(entry))
    return np.asarray(total, object)


def _same(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    return _value(inputs[0])


def _cast(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    value = _value(inputs[0])
    if value.dtype == object:
        # What is partly known is an integer; other integer types than 64-bit ones might not hold it.
        return value if attributes["to"] in (6, 7) else None
    with np.errstate(all="ignore"):
        return value.astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _gather(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    indices = _value(inputs[1])
    if not isinstance(inputs[1], Tensor) or not inputs[1].is_whole:
        return None
    return np.asarray(np.take(_value(inputs[0]), indices.astype(np.int64), axis=attributes.get("axis", 0)))


def _concat(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    arrays = [
        _value(known) if isinstance(known, Tensor) and known.value is not None else _unknown(known)
        for known in inputs
    ]
    if sum(array.size for array in arrays) > MAX_ELEMENTS:
        return None
    return np.concatenate([array.astype(object) for array in arrays], axis=attributes.get("axis", 1))


def _unknown(known: Known) -> Value:
    """Return a value of the right shape of which nothing is known."""
    shape = known.shape if isinstance(known, Tensor) else None
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > MAX_ELEMENTS:
        raise ValueError("not followed")
    return partial_value([None] * shape[0])


def _slice(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    value = _value(inputs[0])
    if attributes["opset"] < 10:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        starts, ends = _whole(inputs[1]), _whole(inputs[2])
        axes = _whole(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
        steps = _whole(inputs[4]) if len(inputs) > 4 and inputs[4] is not None else None
    cuts: list[slice] = [slice(None)] * value.ndim
    for index, axis in enumerate(axes if axes is not None else range(len(starts))):
        step = steps[index] if steps is not None else 1
        # An end before the beginning of the axis, which a negative step may have, is not one from its end.
        end = None if step < 0 and ends[index] < -value.shape[axis] else ends[index]
        cuts[axis] = slice(starts[index], end, step)
    return value[tuple(cuts)]


def _squeeze(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    axes = _axes(attributes, inputs)
    return np.squeeze(_value(inputs[0]), None if axes is None else tuple(axes))


def _unsqueeze(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    axes = _axes(attributes, inputs)
    return None if axes is None or len(axes) > 8 else np.expand_dims(_value(inputs[0]), tuple(axes))


def _axes(attributes: Attributes, inputs: Sequence[Known]) -> list[int] | None:
    if attributes["opset"] >= 13:
        return _whole(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    axes: list[int] | None = attributes.get("axes")
    return axes


def _reshape(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    value, target = _value(inputs[0]), _whole(inputs[1]) if len(inputs) > 1 else attributes["shape"]
    if not attributes.get("allowzero", 0):
        target = [value.shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    return value.reshape(target)


def _equal(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    return apply(_is_equal, _value(inputs[0]), _value(inputs[1]))


def _is_equal(left: Entry, right: Entry) -> Entry:
    """Compare two numbers; a size that is not known is at least no number outside its range."""
    if left is None or right is None:
        return None
    if isinstance(left, Range) and isinstance(right, Range):
        return True if left.name is not None and left.name == right.name else None
    if isinstance(right, Range):
        left, right = right, left
    if isinstance(left, Range):
        assert not isinstance(right, Range | None)
        return False if right < left.lo or (left.hi is not None and right > left.hi) else None
    return left == right


def _where(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    condition, yes, no = (value.astype(object) for value in map(_value, inputs))
    found = np.empty(np.broadcast_shapes(condition.shape, yes.shape, no.shape), object)
    found[...] = np.frompyfunc(_chosen, 3, 1)(condition, yes, no)
    return found


def _chosen(condition: Entry, yes: Entry, no: Entry) -> Entry:
    if condition is None:
        return yes if yes == no else None
    return yes if condition else no


def _sequence_length(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
    return partial_value(inputs[0].length) if isinstance(inputs[0], SequenceOf) else None


def _arithmetic(operation: str) -> Kernel:
    def kernel(attributes: Attributes, inputs: Sequence[Known]) -> Value | None:
        types = {known.type for known in inputs if isinstance(known, Tensor)}
        if any(kind is None or kind.name != "int64" for kind in types):
            raise ValueError("only 64-bit integers are followed")
        value = _value(inputs[0])
        for other in inputs[1:]:
            value = apply(ARITHMETIC[operation], value, _value(other))
        return value

    return kernel


_KERNELS: Final[dict[str, Kernel]] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "SequenceLength": _sequence_length,
    "Equal": _equal,
    "Where": _where,
    **{operation: _arithmetic(operation) for operation in ARITHMETIC},
}

_FOLDED: Final = frozenset(
    [
        "Abs",
        "And",
        "Ceil",
        "ConstantOfShape",
        "CumSum",
        "Expand",
        "Flatten",
        "Floor",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Mod",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ScatterND",
        "Sign",
        "Tile",
        "Transpose",
        "Trilu",
        "Xor",
    ]
)
"""Operators that onnx's reference evaluator computes when all their inputs are known: cheap ones."""


def _folded(node: NodeProto, opset: int, inputs: Sequence[Known], output: Tensor) -> Value | None:
    """Run a node of which every input is known, where its output is known to be small."""
    if output.shape is None or len(node.output) != 1:
        return None
    if not all(isinstance(size, int) for size in output.shape):
        return None
    arrays: dict[str, Any] = {}
    for name, known in zip(node.input, inputs, strict=True):
        if not name:
            continue
        if not isinstance(known, Tensor) or not known.is_whole or known.type is None:
            return None
        arrays[name] = _value(known).astype(known.type.numpy, copy=False)
    from onnx.reference import ReferenceEvaluator

    empty = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "g", [empty(name) for name in arrays], [empty(node.output[0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(model).run(None, arrays)
            result = found[0]
    except Exception:
        return None
    return np.asarray(result) if isinstance(result, np.ndarray | np.generic) else None
