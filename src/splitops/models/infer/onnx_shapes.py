"""The shapes that ONNX operators compute from numbers, where more is known of the numbers than onnx can tell.

onnx follows numbers that it knows exactly; sizes that are symbols or ranges are followed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir
from onnx import TensorProto

from splitops.models.graph.onnx_functions import Attributes
from splitops.models.infer.onnx_reading import read_node
from splitops.models.known import Known, SequenceOf, Tensor, meet_shapes
from splitops.models.movers import BY_OPERATOR
from splitops.models.movers.mover import OnnxNode
from splitops.models.movers.numbers import ARITHMETIC
from splitops.models.movers.shapes import (
    broadcast,
    counted,
    joined,
    size_of,
)
from splitops.spec.elements.types import from_onnx
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape


def refined(
    node: ir.Node, attributes: Attributes, opset: int, inputs: Sequence[Known], outputs: Sequence[Known]
) -> Sequence[Known]:
    """Return what is known of a node's outputs, by onnx and by the rules here together.

    Args:
        node: a node of the ONNX domain.
        attributes: its attributes.
        opset: the opset that it is of.
        inputs: what is known of its inputs.
        outputs: what onnx has inferred.
    """
    mover = BY_OPERATOR.get(node.op_type)
    rule = _RULES.get(node.op_type) if mover is None else lambda read: mover.infer_node(read).shape
    if rule is None:
        return outputs
    try:
        shape = rule(read_node(node, attributes, opset, inputs))
    except (ValueError, IndexError, TypeError, KeyError):
        return outputs  # too little is known, or the numbers do not fit one another: the node fails then
    kind = _BOOL if node.op_type in _COMPARISONS else None
    return [_with_shape(Tensor(kind) if output is None else output, shape) for output in outputs]


def _with_shape(known: Known, shape: Shape | None) -> Known:
    return replace(known, shape=meet_shapes(known.shape, shape)) if isinstance(known, Tensor) else known


def _concat_from_sequence(node: OnnxNode) -> Shape:
    sequence = node.inputs[0]
    if not isinstance(sequence, SequenceOf):
        raise ValueError("the sequence is unknown")
    return joined(sequence, node.attributes["axis"], stacked=bool(node.attributes.get("new_axis", 0)))


def _constant_of_shape(node: OnnxNode) -> Shape:
    return tuple(map(size_of, node.entries(0)))


def _expand(node: OnnxNode) -> Shape:
    return broadcast(node.shape(), tuple(map(size_of, node.entries(1))))


def _elementwise(node: OnnxNode) -> Shape:
    return broadcast(node.shape(0), node.shape(1))


def _tile(node: OnnxNode) -> Shape:
    pairs = zip(node.shape(), node.entries(1), strict=True)
    return tuple(size_of(_TIMES(size, repeat)) for size, repeat in pairs)


def _pad(node: OnnxNode) -> Shape:
    shape = node.shape()
    pads = (
        node.entries(1) if node.has(1) else list(node.attributes.get("pads", node.attributes.get("paddings")))
    )
    axes = node.integers(3) if node.has(3) else list(range(len(shape)))
    sizes: list[Dim] = list(shape)
    for before, after, axis in zip(pads[: len(axes)], pads[len(axes) :], axes, strict=True):
        sizes[axis] = size_of(_PLUS(sizes[axis], _PLUS(before, after)))
    return tuple(sizes)


def _range(node: OnnxNode) -> Shape:
    start, limit, delta = node.entry(0), node.entry(1), node.entry(2)
    if not isinstance(delta, int) or delta < 1:
        raise ValueError("only steps forward are followed")
    return (counted(start, limit, delta),)


def _one_hot(node: OnnxNode) -> Shape:
    shape = list(node.shape())
    axis = range(len(shape) + 1)[node.attributes.get("axis", -1)]
    return (*shape[:axis], size_of(node.entry(1)), *shape[axis:])


def _top_k(node: OnnxNode) -> Shape:
    shape = list(node.shape())
    count = node.entry(1) if node.has(1) else node.attributes["k"]
    shape[node.attributes.get("axis", -1)] = size_of(count)
    return tuple(shape)


def _resize(node: OnnxNode) -> Shape:
    """Resize by declared sizes, or by whole factors."""
    shape = node.shape()
    if "axes" in node.attributes or node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("not followed")
    if node.has(3) and len(sizes := node.entries(3)) == len(shape):
        return tuple(map(size_of, sizes))
    scales = node.entries(2 if node.opset > 10 else 1)
    pairs = zip(shape, scales, strict=True)
    return tuple(
        size_of(_TIMES(size, int(scale))) if isinstance(scale, float) and scale.is_integer() else UNKNOWN
        for size, scale in pairs
    )


_BOOL: Final = from_onnx(TensorProto.BOOL)
_PLUS: Final = ARITHMETIC["Add"]
_TIMES: Final = ARITHMETIC["Mul"]
_COMPARISONS: Final = ("LessOrEqual", "GreaterOrEqual")
"""Functions in the schemas of some versions, which onnx does not look into for one node."""

_RULES: Final[Mapping[str, Callable[[OnnxNode], Shape]]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Resize": _resize,
    "Tile": _tile,
    "TopK": _top_k,
    **dict.fromkeys(_COMPARISONS, _elementwise),
}
"""The shape of every output, by operator, of those that are not movers."""
