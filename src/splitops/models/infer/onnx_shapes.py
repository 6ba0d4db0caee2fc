"""The shapes that ONNX operators compute from numbers, where more is known of the numbers than onnx can tell.

onnx follows numbers that it knows exactly; sizes that are symbols or ranges are followed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from onnx import NodeProto, TensorProto, helper

from splitops.elements.types import from_onnx
from splitops.models.known import Entry, Known, SequenceOf, Tensor, meet_shapes
from splitops.models.movers.numbers import ARITHMETIC
from splitops.models.movers.shapes import (
    broadcast,
    concatenated,
    counted,
    joined,
    reshaped,
    size_of,
    sliced,
)
from splitops.sizes.dims import UNKNOWN, Dim, Shape

__all__ = ["refined"]


class _Node:
    """What a rule reads of a node: its attributes, and its inputs as far as they are known."""

    def __init__(self, node: NodeProto, opset: int, inputs: Sequence[Known]) -> None:
        self.opset = opset
        self.inputs = inputs
        self.attributes: Mapping[str, Any] = {
            attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute
        }

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input.

        Raises:
            ValueError: its rank is unknown.
        """
        known = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(known, Tensor) or known.shape is None:
            raise ValueError("the rank is unknown")
        return known.shape

    def entries(self, index: int) -> list[Entry]:
        """Return the numbers of an input of rank 1; of one that is not followed, only how many there are."""
        known = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(known, Tensor) and known.value is not None and known.value.ndim <= 1:
            found: list[Entry] = known.value.reshape(-1).tolist()
            return found
        (count,) = self.shape(index)
        if not isinstance(count, int) or count > _MAX_RANK:
            raise ValueError("the number of entries is unknown")
        return [None] * count

    def integers(self, index: int) -> list[int]:
        """Return the numbers of an input.

        Raises:
            ValueError: they are not all known.
        """
        entries = self.entries(index)
        found = [entry for entry in entries if isinstance(entry, int)]
        if len(found) < len(entries):
            raise ValueError("a number is unknown")
        return found

    def entry(self, index: int) -> Entry:
        """Return the number of an input of one element."""
        known = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(known, Tensor) and known.value is not None and known.value.size == 1:
            found: Entry = known.value.reshape(()).item()
            return found
        return None


_MAX_RANK: Final = 64


def refined(
    node: NodeProto, opset: int, inputs: Sequence[Known], outputs: Sequence[Known]
) -> Sequence[Known]:
    """Return what is known of a node's outputs, by onnx and by the rules here together.

    Args:
        node: a node of the ONNX domain.
        opset: the opset that it is of.
        inputs: what is known of its inputs.
        outputs: what onnx has inferred.
    """
    rule = _RULES.get(node.op_type)
    if rule is None:
        return outputs
    try:
        shape = rule(_Node(node, opset, inputs))
    except (ValueError, IndexError, TypeError, KeyError):
        return outputs  # too little is known, or the numbers do not fit one another: the node fails then
    kind = _BOOL if node.op_type in _COMPARISONS else None
    return [_with_shape(Tensor(kind) if output is None else output, shape) for output in outputs]


def _with_shape(known: Known, shape: Shape) -> Known:
    return replace(known, shape=meet_shapes(known.shape, shape)) if isinstance(known, Tensor) else known


def _concat(node: _Node) -> Shape:
    shapes = [node.shape(index) for index in range(len(node.inputs))]
    return concatenated(shapes, node.attributes.get("axis", 1))


def _concat_from_sequence(node: _Node) -> Shape:
    sequence = node.inputs[0]
    if not isinstance(sequence, SequenceOf):
        raise ValueError("the sequence is unknown")
    return joined(sequence, node.attributes["axis"], stacked=bool(node.attributes.get("new_axis", 0)))


def _reshape(node: _Node) -> Shape:
    target = node.entries(1) if node.has(1) else list(node.attributes["shape"])
    data = node.inputs[0]
    shape = data.shape if isinstance(data, Tensor) else None
    return reshaped(shape, target, copies_zero=not node.attributes.get("allowzero", 0))


def _constant_of_shape(node: _Node) -> Shape:
    return tuple(map(size_of, node.entries(0)))


def _expand(node: _Node) -> Shape:
    return broadcast(node.shape(), tuple(map(size_of, node.entries(1))))


def _elementwise(node: _Node) -> Shape:
    return broadcast(node.shape(0), node.shape(1))


def _tile(node: _Node) -> Shape:
    pairs = zip(node.shape(), node.entries(1), strict=True)
    return tuple(size_of(_TIMES(size, repeat)) for size, repeat in pairs)


def _pad(node: _Node) -> Shape:
    shape = node.shape()
    pads = (
        node.entries(1) if node.has(1) else list(node.attributes.get("pads", node.attributes.get("paddings")))
    )
    axes = node.integers(3) if node.has(3) else list(range(len(shape)))
    sizes: list[Dim] = list(shape)
    for before, after, axis in zip(pads[: len(axes)], pads[len(axes) :], axes, strict=True):
        sizes[axis] = size_of(_PLUS(sizes[axis], _PLUS(before, after)))
    return tuple(sizes)


def _range(node: _Node) -> Shape:
    start, limit, delta = node.entry(0), node.entry(1), node.entry(2)
    if not isinstance(delta, int) or delta < 1:
        raise ValueError("only steps forward are followed")
    return (counted(start, limit, delta),)


def _slice(node: _Node) -> Shape:
    shape = node.shape()
    axes: Sequence[int]
    starts: Sequence[Entry]
    ends: Sequence[Entry]
    if node.opset < 10:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = node.entries(1), node.entries(2)
        axes = node.integers(3) if node.has(3) else range(len(starts))
        steps = node.integers(4) if node.has(4) else [1] * len(starts)
    sizes: list[Dim] = list(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        sizes[axis] = sliced(sizes[axis], start, end) if step == 1 else UNKNOWN
    return tuple(sizes)


def _one_hot(node: _Node) -> Shape:
    shape = list(node.shape())
    axis = range(len(shape) + 1)[node.attributes.get("axis", -1)]
    return (*shape[:axis], size_of(node.entry(1)), *shape[axis:])


def _top_k(node: _Node) -> Shape:
    shape = list(node.shape())
    count = node.entry(1) if node.has(1) else node.attributes["k"]
    shape[node.attributes.get("axis", -1)] = size_of(count)
    return tuple(shape)


def _resize(node: _Node) -> Shape:
    """Resize by stated sizes, or by whole factors."""
    shape = node.shape()
    if "axes" in node.attributes or node.attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
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

_RULES: Final[Mapping[str, Callable[[_Node], Shape]]] = {
    "Concat": _concat,
    "ConcatFromSequence": _concat_from_sequence,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Tile": _tile,
    "TopK": _top_k,
    **dict.fromkeys(_COMPARISONS, _elementwise),
}
"""The shape of every output, by operator."""
