"""Replace split nodes with an equivalent form, given as a :class:`Way`, in both formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.common.integers import INT64_MAX
from splitops.models.abstract_values import AbstractTensor
from splitops.models.graph.arithmetic import compute_lengths, compute_uniform_bounds, resolve_lengths
from splitops.models.graph.onnx import (
    annotate,
    find_shape,
    find_type,
    has_consumers,
    make_attributes,
    make_fact,
    remove_if_unused,
    set_inputs,
)
from splitops.models.graph.op_builder import OnnxOpBuilder, OpBuilder, replace_sizes
from splitops.models.graph.openvino_editor import OpenVINOOpBuilder
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.operands import make_operands
from splitops.models.split_nodes.ways import Kind, Way
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.dims import UNKNOWN
from splitops.spec.sizes.rules import SizeRule

_MAX_POSITIONS: Final = 1 << 12
"""Maximum length of a part that is gathered at constant positions."""


def write_split(node: ir.Node, split_node: SplitNode, way: Way, builder: OpBuilder) -> list[ir.Value | None]:
    """Rewrite a split node in a given way, and return its new outputs. An unused one may be None.

    If the schema of ``way`` has the domain ``openvino``, a node of an ONNX model becomes one of OpenVINO.
    """
    if way.kind is Kind.TREE:
        return _write_tree(node, way, builder)
    if isinstance(builder, OpenVINOOpBuilder):
        return _write_layers(node, way, builder)
    assert isinstance(builder, OnnxOpBuilder)
    writer = _OnnxWriter(node, split_node, way, builder)
    match way.kind:
        case Kind.NODE if way.is_kept:
            _trim(node)
            return list(node.outputs)
        case Kind.NODE:
            count = len(node.outputs)
            return writer.rewrite_in_place()[:count]
        case Kind.CASTS:
            return writer.write_casts()
        case Kind.SEQUENCE:
            return writer.write_sequence()
        case _:
            return writer.write_slices()


def _write_tree(node: ir.Node, way: Way, builder: OpBuilder) -> list[ir.Value | None]:
    """Replace a split with a tree of Splits, each with at most ``way.outputs`` outputs. Return its parts."""
    data, axis, lengths = node.inputs[0], way.axis, way.lengths
    assert data is not None
    assert axis is not None
    assert lengths is not None

    def split(whole: ir.Value, sizes: Sequence[int]) -> list[ir.Value]:
        if len(sizes) == 1:
            return [whole]
        groups = group_lengths(sizes, way.outputs)
        inner = builder.split(whole, axis, sum(sizes), [sum(group) for group in groups])
        pairs = zip(inner, groups, strict=True)
        return [part for value, group in pairs for part in split(value, group)]

    parts: list[ir.Value | None] = [*split(data, lengths.lengths)]
    builder.replace(node, parts)
    return parts


def group_lengths(lengths: Sequence[int], count: int) -> list[Sequence[int]]:
    """Divide lengths into at most ``count`` groups, with equal numbers of lengths if possible.

    Examples:
        >>> group_lengths([2, 2, 2, 2, 2, 2], 4), group_lengths([1, 2, 3, 4, 5], 4)
        ([[2, 2], [2, 2], [2, 2]], [[1, 2], [3, 4], [5]])
    """
    total = len(lengths)
    even = (total // groups for groups in range(count, 1, -1) if total % groups == 0)
    each = 1 if total <= count else next(even, -(-total // count))
    return [lengths[at : at + each] for at in range(0, total, each)]


def _write_layers(node: ir.Node, way: Way, builder: OpenVINOOpBuilder) -> list[ir.Value | None]:
    data, axis, lengths, outputs = node.inputs[0], way.axis, way.lengths, node.outputs
    assert data is not None
    assert axis is not None
    parts: list[ir.Value | None]
    if way.schema is None or lengths is None:
        parts = []
        for output, (begin, end) in zip(outputs, way.bounds, strict=True):
            if not has_consumers(output):
                parts.append(None)
            elif way.kind is Kind.SLICES:
                parts.append(builder.slice(data, {axis: slice(begin, end, 1)}))
            else:
                parts.append(builder.gather(data, range(begin or 0, end or 0), axis))
    elif way.is_computed:
        even = lengths.rule is SizeRule.EVEN
        shapes = [find_shape(output) if even else replace_sizes(data, {axis: UNKNOWN}) for output in outputs]
        parts = [*builder.add_computed_split(way.schema, lengths, node, axis, shapes)]
    else:
        sizes = lengths.lengths or [UNKNOWN] * len(outputs)
        parts = [*builder.split_as(way.schema, lengths, data, axis, sizes)]
    builder.replace(node, parts)
    return parts


def _trim(node: ir.Node) -> None:
    """Remove trailing absent inputs, which older versions do not declare."""
    count = len(node.inputs)
    while count and (node.inputs[count - 1] is None):
        count -= 1
    node.resize_inputs(count)


class _OnnxWriter:
    def __init__(self, node: ir.Node, split_node: SplitNode, way: Way, builder: OnnxOpBuilder) -> None:
        self.node = node
        self.split_node = split_node
        self.way = way
        data = node.inputs[0]
        assert data is not None
        self.data = data
        self.builder = builder

    def rewrite_in_place(self) -> list[ir.Value | None]:
        """Change the node itself, which keeps its name, outputs and metadata, and return its outputs."""
        node, way = self.node, self.way
        schema = way.schema
        assert schema is not None
        attributes, inputs = self._make_operands(schema)
        before = [value for value in node.inputs[1:] if value is not None]
        # A node of the other dialect becomes a node of the schema's dialect.
        node.op_type, node.domain = schema.name, schema.domain
        node.version = schema.since_version if schema.domain else None
        node.attributes.clear()
        for attribute in make_attributes(attributes):
            node.attributes[attribute.name] = attribute
        assert node.graph is not None
        node.graph.insert_before(node, [made for made in self.builder.nodes if made.graph is None])
        set_inputs(node, inputs)
        # A node with fewer outputs than parts gets unused outputs.
        missing = way.outputs - len(node.outputs)
        if missing > 0 and not schema.gives_sequence:
            node.resize_outputs(way.outputs)
            for value in node.outputs[-missing:]:
                value.name = self.builder.make_name("unused")
        for value in before:
            remove_if_unused(value)
        return list(node.outputs)

    def _make_operands(self, schema: OperatorSchema) -> tuple[dict[str, Any], list[ir.Value | None]]:
        """Return the attributes and inputs of the new split node, and add the producers of these inputs."""
        way, split_node = self.way, self.split_node
        computed = way.is_computed or way.lengths is None
        lengths = None if computed else way.lengths
        attributes, inputs = make_operands(
            schema, way.axis or 0, lengths, self.data, self.builder.add_constant, squeeze=way.squeeze
        )
        reference = split_node.references.get(split_node.schema.axis.name)
        if reference is not None:
            axis = schema.axis.name
            attributes[axis] = ir.RefAttr(axis, reference, ir.AttributeType.INT)
        if computed:
            source = next(source for source in schema.lengths if source.kind is SourceKind.INPUT)
            index = schema.input_index(source.name)
            inputs.extend([None] * (index + 1 - len(inputs)))
            inputs[index] = self._make_lengths()
        return attributes, inputs

    def _make_lengths(self) -> ir.Value:
        """Return lengths that are known only at run time, in the type that the schema requires."""
        way, builder = self.way, self.builder
        if way.lengths is not None:
            return compute_lengths(way.lengths, builder.add_size(self.data, self._make_axis()), builder)
        lengths = self._get_lengths()
        kind = way.lengths_type
        given = make_fact(lengths, read=False).type
        is_unknown = given is None and not way.is_computed
        if kind is not None and given is not kind and not is_unknown:
            lengths = builder.cast(lengths, kind, "lengths")
        if self.split_node.schema.lengths_rule is SizeRule.REMAINDER and way.is_computed:
            lengths = resolve_lengths(lengths, builder.add_size(self.data, self._make_axis()), builder)
        return lengths

    def _make_axis(self) -> ir.Value:
        """Return the axis as a value of shape [1], from a constant or from the attribute of the function."""
        builder, axis = self.builder, self.way.axis
        if axis is not None:
            return builder.add_ints([axis])
        reference = self.split_node.references[self.split_node.schema.axis.name]
        given = builder.add_reference("value_int", ir.AttributeType.INT, reference, "axis")
        return builder.add("Reshape", [given, builder.add_ints([1])], hint="axis")

    def _get_lengths(self) -> ir.Value:
        """Return the input with the lengths, or a new value if they are an attribute of the function."""
        split_node, builder = self.split_node, self.builder
        for source in split_node.schema.lengths:
            if source.kind is SourceKind.INPUT:
                value = self.node.inputs[split_node.schema.input_index(source.name)]
                assert value is not None
                return value
            if source.name in split_node.references:
                kind, reference = ir.AttributeType.INTS, split_node.references[source.name]
                made = builder.add_reference("value_ints", kind, reference, "lengths")
                annotate(made, AbstractTensor(ELEMENT_TYPES["int64"]))
                return made
        raise NotImplementedError("a split without lengths")

    def write_slices(self) -> list[ir.Value | None]:
        """Write a Slice or a Gather for each used part. The bounds are constant or computed."""
        builder, way, outputs = self.builder, self.way, self.node.outputs
        assert way.axis is not None
        bounds: Sequence[tuple[int | ir.Value, int | ir.Value]]
        if way.bounds:
            marks = [[INT64_MAX if mark is None else mark for mark in span] for span in way.bounds]
            bounds = [(begin, end) for begin, end in marks]
        elif way.lengths is not None:
            size = builder.add_size(self.data, self._make_axis())
            bounds = compute_uniform_bounds(way.lengths.count, len(outputs), size, builder)
        else:
            bounds = self._compute_bounds(len(outputs))
        take = self._gather if way.kind is Kind.GATHERS else builder.slice_axis
        parts: list[ir.Value | None] = [
            take(self.data, way.axis, begin, end) if output.name else None
            for output, (begin, end) in zip(outputs, bounds, strict=True)
        ]
        builder.replace(self.node, parts)
        return parts

    def _gather(self, data: ir.Value, axis: int, begin: int | ir.Value, end: int | ir.Value) -> ir.Value:
        """Write a Gather of the positions from ``begin`` to ``end``."""
        builder = self.builder
        # OpenVINO interprets an empty constant as one position.
        if isinstance(begin, int) and isinstance(end, int) and 0 < end - begin <= _MAX_POSITIONS:
            positions = builder.add_ints(range(begin, end))
        else:
            begin, end = (
                builder.add_ints([mark]) if isinstance(mark, int) else mark for mark in (begin, end)
            )
            if not self.way.bounds:
                end = builder.add(
                    "Min", [end, builder.add_size(data, builder.add_ints([axis]))]
                )  # it may be past the end
            first, last = (builder.add("Squeeze", [bound]) for bound in (begin, end))
            positions = builder.add(
                "Range", [first, last, builder.add_constant(np.array(1, np.int64))], hint="positions"
            )
        return builder.add("Gather", [data, positions], {"axis": axis}, hint="part")

    def write_sequence(self) -> list[ir.Value | None]:
        """Write a Split and a SequenceConstruct of its parts, or a SequenceEmpty if there are none."""
        builder, way = self.builder, self.way
        kind, lengths, axis = find_type(self.data), way.lengths, way.axis
        assert kind is not None
        assert lengths is not None
        assert axis is not None
        if not lengths.lengths:
            sequence = builder.add("SequenceEmpty", [], {"dtype": kind.onnx_number})
        else:
            shape = find_shape(self.data)
            parts = builder.split(self.data, axis, UNKNOWN if shape is None else shape[axis], lengths.lengths)
            parts = [builder.squeeze(part, axis) if way.squeeze else part for part in parts]
            sequence = builder.add("SequenceConstruct", parts)
        builder.replace(self.node, [sequence])
        return [sequence]

    def _compute_bounds(self, count: int) -> list[tuple[ir.Value, ir.Value]]:
        builder = self.builder
        lengths = self._get_lengths()
        if make_fact(lengths, read=False).type is not ELEMENT_TYPES["int64"]:
            lengths = builder.cast(lengths, ELEMENT_TYPES["int64"], "lengths")
        bounds: list[tuple[ir.Value, ir.Value]] = []
        begin = builder.add_ints([0])
        for index in range(count):
            length = builder.add("Gather", [lengths, builder.add_ints([index])], {"axis": 0}, hint="length")
            end = builder.add("Add", [begin, length])
            bounds.append((begin, end))
            begin = end
        return bounds

    def write_casts(self) -> list[ir.Value | None]:
        """Write the split with Casts to and from a type that represents every value exactly."""
        builder, way = self.builder, self.way
        schema, cast_type = way.schema, way.cast_type
        element_type = make_fact(self.data, read=False).type
        assert schema is not None
        assert cast_type is not None
        assert element_type is not None
        carried = builder.cast(self.data, cast_type)
        attributes, inputs = self._make_operands(schema)
        inputs[0] = carried
        split = builder.add_node(schema.name, inputs, attributes, outputs=way.outputs, hint="carried")
        parts: list[ir.Value | None] = [
            builder.cast(part, element_type, "part") if output.name else None
            for output, part in zip(self.node.outputs, split, strict=False)
        ]
        builder.replace(self.node, parts)
        return parts
