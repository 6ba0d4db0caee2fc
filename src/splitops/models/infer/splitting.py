"""One split node: from what is known of its inputs to what is known of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from splitops.models.known import NOTHING, Known, SequenceOf, Tensor
from splitops.models.sites import Site
from splitops.spec.operators import OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Range
from splitops.splitting.binding import Binding
from splitops.splitting.inference import Inference

OnSite = Callable[[Site], None]
"""Called with every split node: inference raises its error, checking collects it."""


def outputs_of(site: Site, inputs: Sequence[Known]) -> list[Known]:
    """Return what is known of each output of a split node, from what is known of its inputs."""
    known = [value if isinstance(value, Tensor) else NOTHING for value in inputs]
    schema, inference, count = site.schema, site.inference, len(site.outputs)
    if site.unread is not None:
        return [None] * count
    if inference is None:
        return _types_alone(schema, known, count)
    data, binding = known[0], site.bind()
    if schema.gives_sequence:
        return [_sequence(binding, inference, data)]
    shapes = inference.parts if inference.parts is not None else (None,) * count
    values = _values(binding, inference, data, count)
    return [Tensor(data.type, shape, value) for shape, value in zip(shapes, values, strict=True)]


def _sequence(binding: Binding, inference: Inference, data: Tensor) -> SequenceOf:
    found = SequenceOf(Tensor(data.type, inference.element), inference.count)
    if inference.data is None or binding.axis is None or binding.squeeze is not False:
        return found
    return replace(found, axis=binding.axis, total=inference.data[binding.axis])


def _types_alone(schema: OperatorSchema, known: list[Tensor], count: int) -> list[Known]:
    data = known[0] if known else Tensor()
    if schema.gives_sequence:
        return [SequenceOf(Tensor(data.type), UNKNOWN)] * count
    rank = None if data.shape is None else (UNKNOWN,) * len(data.shape)
    return [Tensor(data.type, rank)] * count


def _values(
    binding: Binding, inference: Inference, data: Tensor, count: int
) -> list[np.ndarray[Any, Any] | None]:
    """Split the numbers of the data, where they are followed and the sizes are known."""
    shapes, axis = inference.parts, binding.axis
    if data.value is None or axis is None or shapes is None:
        return [None] * count
    sizes = [None if shape is None else shape[axis] for shape in shapes]
    parts: list[np.ndarray[Any, Any] | None] = []
    offset: int | None = 0
    for size in sizes:
        if offset is None or not isinstance(size, int):
            parts, offset = [*parts, None], None
            continue
        where = (slice(None),) * axis + (slice(offset, offset + size),)
        parts.append(data.value[where])
        offset += size
    return parts


def tightened(site: Site, data: Known) -> Known:
    """Return what the input is known to be once the split has worked."""
    inference = site.inference
    if inference is None or not isinstance(data, Tensor) or inference.data in (None, data.shape):
        return data
    return Tensor(data.type, inference.data, data.value)


def sizes_of_names(before: Known, after: Known) -> dict[str, int]:
    """Return the symbols that a tightened shape has found the sizes of."""
    if not (isinstance(before, Tensor) and isinstance(after, Tensor) and before.shape and after.shape):
        return {}
    pairs = zip(before.shape, after.shape, strict=True)
    return {
        old.name: new for old, new in pairs if isinstance(old, Range) and old.name and isinstance(new, int)
    }
