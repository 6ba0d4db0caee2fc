"""Infer the outputs of a split node from its abstract inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from splitops.models.abstract_values import NOTHING, AbstractSequence, AbstractTensor, AbstractValue
from splitops.models.split_nodes import SplitNode
from splitops.spec.operators import OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Range
from splitops.splitting.binding import Binding
from splitops.splitting.inference import Inference


def infer_outputs(split_node: SplitNode, inputs: Sequence[AbstractValue]) -> list[AbstractValue]:
    """Return the abstract value of each output of a split node. Each is None if the node is unreadable."""
    tensors = [value if isinstance(value, AbstractTensor) else NOTHING for value in inputs]
    schema, inference, count = split_node.schema, split_node.inference, len(split_node.outputs)
    if split_node.unread is not None:
        return [None] * count
    if inference is None:
        return _infer_types(schema, tensors, count)
    data, binding = tensors[0], split_node.bind()
    if schema.gives_sequence:
        return [_infer_sequence(binding, inference, data)]
    shapes = inference.parts if inference.parts is not None else (None,) * count
    values = _split_elements(binding, inference, data, count)
    return [AbstractTensor(data.type, shape, value) for shape, value in zip(shapes, values, strict=True)]


def _infer_sequence(binding: Binding, inference: Inference, data: AbstractTensor) -> AbstractSequence:
    found = AbstractSequence(AbstractTensor(data.type, inference.element), inference.count)
    if inference.data is None or binding.axis is None or binding.squeeze is not False:
        return found
    return replace(found, axis=binding.axis, total=inference.data[binding.axis])


def _infer_types(schema: OperatorSchema, known: list[AbstractTensor], count: int) -> list[AbstractValue]:
    data = known[0] if known else AbstractTensor()
    if schema.gives_sequence:
        return [AbstractSequence(AbstractTensor(data.type), UNKNOWN)] * count
    rank = None if data.shape is None else (UNKNOWN,) * len(data.shape)
    return [AbstractTensor(data.type, rank)] * count


def _split_elements(
    binding: Binding, inference: Inference, data: AbstractTensor, count: int
) -> list[np.ndarray[Any, Any] | None]:
    """Return the tracked elements of each part, or None for a part whose elements or bounds are unknown."""
    shapes, axis = inference.parts, binding.axis
    if data.elements is None or axis is None or shapes is None:
        return [None] * count
    parts: list[np.ndarray[Any, Any] | None] = [None] * count
    offset = 0
    for index, shape in enumerate(shapes):
        size = None if shape is None else shape[axis]
        if not isinstance(size, int):
            break
        parts[index] = data.elements[(slice(None),) * axis + (slice(offset, offset + size),)]
        offset += size
    return parts


def tighten(split_node: SplitNode, data: AbstractValue) -> AbstractValue:
    """Return the abstract data of a split, with its shape restricted to shapes that the split accepts."""
    inference = split_node.inference
    if inference is None or not isinstance(data, AbstractTensor) or inference.data in (None, data.shape):
        return data
    return AbstractTensor(data.type, inference.data, data.elements)


def find_symbol_sizes(before: AbstractValue, after: AbstractValue) -> dict[str, int]:
    """Return the sizes of symbols in ``before`` that are integers in ``after``."""
    if not (
        isinstance(before, AbstractTensor)
        and isinstance(after, AbstractTensor)
        and before.shape
        and after.shape
    ):
        return {}
    pairs = zip(before.shape, after.shape, strict=True)
    return {
        old.name: new for old, new in pairs if isinstance(old, Range) and old.name and isinstance(new, int)
    }
