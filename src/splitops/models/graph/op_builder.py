"""What writes nodes: each dialect has a table of how its operators are written, and one way to add a node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.walk import FreshNames
from splitops.models.graph.onnx import (
    annotate,
    attributes_of,
    describe_like,
    get_abstract_value,
    remove_if_unused,
    shape_of,
    transfer_values,
    type_of,
)
from splitops.models.movers.shapes import positions, unsqueezed
from splitops.models.split_nodes.operands import written
from splitops.models.split_nodes.static_facts import shortest
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.operators import OperatorSchema, versions
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import UNKNOWN, Dim, Shape


def annotate_like(value: ir.Value, data: ir.Value, sizes: Mapping[int, Dim | None]) -> None:
    """Note that a value is like another one but for the sizes of some axes; None drops the axis."""
    found = get_abstract_value(data)
    if isinstance(found, AbstractTensor):
        annotate(value, AbstractTensor(found.type, shape_like(data, sizes)))


def shape_like(data: ir.Value, sizes: Mapping[int, Dim | None]) -> Shape | None:
    """Return the shape of a value but for the sizes of some axes; None drops the axis."""
    found = get_abstract_value(data)
    if not isinstance(found, AbstractTensor) or found.shape is None:
        return None
    dims = (sizes.get(axis, dim) for axis, dim in enumerate(found.shape))
    return tuple(dim for dim in dims if dim is not None)


def sliced_sizes(data: ir.Value, bounds: Mapping[int, slice]) -> dict[int, Dim | None]:
    """Return the sizes that are left of the axes of a value behind a Slice."""
    found = get_abstract_value(data)
    shape = found.shape if isinstance(found, AbstractTensor) else None
    sizes = {axis: UNKNOWN if shape is None else shape[axis] for axis in bounds}
    return {
        axis: len(positions(size, bounds[axis])) if isinstance(size, int) else UNKNOWN
        for axis, size in sizes.items()
    }


@dataclass(frozen=True, slots=True)
class Signature:
    """How nodes of an operator set their operands: one row of the table of a format.

    Attributes:
        since: the first opset that sets them so.
        inputs: the operands that are inputs behind the data, in their order.
        attributes: those that are attributes.
        others: other attributes, which are always set.
        steps_are_optional: whether steps of 1 may be left out.
    """

    since: int
    inputs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    steps_are_optional: bool = False


class OpBuilder(ABC):
    """Writes nodes of an opset of one dialect, by a table of its operators, the newest row of each first."""

    domain: ClassVar[str]
    signatures: ClassVar[Mapping[str, Sequence[Signature]]]

    def __init__(self, opset: int) -> None:
        self.opset = opset

    @abstractmethod
    def multi(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        hint: str | None = None,
    ) -> list[ir.Value]:
        """Add a node; the names of its outputs contain the hint."""

    @abstractmethod
    def constant(self, array: npt.NDArray[Any], hint: str = "const") -> ir.Value:
        """Add a constant."""

    @abstractmethod
    def repeat(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        shape: Shape | None,
        changed: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """Add a node like another one of one output, with some attributes changed."""

    @abstractmethod
    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Put values in the place of the outputs of a node (None: of an unused one), and remove it."""

    def op(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        hint: str | None = None,
    ) -> ir.Value:
        """Add a node of one output."""
        return self.multi(operator, inputs, attributes, hint=hint)[0]

    def annotate_outputs(
        self, made: list[ir.Value], kind: ElementType | None, *shapes: Shape | None
    ) -> list[ir.Value]:
        """Note element type and shapes of the outputs of a node, and return them."""
        for value, shape in zip(made, shapes, strict=True):
            annotate(value, AbstractTensor(kind, shape))
        return made

    # Operators that both dialects have

    def signature(self, operator: str) -> Signature | None:
        """Return how an operator is written; None where the table does not say."""
        rows = self.signatures.get(operator)
        return None if rows is None else next((row for row in rows if row.since <= self.opset), rows[-1])

    @property
    def rows(self) -> list[OperatorSchema]:
        """The versions of splits that give parts as outputs."""
        return [schema for schema in versions(self.domain, self.opset) if not schema.gives_sequence]

    def write(
        self, operator: str, inputs: Sequence[ir.Value], result: Shape | None, /, **operands: Any
    ) -> ir.Value:
        """Add a node by its operands, where the dialect has them, and note the shape of its output."""
        signature = self.signature(operator)
        assert signature is not None
        if set(operands.get("steps", ())) == {1} and signature.steps_are_optional:
            del operands["steps"]
        made = [
            self.constant(np.array(operands[name], np.int64), name)
            for name in signature.inputs
            if name in operands
        ]
        attributes = {name: operands[name] for name in signature.attributes if name in operands}
        return self.annotate_outputs(
            self.multi(operator, [*inputs, *made], attributes), type_of(inputs[0]), result
        )[0]

    def slice(self, data: ir.Value, bounds: Mapping[int, slice]) -> ir.Value:
        """Add a Slice of some axes; before opset 10, all steps are 1."""
        starts, ends, steps = zip(*((one.start, one.stop, one.step) for one in bounds.values()), strict=True)
        shape, axes = shape_like(data, sliced_sizes(data, bounds)), list(bounds)
        return self.write("Slice", [data], shape, starts=starts, ends=ends, axes=axes, steps=steps)

    def gather(self, data: ir.Value, positions: Sequence[int], axis: int) -> ir.Value:
        """Add a Gather of some positions of an axis."""
        shape = shape_like(data, {axis: len(positions)})
        return self.write("Gather", [data], shape, positions=positions, axis=axis)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat."""
        return self.write("Concat", values, None, axis=axis)

    def reshape(self, value: ir.Value, pattern: Sequence[int], shape: Shape | None) -> ir.Value:
        """Add a Reshape: in its pattern, 0 keeps the axis at the same position, and -1 is what is left."""
        return self.write("Reshape", [value], shape, shape=pattern)

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Add a Transpose."""
        shape = shape_of(value)
        turned = None if shape is None else tuple(shape[axis] for axis in order)
        return self.write("Transpose", [value], turned, perm=order)

    def squeeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze of one axis."""
        return self.write("Squeeze", [value], shape_like(value, {axis: None}), axes=[axis])

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add an Unsqueeze of one axis."""
        shape = shape_of(value)
        made = None if shape is None else unsqueezed(shape, [axis])
        return self.write("Unsqueeze", [value], made, axes=[axis])

    def split(self, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]) -> list[ir.Value]:
        """Add a split, written as shortly as its opset allows; the parts add up to the size of the axis."""
        schema, division = shortest(self.rows, sizes, size)
        return self.split_as(schema, division, data, axis, sizes)

    def split_as(
        self, schema: OperatorSchema, division: Division, data: ir.Value, axis: int, sizes: Sequence[Dim]
    ) -> list[ir.Value]:
        """Add a split of a version, whose lengths are a division's."""
        attributes, inputs = written(schema, axis, division, data, self.constant)
        made = [value for value in inputs if value is not None]
        parts = self.multi(schema.name, made, attributes, outputs=len(sizes))
        return self.annotate_outputs(
            parts, type_of(data), *(shape_like(data, {axis: size}) for size in sizes)
        )


