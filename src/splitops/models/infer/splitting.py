"""The visit of one split site: from what is known of its inputs to what is known of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from splitops.binding import Binding, Fact, bind
from splitops.errors import SplitError, Where
from splitops.inference import Inference, infer_binding
from splitops.models.known import Known, SequenceOf, Tensor, fact
from splitops.operators import OperatorSchema
from splitops.sizes.dims import UNKNOWN, Range

__all__ = ["OnVisit", "Visit", "visit_site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One split site with everything that is known where it is reached.

    A site in a model-local function is visited once for every call, one in a loop with what holds in every
    round.

    Attributes:
        schema: the operator version; None where there is none, see ``error``.
        operator: its name and version for messages, for example ``"Split-18"``.
        attributes: the node's attributes by name; a :class:`Fact` where a function's caller gives the value.
        facts: what is known of each input; None is an absent one.
        inputs: the names of the inputs; ``""`` is an absent one.
        outputs: the names of the declared outputs; ``""`` is one that nobody reads.
        where: the place.
        conditional: whether the model may run without running this site.
        constants: for each input, whether it is a constant of the model.
        binding: what is proved; None where ``error`` is set.
        inference: what follows; None where ``error`` is set.
        error: the broken rule.
        node: the node: an ``onnx_ir.Node`` or a :class:`~splitops.models.formats.openvino.Layer`.
    """

    schema: OperatorSchema | None
    operator: str
    attributes: Mapping[str, Any]
    facts: tuple[Fact | None, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    where: Where
    conditional: bool = False
    constants: tuple[bool, ...] = ()
    binding: Binding | None = None
    inference: Inference | None = None
    error: SplitError | None = None
    node: Any = None


OnVisit = Callable[[Visit], None]
"""Called with every visit: inference raises the error, checking collects it."""


def visit_site(visit: Visit, tensors: Sequence[Known]) -> tuple[Visit, list[Known]]:
    """Infer one split site.

    Args:
        visit: the site, its facts not yet filled in.
        tensors: what is known of each input.

    Returns:
        The visit with facts, binding and inference or error, and what is known of each output.
    """
    known = [value if isinstance(value, Tensor) else Tensor() for value in tensors]
    facts = tuple(
        fact(value, value=True) if name else None for name, value in zip(visit.inputs, known, strict=True)
    )
    visit = replace(visit, facts=facts)
    count = len(visit.outputs)
    if visit.schema is None or visit.error is not None:
        return visit, [None] * count
    schema = visit.schema
    try:
        binding = bind(schema, visit.attributes, facts, outputs=count, where=visit.where)
        inference = infer_binding(binding)
    except SplitError as error:
        return replace(visit, error=error), _types_alone(schema, known, count)
    visit = replace(visit, binding=binding, inference=inference)
    data = known[0]
    if schema.gives_sequence:
        return visit, [_sequence(binding, inference, data)]
    shapes = inference.parts if inference.parts is not None else (None,) * count
    values = _values(binding, inference, data, count)
    return visit, [Tensor(data.type, shape, value) for shape, value in zip(shapes, values, strict=True)]


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


def tightened(visit: Visit, data: Known) -> Known:
    """Return what the input is known to be once the split has worked."""
    if visit.inference is None or not isinstance(data, Tensor) or visit.inference.data is None:
        return data
    return replace(data, shape=visit.inference.data)


def sizes_of_names(before: Known, after: Known) -> dict[str, int]:
    """Return the symbols that a tightened shape has found the sizes of."""
    if not (isinstance(before, Tensor) and isinstance(after, Tensor) and before.shape and after.shape):
        return {}
    pairs = zip(before.shape, after.shape, strict=True)
    return {
        old.name: new for old, new in pairs if isinstance(old, Range) and old.name and isinstance(new, int)
    }
