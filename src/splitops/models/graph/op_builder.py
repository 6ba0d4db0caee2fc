"""What writes nodes: operators by their spellings, and in each dialect one way to add a node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
from splitops.models.ops.concat import CONCAT
from splitops.models.ops.gather import GATHER
from splitops.models.ops.operator import Operands, Operator, Spelling, Unknown
from splitops.models.ops.reshape import RESHAPE
from splitops.models.ops.slice import SLICE
from splitops.models.ops.squeeze import SQUEEZE, UNSQUEEZE
from splitops.models.ops.transpose import TRANSPOSE
from splitops.models.split_nodes.operands import make_operands
from splitops.models.split_nodes.static_facts import find_shortest
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.operators import OperatorSchema, versions
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Dim, Shape


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


class OpBuilder(ABC):
    """Writes nodes of an opset of one dialect."""

    domain: ClassVar[str]

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

    @abstractmethod
    def spelling(self, operator: Operator) -> Spelling:
        """Return how an operator is spelled."""

    @property
    def rows(self) -> list[OperatorSchema]:
        """The versions of splits that give parts as outputs."""
        return [schema for schema in versions(self.domain, self.opset) if not schema.gives_sequence]

    def write(self, operator: Operator, **operands: Any) -> ir.Value:
        """Add a node by its operands, and annotate its output with what the operator means.

        Operands are values, lists of values, or numbers. Those that are None are left out.
        """
        spelling = self.spelling(operator)
        inputs, attributes = spelling.write(
            operands, lambda value, name: self.constant(np.array(value, np.int64), name)
        )
        told = _infer_values(operator, spelling, operands, of_layer=bool(self.domain))
        return self.annotate_outputs(self.multi(spelling.name, inputs, attributes), told.type, told.shape)[0]

    def slice(self, data: ir.Value, bounds: Mapping[int, slice]) -> ir.Value:
        """Add a Slice of some axes; before opset 10, all steps are 1."""
        starts, ends, steps = zip(*((one.start, one.stop, one.step) for one in bounds.values()), strict=True)
        needs_steps = self.domain or set(steps) != {1}
        return self.write(
            SLICE,
            data=data,
            starts=starts,
            ends=ends,
            axes=list(bounds),
            steps=steps if needs_steps else None,
        )

    def gather(self, data: ir.Value, positions: Sequence[int], axis: int) -> ir.Value:
        """Add a Gather of some positions of an axis."""
        return self.write(GATHER, data=data, indices=positions, axis=axis)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat."""
        return self.write(CONCAT, values=list(values), axis=axis)

    def reshape(self, value: ir.Value, pattern: Sequence[int], shape: Shape | None) -> ir.Value:
        """Add a Reshape to a shape. In its pattern, 0 keeps an axis, and -1 is what is left."""
        made = self.write(RESHAPE, data=value, shape=pattern, copies_zero=True)
        return self.annotate_outputs([made], type_of(value), shape)[0]

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Add a Transpose."""
        return self.write(TRANSPOSE, data=value, order=order)

    def squeeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze of one axis, which is of size 1."""
        made = self.write(SQUEEZE, data=value, axes=[axis])
        return self.annotate_outputs([made], type_of(value), shape_like(value, {axis: None}))[0]

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add an Unsqueeze of one axis."""
        return self.write(UNSQUEEZE, data=value, axes=[axis])

    def split(self, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]) -> list[ir.Value]:
        """Add a split, written as shortly as its opset allows; the parts add up to the size of the axis."""
        schema, division = find_shortest(self.rows, sizes, size)
        return self.split_as(schema, division, data, axis, sizes)

    def split_as(
        self, schema: OperatorSchema, division: Division, data: ir.Value, axis: int, sizes: Sequence[Dim]
    ) -> list[ir.Value]:
        """Add a split of a version, whose lengths are a division's."""
        attributes, inputs = make_operands(schema, axis, division, data, self.constant)
        made = [value for value in inputs if value is not None]
        parts = self.multi(schema.name, made, attributes, outputs=len(sizes))
        return self.annotate_outputs(
            parts, type_of(data), *(shape_like(data, {axis: size}) for size in sizes)
        )


def _infer_values(
    operator: Operator, spelling: Spelling, operands: Mapping[str, Any], *, of_layer: bool
) -> AbstractTensor:
    """Infer the output of a node from its operands: values, lists of values, and numbers."""
    found: dict[str, Any] = dict(spelling.fixed)
    for name, value in operands.items():
        if isinstance(value, ir.Value):
            found[name] = get_abstract_value(value) or AbstractTensor()
        elif isinstance(value, list) and value and isinstance(value[0], ir.Value):
            found[name] = [get_abstract_value(one) for one in value]
        elif value is not None:
            found[name] = value if name in spelling.attributes else _constant(value)
    try:
        told = operator.infer(Operands(found, of_layer=of_layer))
    except Unknown:
        return AbstractTensor()
    assert isinstance(told, AbstractTensor)
    return told


def _constant(numbers: Any) -> AbstractTensor:
    array = np.array(numbers, np.int64)
    return AbstractTensor(element_type_of(array.dtype), array.shape, array)


class OnnxOpBuilder(OpBuilder):
    """Writes ONNX nodes, in the order in which they run; they are in no graph before :meth:`replace`.

    Their names are free in the model, and begin with a base.
    """

    domain = ""

    def __init__(self, opset: int, names: FreshNames, base: str) -> None:
        super().__init__(opset)
        self.nodes: list[ir.Node] = []
        self._names = names
        self._base = base

    def spelling(self, operator: Operator) -> Spelling:
        """Return how an operator is spelled in the opset."""
        return next(one for one in operator.onnx if one.since <= self.opset)

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
        name = self._names.make_name(f"{self._base}/{operator}")
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

        Names, types and metadata go over, see :func:`transfer_values`.
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
        return self._names.make_name(f"{self._base}_{hint}")

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