ONNX: Final[Mapping[str, Sequence[Signature]]] = {
    "Concat": [Signature(1, attributes=("axis",))],
    "Gather": [Signature(1, ("positions",), ("axis",))],
    "Reshape": [Signature(5, ("shape",)), Signature(1, attributes=("shape",))],
    "Slice": [
        Signature(10, ("starts", "ends", "axes", "steps"), steps_are_optional=True),
        Signature(1, attributes=("starts", "ends", "axes")),
    ],
    "Squeeze": [Signature(13, ("axes",)), Signature(1, attributes=("axes",))],
    "Transpose": [Signature(1, attributes=("perm",))],
    "Unsqueeze": [Signature(13, ("axes",)), Signature(1, attributes=("axes",))],
}
"""How ONNX writes what both dialects have."""


class OnnxOpBuilder(OpBuilder):
    """Writes ONNX nodes, in the order in which they run; they are in no graph before :meth:`replace`.

    Their names are free in the model, and begin with a base.
    """

    domain = ""
    signatures = ONNX

    def __init__(self, opset: int, names: FreshNames, base: str) -> None:
        super().__init__(opset)
        self.nodes: list[ir.Node] = []
        self._names = names
        self._base = base

    def multi(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        hint: str | None = None,
    ) -> list[ir.Value]:
        """Add a node."""
        hint = hint or operator.lower()
        values = [ir.Value(name=self.name(hint)) for _ in range(outputs)]
        made = attributes_of(attributes or {})
        name = self._names.fresh(f"{self._base}/{operator}")
        self.put(ir.Node("", operator, inputs, made, outputs=values, name=name))
        return values

    def repeat(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        shape: Shape | None,
        changed: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """Add a node like another one."""
        made = self.multi(node.op_type, inputs, {**node.attributes, **(changed or {})})
        return self.annotate_outputs(made, type_of(node.outputs[0]), shape)[0]

    def put(self, node: ir.Node) -> None:
        """Add a node that is made already."""
        self.nodes.append(node)

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Put the nodes in the place of one, and values in that of each output (None: of an unread one).

        Names, types and metadata go over, see :func:`exchange`.
        """
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, self.nodes)
        transfer_values({old: new for old, new in zip(node.outputs, outputs, strict=True) if new is not None})
        if self.nodes:
            describe_like(self.nodes[-1], node)
        inputs = [value for value in node.inputs if value is not None]
        graph.remove(node, safe=True)
        for value in inputs:
            remove_if_unused(value)

    def name(self, hint: str) -> str:
        """Return a free name for a value."""
        return self._names.fresh(f"{self._base}_{hint}")

    def constant(self, array: npt.NDArray[Any], hint: str = "const") -> ir.Value:
        """Add a Constant node."""
        tensor = ir.tensor(array)
        value = self.op("Constant", [], {"value": tensor}, hint=hint)
        tensor.name = value.name  # as onnx-ir itself names it when it reads the model again
        annotate(value, AbstractTensor(element_type_of(array.dtype), array.shape))
        return value

    def reference(self, name: str, kind: ir.AttributeType, source: str, hint: str) -> ir.Value:
        """Add a Constant node of what the caller of a function gives as an attribute."""
        return self.op("Constant", [], {name: ir.RefAttr(name, source, kind)}, hint=hint)

    def cast(self, value: ir.Value, element_type: ElementType, hint: str = "cast") -> ir.Value:
        """Add a Cast."""
        # The type was a string before opset 6.
        to: Any = element_type.onnx_number if self.opset >= 6 else element_type.onnx
        made = self.op("Cast", [value], {"to": to}, hint=hint)
        annotate(made, AbstractTensor(element_type, shape_of(value)))
        return made

    def size(self, data: ir.Value, axis: ir.Value) -> ir.Value:
        """Return the size of an axis, both of shape [1]."""
        shape = self.op("Shape", [data])
        return self.op("Gather", [shape, axis], {"axis": 0}, hint="size")

    def part(self, data: ir.Value, axis: int, begin: int | ir.Value, end: int | ir.Value) -> ir.Value:
        """Return a part of an axis; bounds of shape [1] that only a run knows from opset 10 on."""
        if self.opset < 10:
            return self.op("Slice", [data], {"axes": [axis], "starts": [begin], "ends": [end]}, hint="part")
        bounds = [self.integers([bound]) if isinstance(bound, int) else bound for bound in (begin, end)]
        return self.op("Slice", [data, *bounds, self.integers([axis])], hint="part")

    def integers(self, values: Sequence[int], /) -> ir.Value:
        """Add a constant of shape [number of values]."""
        return self.constant(np.array(values, np.int64), "ints")
