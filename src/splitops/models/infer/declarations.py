"""Compare the declared types and shapes of values with the inferred ones, and correct wrong declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import onnx_ir as ir

from splitops.models.abstract_values import (
    AbstractSequence,
    AbstractTensor,
    AbstractValue,
    may_be,
    meet_shapes,
)
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.infer.interpreter import InferenceResult
from splitops.models.infer.layers import declare_ports
from splitops.spec.sizes.dims import Shape


class Contradiction(NamedTuple):
    """A value whose declared type or shape contradicts the inferred one."""

    value: ir.Value
    code: str
    declared: AbstractTensor | AbstractSequence
    found: AbstractTensor | AbstractSequence

    @property
    def message(self) -> str:
        """The declared and the inferred type and shape, or only the types if they differ, in one sentence."""
        before, after = (
            f"a sequence of {self._describe(one.element)}"
            if isinstance(one, AbstractSequence)
            else self._describe(one)
            for one in (self.declared, self.found)
        )
        return f"output {self.value.name!r} is declared as {before}, but it is {after}"

    def _describe(self, tensor: AbstractTensor) -> str:
        return str(tensor.type if self.code == "declared.type" else tensor)


def find_contradiction(found: InferenceResult, value: ir.Value) -> Contradiction | None:
    """Return the contradiction between the declared and inferred type or shape, or None if there is none."""
    before, after = found.get_declared(value), found.values.get(value)
    if not isinstance(before, AbstractTensor | AbstractSequence) or not isinstance(
        after, AbstractTensor | AbstractSequence
    ):
        return None
    if type(before) is not type(after):
        return Contradiction(value, "declared.type", before, after)
    declared, inferred = (
        known.element if isinstance(known, AbstractSequence) else known for known in (before, after)
    )
    if declared.type is not None and inferred.type is not None and declared.type != inferred.type:
        return Contradiction(value, "declared.type", before, after)
    # An empty sequence has no shape to compare, and PyTorch declares elements without the axis of a split.
    ranks = {len(known.shape) for known in (declared, inferred) if known.shape is not None}
    is_open = isinstance(after, AbstractSequence) and (after.length == 0 or len(ranks) > 1)
    if not is_open and not may_be(declared.shape, inferred.shape):
        return Contradiction(value, "declared.shape", before, after)
    return None


def declare_found(wrong: Iterable[Contradiction]) -> None:
    """Replace the wrong declarations of values, except those of inputs, with the inferred ones, in place."""
    layers: dict[ir.Node, dict[ir.Value, AbstractValue]] = {}
    for one in wrong:
        maker = one.value.producer()
        if maker is None:
            continue  # an input belongs to the caller
        if type(maker) is not LayerNode:
            _declare_value(one)
            continue
        for node in (maker, *(use.node for use in one.value.uses())):
            layers.setdefault(node, {})[one.value] = one.found
    for node, values in layers.items():
        declare_ports(node, values)


def _declare_value(one: Contradiction) -> None:
    """Correct the declaration of an ONNX value, but keep declared sizes that are not wrong."""
    found, before, value = one.found, one.declared, one.value
    if isinstance(found, AbstractSequence):
        shape, kind = found.element.shape, found.element.type
    elif isinstance(before, AbstractSequence):
        shape, kind = found.shape, found.type
    else:
        shape, kind = meet_shapes(found.shape, before.shape), found.type or before.type
    if kind is not None and kind.onnx_number is not None:
        tensor = ir.TensorType(ir.DataType(kind.onnx_number))
        value.type = ir.SequenceType(tensor) if isinstance(found, AbstractSequence) else tensor
    if shape is not None or type(found) is not type(before):
        value.shape = None if shape is None else to_shape(shape)


def to_shape(shape: Shape) -> ir.Shape:
    """Convert an inferred shape to the declared shape of an ONNX value, which has no ranges of sizes."""
    return ir.Shape([size if isinstance(size, int) else size.name for size in shape])
