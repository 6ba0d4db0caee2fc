"""The numbers that ONNX models compute from shapes, as far as they are known: Shape, Gather, Concat ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx import helper

from splitops.models.graph.onnx import is_external
from splitops.models.graph.onnx_functions import Attributes
from splitops.models.infer.onnx_reading import node_proto, read_node
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
from splitops.models.movers import BY_OPERATOR
from splitops.models.movers.followed import numbers
from splitops.models.movers.mover import OnnxNode
from splitops.models.movers.numbers import ARITHMETIC, apply
from splitops.spec.elements.types import element_type_of, from_onnx


def computed_value(
    node: ir.Node, attributes: Attributes, opset: int, inputs: Sequence[Known], output: Known
) -> Value | None:
    """Return the numbers of a node's first output, as far as they can be followed.

    Args:
        node: a node of the ONNX domain.
        attributes: its attributes.
        opset: the opset that it is of.
        inputs: what is known of its inputs.
        output: what is known of its first output.
    """
    mover, kernel = BY_OPERATOR.get(node.op_type), _KERNELS.get(node.op_type)
    if mover is None and kernel is None and node.op_type not in _FOLDED:
        return None
    if node.op_type not in _FROM_SHAPES and not any(map(_has_numbers, inputs)):
        return None
    if not isinstance(output, Tensor) or not _is_followed(output):
        return None
    try:
        if mover is not None:
            value = mover.infer_node(read_node(node, attributes, opset, inputs)).value
        elif kernel is not None:
            value = kernel(read_node(node, attributes, opset, inputs))
        else:
            value = _folded(node, attributes, opset, inputs, output)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, ZeroDivisionError):
        return None  # numbers that do not fit one another: the node fails when it runs
    if value is None or value.size > MAX_ELEMENTS:
        return None
    return _compact(value, output)


def constant(attributes: Attributes) -> Tensor | None:
    """Return what is known of the value of a Constant node; None where it is not a tensor and no numbers."""
    for attribute in attributes.values():
        match attribute.type:
            case _ if attribute.is_ref():
                continue
            case ir.AttributeType.TENSOR:
                return tensor_known(attribute.value)
            case ir.AttributeType.INT | ir.AttributeType.INTS:
                return _of_numbers(attribute.value, np.int64)
            case ir.AttributeType.FLOAT | ir.AttributeType.FLOATS:
                return _of_numbers(attribute.value, np.float32)
    return None


def _of_numbers(numbers: Any, dtype: type[np.generic]) -> Tensor:
    value = np.array(numbers, dtype)
    return Tensor(element_type_of(value.dtype), value.shape, value if value.size <= MAX_ELEMENTS else None)


def tensor_known(tensor: ir.TensorProtocol) -> Tensor:
    """Return what is known of a tensor in the model: of a large one, not its numbers."""
    kind, shape = from_onnx(tensor.dtype.value), tuple(map(int, tensor.shape.numpy()))
    here = tensor.dtype != ir.DataType.STRING and not is_external(tensor)
    return Tensor(kind, shape, tensor.numpy() if here and math.prod(shape) <= MAX_ELEMENTS else None)


def _has_numbers(known: Known) -> bool:
    return isinstance(known, Tensor) and known.value is not None


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


def _size(node: OnnxNode) -> Value | None:
    shape = value_of_shape(node.shape())
    if shape is None:
        return None
    total: Any = partial_value(1)
    for entry in shape:
        total = apply(ARITHMETIC["Mul"], total, partial_value(entry))
    return np.asarray(total, object)


def _same(node: OnnxNode) -> Value | None:
    return numbers(node.tensor())


def _where(node: OnnxNode) -> Value | None:
    condition, yes, no = (numbers(tensor).astype(object) for tensor in node.tensors())
    found = np.empty(np.broadcast_shapes(condition.shape, yes.shape, no.shape), object)
    found[...] = np.frompyfunc(_chosen, 3, 1)(condition, yes, no)
    return found


def _chosen(condition: Entry, yes: Entry, no: Entry) -> Entry:
    if condition is None:
        return yes if yes == no else None
    return yes if condition else no


def _sequence_length(node: OnnxNode) -> Value | None:
    sequence = node.inputs[0]
    return partial_value(sequence.length) if isinstance(sequence, SequenceOf) else None


_KERNELS: Final[Mapping[str, Callable[[OnnxNode], Value | None]]] = {
    "Size": _size,
    "Identity": _same,
    "SequenceLength": _sequence_length,
    "Where": _where,
}
"""Operators that follow partly known numbers, beside the movers."""
_FROM_SHAPES: Final = frozenset({"Shape", "Size", "SequenceLength"})
"""Operators that give numbers without being given any."""

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
        "Trilu",
        "Xor",
    ]
)
"""Operators that onnx's reference evaluator computes when all their inputs are known: cheap ones."""


def _folded(
    node: ir.Node, attributes: Attributes, opset: int, inputs: Sequence[Known], output: Tensor
) -> Value | None:
    """Run a node of which every input is known, where its output is known to be small."""
    if output.shape is None:
        return None
    if not all(isinstance(size, int) for size in output.shape):
        return None
    arrays: dict[str, Any] = {}
    asked = node_proto(node, attributes)
    for name, known in zip(asked.input, inputs, strict=True):
        if not name:
            continue
        if not isinstance(known, Tensor) or not known.is_whole or known.type is None:
            return None
        arrays[name] = numbers(known).astype(known.type.numpy, copy=False)
    from onnx.reference import ReferenceEvaluator

    empty = helper.make_empty_tensor_value_info
    graph = helper.make_graph([asked], "g", [empty(name) for name in arrays], [empty(asked.output[0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(model).run(None, arrays)
            result = found[0]
    except Exception:
        return None
    return np.asarray(result) if isinstance(result, np.ndarray | np.generic) else None
