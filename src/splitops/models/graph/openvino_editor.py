"""Edit OpenVINO models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.common.integers import INT32_MAX
from splitops.errors import NOWHERE, SplitError, Where
from splitops.models.abstract_values import AbstractTensor
from splitops.models.formats.openvino.builder import make_const, make_layer, make_port
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Layer, Port
from splitops.models.formats.openvino.nodes import DOMAIN, LayerNode, get_layer, get_port, set_layer
from splitops.models.formats.openvino.splits import parse_operation_set
from splitops.models.formats.walk import AnyGraph, iter_all_graphs
from splitops.models.graph.editor import Editor, GraphScope, Role, get_roles
from splitops.models.graph.onnx import annotate, find_type
from splitops.models.graph.op_builder import OpBuilder
from splitops.models.graph.split_nodes import read_split_node
from splitops.models.ops import BY_LAYER, BY_NODE, find_layer_spelling
from splitops.models.ops.conversion import find_converter
from splitops.models.ops.copying import EXPAND
from splitops.models.ops.gather import GATHER
from splitops.models.ops.operator import Operator, Spelling
from splitops.models.ops.shape import SHAPE
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.static_facts import find_byte_ranges, split_array
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators import OperatorSchema
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Shape
from splitops.spec.sizes.rules import SizeRule

_ROLES: Final = get_roles(DOMAIN)
_INT64: Final = ELEMENT_TYPES["int64"]
_WITH_SLICE: Final = 11
"""The first IR version with Slice; readers of older versions may lack it."""


class OpenVINOEditor(Editor):
    """Edits an OpenVINO model as a graph of :mod:`~splitops.models.formats.openvino.nodes`."""

    domain = DOMAIN

    def __init__(self, model: ir.Model, where: Where = NOWHERE) -> None:
        self._next: dict[AnyGraph | None, int] = {}
        super().__init__(model, where)

    def _iter_graphs(self) -> Iterator[tuple[GraphScope, AnyGraph]]:
        graphs = list(iter_all_graphs(self.model))
        # A runtime that reads the model supports the newest operation set of its layers and all older ones.
        sets = (parse_operation_set(get_layer(node).version) or 1 for _, graph in graphs for node in graph)
        opset = max(sets, default=1)
        for path, graph in graphs:
            self._next[graph] = max((get_layer(node).id for node in graph), default=-1) + 1
            yield GraphScope(path, opset), graph

    def find_role(self, node: ir.Node) -> Role | None:
        """Return the role of a layer in rewrites, or None if it has none or is not supported."""
        role = _ROLES.get(node.op_type)
        return role if role in (Role.SPLIT, Role.SUM) or find_converter(get_layer(node)) else None

    def read_split_node(self, node: ir.Node) -> SplitNode:
        """Read a split node with its abstract inputs."""
        return read_split_node(node, 0, self.locate(node))

    def read_attribute(self, node: ir.Node, name: str) -> Any:
        """Return an attribute of a layer as an integer, integers, a bool or text, or None if it is absent."""
        text = get_layer(node).get_attribute(name)
        words = [word.strip() for word in (text or "").split(",")]
        if not all(
            word.removeprefix("-").isdecimal() and word.isascii() and len(word) < 20 for word in words
        ):
            return {"true": True, "false": False}.get(words[0].lower(), text)
        return int(words[0]) if len(words) == 1 else [int(word) for word in words]

    def find_spelling(self, node: ir.Node) -> tuple[Spelling, Mapping[str, Any]] | None:
        """Return the :class:`Spelling` and the attributes of a layer, or None if its operator is unknown."""
        layer = get_layer(node)
        found = find_layer_spelling(layer.type, layer.version)
        return None if found is None else (found[1], layer.data or {})

    def is_live(self, node: ir.Node) -> bool:
        """Return whether a layer must stay: an output is used, or it is not a Const."""
        return node.op_type != "Const" or any(value.uses() for value in node.outputs)

    def has_fixed_name(self, value: ir.Value) -> bool:
        """Return whether a Result of the model or a body reads a value, whose names must therefore stay."""
        return any(use.node.op_type == "Result" for use in value.uses())

    def has_fixed_outputs(self, node: ir.Node) -> bool:
        """Return whether a layer's ports determine names of model outputs: they may before IR version 11."""
        return (self.model.ir_version or 0) < _WITH_SLICE and any(map(self.has_fixed_name, node.outputs))

    def has_type(self, element_type: ElementType) -> bool:
        """Return whether a Const can have the element type. Strings are not supported."""
        return element_type.openvino is not None and element_type.bits > 0

    def read_constant(self, value: ir.Value, limit: int) -> tuple[npt.NDArray[Any], ElementType] | None:
        """Return the array and the element type of a Const.

        Return None for other layers, or if the Const has more than ``8 * limit`` bytes or cannot be read.
        """
        producer = value.producer()
        constant = None if producer is None else get_layer(producer).constant
        if constant is None or producer is None or constant.size > limit * 8:
            return None
        try:
            return constant.read_array(self.locate(producer)), constant.element_type
        except SplitError:
            return None

    def split_constant(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value] | None:
        """Split a Const with a single consumer. Contiguous parts share its bytes.

        Return None for other values, or if the Const cannot be read.
        """
        producer = value.producer()
        constant = None if producer is None else get_layer(producer).constant
        if constant is None or producer is None or len(value.uses()) != 1:
            return None
        kind, shape = constant.element_type, constant.shape
        found = find_byte_ranges(shape, axis, sizes, kind)
        if found is not None:
            weights, start = constant.weights, constant.offset
            parts = [Constant(kind, part, weights, start + offset, size) for part, offset, size in found]
        else:
            try:
                array = constant.read_array(self.locate(producer))
            except SplitError:
                return None
            parts = [Constant.from_array(piece, kind) for piece in split_array(array, axis, sizes)]
        layer = get_layer(producer)
        return [
            self._make_const(part, f"{layer.name}.{index}", producer.graph).outputs[0]
            for index, part in enumerate(parts)
        ]

    def insert_part(self, part: ir.Value, whole: ir.Value, before: ir.Node) -> None:
        """Insert the Const that produces ``part`` before a layer."""
        producer = part.producer()
        assert producer is not None
        self.insert(before, producer)

    # Edits

    def make_builder(self, before: ir.Node) -> OpenVINOOpBuilder:
        """Return a builder that inserts layers before ``before``."""
        return OpenVINOOpBuilder(self, before)

    def can_slice(self, data: ir.Value) -> bool:
        """Return whether the IR version has Slice and each element of ``data`` takes at least one byte."""
        kind = find_type(data)
        return kind is not None and kind.bits >= 8 and (self.model.ir_version or 0) >= _WITH_SLICE

    def fold(
        self, array: npt.NDArray[Any], element_type: ElementType, old: ir.Value, before: ir.Node
    ) -> ir.Value:
        """Return a constant to replace ``old``, with its tensor names. Its layer is named like ``before``."""
        index = old.index()
        name = before.name if len(before.outputs) == 1 else f"{before.name}.{index}"
        return self.add_constant(array, element_type, name or "", before, get_port(old).names)

    def transfer_values(self, values: Mapping[ir.Value, ir.Value]) -> None:
        """Replace values with new ones. The layers of the new values take over the ports of the old ones."""
        super().transfer_values(values)
        replaced: dict[ir.Node | None, dict[int, Port]] = {}
        for old, new in values.items():
            replaced.setdefault(new.producer(), {})[get_port(new).id] = get_port(old)
        for node, ports in replaced.items():
            assert node is not None
            layer = get_layer(node)
            outputs = tuple(replace(ports.get(port.id, port), id=port.id) for port in layer.outputs)
            set_layer(node, replace(layer, outputs=outputs))

    def name_like(self, made: ir.Node, node: ir.Node) -> None:
        """Name a layer like the layer that it replaces, and copy its runtime information."""
        old = get_layer(node)
        set_layer(made, replace(get_layer(made), name=old.name, children=old.children))
        super().name_like(made, node)

    def make_id(self, graph: AnyGraph | None) -> int:
        """Return a free id for a layer of a graph."""
        self._next[graph] += 1
        return self._next[graph] - 1

    def _make_const(
        self, constant: Constant, name: str, graph: AnyGraph | None, names: tuple[str, ...] = ()
    ) -> ir.Node:
        node = LayerNode(make_const(self.make_id(graph), name, constant, names), [], [name])
        annotate(node.outputs[0], AbstractTensor(constant.element_type, constant.shape))
        return node

    def add_constant(
        self,
        array: npt.NDArray[Any],
        element_type: ElementType,
        name: str,
        before: ir.Node,
        names: tuple[str, ...] = (),
    ) -> ir.Value:
        """Insert a Const with the layer name ``name`` and tensor names ``names`` before another layer."""
        node = self._make_const(Constant.from_array(array, element_type), name, before.graph, names)
        value = self.insert(before, node)[0]
        if array.ndim <= 1 and element_type.integer:
            annotate(value, AbstractTensor(element_type, array.shape, array))
        return value


