"""Build nodes from operands, which a :class:`Spelling` maps to the inputs and attributes of a dialect."""

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
    copy_description,
    find_shape,
    find_type,
    get_abstract_value,
    make_attributes,
    remove_if_unused,
    transfer_values,
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
    """Annotate a value like ``data``, with new ``sizes`` of some axes. A size of None removes an axis."""
    found = get_abstract_value(data)
    if isinstance(found, AbstractTensor):
        annotate(value, AbstractTensor(found.type, replace_sizes(data, sizes)))


def replace_sizes(data: ir.Value, sizes: Mapping[int, Dim | None]) -> Shape | None:
    """Return the shape of ``data`` with some new sizes, or None if it is unknown. None removes an axis."""
    found = get_abstract_value(data)
    if not isinstance(found, AbstractTensor) or found.shape is None:
        return None
    dims = (sizes.get(axis, dim) for axis, dim in enumerate(found.shape))
    return tuple(dim for dim in dims if dim is not None)


class OpBuilder(ABC):
    """Adds nodes of one opset, in ONNX or OpenVINO."""

    domain: ClassVar[str]

    def __init__(self, opset: int) -> None:
        self.opset = opset

    @abstractmethod
    def add_node(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        hint: str | None = None,
    ) -> list[ir.Value]:
        """Add a node, and return its outputs. In ONNX, their names contain ``hint``."""

    @abstractmethod
    def add_constant(self, array: npt.NDArray[Any], hint: str = "const") -> ir.Value:
        """Add a constant, and return its value."""

    @abstractmethod
    def repeat(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        shape: Shape | None,
        changed: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """Add a copy of a node with other inputs and with the attributes in ``changed`` replaced.

        Return its only output, annotated with the old type and with ``shape``.
        """

    @abstractmethod
    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Replace the outputs of a node with ``outputs``, and remove the node. Unused outputs may be None."""

    def add(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        hint: str | None = None,
    ) -> ir.Value:
        """Add a node with one output, and return the output."""
        return self.add_node(operator, inputs, attributes, hint=hint)[0]

    def annotate_outputs(
        self, outputs: list[ir.Value], kind: ElementType | None, *shapes: Shape | None
    ) -> list[ir.Value]:
        """Annotate the outputs of a node with an element type and their shapes, and return the outputs."""
        for value, shape in zip(outputs, shapes, strict=True):
            annotate(value, AbstractTensor(kind, shape))
        return outputs

    # Operators of both dialects

    @abstractmethod
    def get_spelling(self, operator: Operator) -> Spelling:
        """Return the :class:`Spelling` of an operator: its name, inputs and attributes in this opset."""

    @property
    def schemas(self) -> list[OperatorSchema]:
        """The split operators of the opset whose outputs are the parts, not a sequence of them."""
        return [schema for schema in versions(self.domain, self.opset) if not schema.gives_sequence]

    def write(self, operator: Operator, **operands: Any) -> ir.Value:
        """Add a node from its operands, and return its output, annotated with the inferred type and shape.

        An operand is a value, a list of values, or a constant such as numbers. None is an absent operand.
        """
        spelling = self.get_spelling(operator)
        inputs, attributes = spelling.write(
            operands, lambda value, name: self.add_constant(np.array(value, np.int64), name)
        )
        inferred = _infer_values(operator, spelling, operands, of_layer=bool(self.domain))
        outputs = self.add_node(spelling.name, inputs, attributes)
        return self.annotate_outputs(outputs, inferred.type, inferred.shape)[0]

    def slice(self, data: ir.Value, bounds: Mapping[int, slice]) -> ir.Value:
        """Add a Slice of the axes in ``bounds``. Before ONNX opset 10, all steps must be 1."""
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
        """Add a Gather of ``positions`` along an axis."""
        return self.write(GATHER, data=data, indices=positions, axis=axis)

    def concatenate(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a Concat of ``values``, and return its output."""
        return self.write(CONCAT, values=list(values), axis=axis)

    def reshape(self, value: ir.Value, pattern: Sequence[int], shape: Shape | None) -> ir.Value:
        """Add a Reshape to ``pattern`` (0 copies a size, -1 infers it), and annotate it with ``shape``."""
        made = self.write(RESHAPE, data=value, shape=pattern, copies_zero=True)
        return self.annotate_outputs([made], find_type(value), shape)[0]

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Add a Transpose with the permutation ``order``, and return its output."""
        return self.write(TRANSPOSE, data=value, order=order)

    def squeeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add a Squeeze of one axis, whose size must be 1."""
        made = self.write(SQUEEZE, data=value, axes=[axis])
        return self.annotate_outputs([made], find_type(value), replace_sizes(value, {axis: None}))[0]

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add an Unsqueeze of one axis."""
        return self.write(UNSQUEEZE, data=value, axes=[axis])

    def split(self, data: ir.Value, axis: int, size: Dim, sizes: Sequence[int]) -> list[ir.Value]:
        """Add a split of an axis of ``size`` into parts of ``sizes``. Lengths are set only if needed."""
        schema, division = find_shortest(self.schemas, sizes, size)
        return self.split_as(schema, division, data, axis, sizes)

    def split_as(
        self, schema: OperatorSchema, division: Division, data: ir.Value, axis: int, sizes: Sequence[Dim]
    ) -> list[ir.Value]:
        """Add a split of ``data`` by ``division``, as the operator version ``schema``.

        Return its parts, annotated with ``sizes``.
        """
        attributes, inputs = make_operands(schema, axis, division, data, self.add_constant)
        made = [value for value in inputs if value is not None]
        parts = self.add_node(schema.name, made, attributes, outputs=len(sizes))
        return self.annotate_outputs(
            parts, find_type(data), *(replace_sizes(data, {axis: size}) for size in sizes)
        )


def _infer_values(
    operator: Operator, spelling: Spelling, operands: Mapping[str, Any], *, of_layer: bool
) -> AbstractTensor:
    """Infer the output of a node from operands as in :meth:`OpBuilder.write`."""
    abstract: dict[str, Any] = dict(spelling.fixed)
    for name, value in operands.items():
        if isinstance(value, ir.Value):
            abstract[name] = get_abstract_value(value) or AbstractTensor()
        elif isinstance(value, list) and value and isinstance(value[0], ir.Value):
            abstract[name] = [get_abstract_value(item) for item in value]
        elif value is not None:
            abstract[name] = value if name in spelling.attributes else _make_constant_tensor(value)
    try:
        inferred = operator.infer(Operands(abstract, of_layer=of_layer))
    except Unknown:
        return AbstractTensor()
    assert isinstance(inferred, AbstractTensor)
    return inferred


def _make_constant_tensor(numbers: Any) -> AbstractTensor:
    array = np.array(numbers, np.int64)
    return AbstractTensor(element_type_of(array.dtype), array.shape, array)


class OnnxOpBuilder(OpBuilder):
    """Builds ONNX nodes in execution order. :meth:`replace` inserts them into a graph.

    Names of nodes and values begin with ``base``.
    """

    domain = ""

    def __init__(self, opset: int, names: FreshNames, base: str) -> None:
        super().__init__(opset)
        self.nodes: list[ir.Node] = []
        self._names = names
        self._base = base

    def get_spelling(self, operator: Operator) -> Spelling:
        """Return the newest :class:`Spelling` of an operator that the opset has."""
        return next(spelling for spelling in operator.onnx if spelling.since <= self.opset)

    def add_node(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        hint: str | None = None,
    ) -> list[ir.Value]:
        """Add a node, and return its outputs, whose names contain ``hint``."""
        hint = hint or operator.lower()
        values = [ir.Value(name=self.make_name(hint)) for _ in range(outputs)]
        made = make_attributes(attributes or {})
        name = self._names.make_name(f"{self._base}/{operator}")
        self.append_node(ir.Node("", operator, inputs, made, outputs=values, name=name))
        return values

    def repeat(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        shape: Shape | None,
        changed: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """See :meth:`OpBuilder.repeat`."""
        made = self.add_node(node.op_type, inputs, {**node.attributes, **(changed or {})})
        return self.annotate_outputs(made, find_type(node.outputs[0]), shape)[0]

    def append_node(self, node: ir.Node) -> None:
        """Append an existing node."""
        self.nodes.append(node)

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Replace a node with the new nodes, and its outputs with ``outputs``. An unused output may be None.

        The new values take over names, types and metadata; see :func:`transfer_values`.
        """
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, self.nodes)
        transfer_values({old: new for old, new in zip(node.outputs, outputs, strict=True) if new is not None})
        if self.nodes:
            copy_description(self.nodes[-1], node)
        inputs = [value for value in node.inputs if value is not None]
        graph.remove(node, safe=True)
        for value in inputs:
            remove_if_unused(value)

    def make_name(self, hint: str) -> str:
        """Return a free name for a value."""
        return self._names.make_name(f"{self._base}_{hint}")

    def add_constant(self, array: npt.NDArray[Any], hint: str = "const") -> ir.Value:
        """Add a Constant node, and return its output, annotated with type and shape."""
        tensor = ir.tensor(array)
        value = self.add("Constant", [], {"value": tensor}, hint=hint)
        tensor.name = value.name  # onnx-ir does the same when it reads a model
        annotate(value, AbstractTensor(element_type_of(array.dtype), array.shape))
        return value

    def add_reference(self, name: str, kind: ir.AttributeType, source: str, hint: str) -> ir.Value:
        """Add a Constant node whose attribute ``name`` refers to the attribute ``source`` of the function."""
        return self.add("Constant", [], {name: ir.RefAttr(name, source, kind)}, hint=hint)

    def cast(self, value: ir.Value, element_type: ElementType, hint: str = "cast") -> ir.Value:
        """Add a Cast, and return its output, annotated with the new type."""
        # The attribute was a string before opset 6.
        to: Any = element_type.onnx_number if self.opset >= 6 else element_type.onnx
        made = self.add("Cast", [value], {"to": to}, hint=hint)
        annotate(made, AbstractTensor(element_type, find_shape(value)))
        return made

    def add_size(self, data: ir.Value, axis: ir.Value) -> ir.Value:
        """Add nodes that compute the size of ``axis``. The axis and the size are values of shape [1]."""
        shape = self.add("Shape", [data])
        return self.add("Gather", [shape, axis], {"axis": 0}, hint="size")

    def slice_axis(self, data: ir.Value, axis: int, begin: int | ir.Value, end: int | ir.Value) -> ir.Value:
        """Add a Slice of one axis. Bounds are integers or, since opset 10, values of shape [1]."""
        if self.opset < 10:
            return self.add("Slice", [data], {"axes": [axis], "starts": [begin], "ends": [end]}, hint="part")
        bounds = [self.add_ints([bound]) if isinstance(bound, int) else bound for bound in (begin, end)]
        return self.add("Slice", [data, *bounds, self.add_ints([axis])], hint="part")

    def add_ints(self, values: Sequence[int], /) -> ir.Value:
        """Add a 1-D int64 constant."""
        return self.add_constant(np.array(values, np.int64), "ints")