class OpenVINOOpBuilder(OpBuilder):
    """Inserts layers before a layer of an edited model."""

    domain = DOMAIN

    def __init__(self, editor: OpenVINOEditor, before: ir.Node) -> None:
        super().__init__(editor.get_opset(before))
        self._editor = editor
        self._before = before

    def get_spelling(self, operator: Operator) -> Spelling:
        """Return the newest :class:`Spelling` of an operator, which all readers are assumed to support."""
        return operator.openvino[0]

    def add_node(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        hint: str | None = None,
    ) -> list[ir.Value]:
        """Add a layer, and return its outputs. Operators other than splits have their newest version."""
        read, known = [value for value in inputs if value is not None], BY_LAYER.get(operator)
        if known is None:  # a split
            since = next((schema.since_version for schema in self.schemas if schema.name == operator), 1)
            return self._add_layer(operator, f"opset{since}", read, attributes or {}, outputs)
        spelling = known.openvino[0]
        data = {**spelling.demands, **(attributes or {})}
        return self._add_layer(operator, f"opset{spelling.since}", read, data, outputs)

    def _add_layer(
        self, operator: str, version: str, inputs: list[ir.Value], data: Mapping[str, Any], outputs: int
    ) -> list[ir.Value]:
        """Add a layer whose outputs have the element type of the first input."""
        sources = [get_port(value) for value in inputs]
        name = self._editor.names.make_name(f"{self._before.name}/{operator}")
        empty = Layer(self._editor.make_id(self._before.graph), name, operator, version)
        layer = make_layer(empty, sources, [Port(0, sources[0].precision)] * outputs, data)
        node = LayerNode(layer, inputs, [f"{name}:{port.id}" for port in layer.outputs])
        for value in node.outputs:
            annotate(value, AbstractTensor(find_type(inputs[0])))
        return self._editor.insert(self._before, node)

    def annotate_outputs(
        self, outputs: list[ir.Value], kind: ElementType | None, *shapes: Shape | None
    ) -> list[ir.Value]:
        """Annotate the outputs of a layer and set its ports, and return the outputs."""
        node = outputs[0].producer()
        assert node is not None
        layer = get_layer(node)
        precision = None if kind is None else kind.precision
        pairs = zip(layer.outputs, shapes, strict=True)
        ports = [make_port(precision or port.precision, shape) for port, shape in pairs]
        set_layer(node, make_layer(layer, layer.inputs, ports, layer.data))
        return super().annotate_outputs(outputs, kind, *shapes)

    def add_constant(
        self, array: npt.NDArray[Any], hint: str = "const", element_type: ElementType = _INT64
    ) -> ir.Value:
        """Add a Const of ``element_type``."""
        return self._editor.add_constant(array, element_type, f"{self._before.name}/{hint}", self._before)

    def repeat(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        shape: Shape | None,
        changed: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """See :meth:`~splitops.models.graph.op_builder.OpBuilder.repeat`."""
        layer, read = get_layer(node), [value for value in inputs if value is not None]
        data, version = {**(layer.data or {}), **(changed or {})}, layer.version
        made = self._add_layer(layer.type, version, read, data, 1)
        return self.annotate_outputs(made, find_type(node.outputs[0]), shape)[0]

    def add_shape(self, data: ir.Value) -> ir.Value:
        """Add a ShapeOf with int64 output."""
        return self.write(SHAPE, data=data, type=_INT64)

    def fill(self, value: ir.Value, sizes: ir.Value, shape: Shape | None) -> ir.Value:
        """Add a Broadcast of ``value`` to the shape ``sizes``, and annotate it with ``shape``."""
        made = self.write(EXPAND, data=value, shape=sizes, mode="numpy")
        return self.annotate_outputs([made], find_type(value), shape)[0]

    def compute_clamped_lengths(self, data: ir.Value, axis: int, division: Division) -> ir.Value:
        """Add layers that compute the lengths of a CHUNK or REMAINDER division, clamped to at least 0."""
        before, bounds = _compute_clamps(division)
        size = self.write(GATHER, data=self.add_shape(data), indices=[axis], axis=0)
        lengths = self._add_arithmetic("Sub", size, self.add_constant(np.array(before)))
        for operator, limits in zip(("Max", "Min"), np.array(bounds).T, strict=True):
            lengths = self._add_arithmetic(operator, lengths, self.add_constant(limits, operator.lower()))
        return lengths

    def _add_arithmetic(self, operator: str, *values: ir.Value, **operands: Any) -> ir.Value:
        return self.write(BY_NODE[operator], values=list(values), broadcast="numpy", **operands)

    def add_computed_split(
        self,
        schema: OperatorSchema,
        lengths: Division,
        node: ir.Node,
        axis: int,
        shapes: Sequence[Shape | None],
    ) -> list[ir.Value]:
        """Add a split of the data of ``node``. Layers compute its lengths from the size of the axis.

        If the division ``lengths`` is invalid for this size, the lengths do not add up, and OpenVINO rejects
        them. ``shapes`` are the shapes of the parts.
        """
        data, at = node.inputs[:2]
        assert data is not None
        assert at is not None
        if lengths.rule is SizeRule.EVEN:
            at = self.add_constant(np.array(axis), "axis")
            size = self.write(GATHER, data=self.add_shape(data), indices=at, axis=0)
            parts = self.add_constant(np.array(lengths.count), "parts")
            length = self._add_arithmetic("Div", size, parts, floors=True)
            count = self.add_constant(np.array([lengths.count]), "count")
            computed = self.fill(length, count, (lengths.count,))
        else:
            computed = self.compute_clamped_lengths(data, axis, lengths)
        made = self.add_node(schema.name, [data, at, computed], outputs=len(shapes))
        return self.annotate_outputs(made, find_type(data), *shapes)

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Replace the outputs of a layer with ``outputs``, and remove the layer."""
        self._editor.substitute(node, outputs)


def _compute_clamps(lengths: Division) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the number to subtract from the axis size for each length, and the bounds of the difference."""
    if lengths.rule is SizeRule.CHUNK:
        chunk, count = lengths.chunk, lengths.count
        return [index * chunk for index in range(count)], [(0, chunk)] * count
    # For a -1, OpenVINO does not check that the rest is not negative.
    others = sum(length for length in lengths.lengths if length >= 0)
    bounds = [(0, INT32_MAX) if length < 0 else (length, length) for length in lengths.lengths]
    return [others if length < 0 else 0 for length in lengths.lengths], bounds
