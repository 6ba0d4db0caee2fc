"""Writes splits: in every way, in both formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.graph.arithmetic import lengths_of_size, resolved_lengths, uniform_bounds
from splitops.models.graph.onnx import (
    attributes_of,
    is_read,
    note,
    remove_if_unused,
    set_inputs,
    shape_of,
    type_of,
    value_fact,
)
from splitops.models.graph.openvino_editor import OpenVINOPen
from splitops.models.graph.pen import OnnxPen, Pen, shape_like
from splitops.models.known import Tensor
from splitops.models.sites import Site
from splitops.models.sites.operands import written
from splitops.models.sites.ways import Kind, Way
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.dims import UNKNOWN
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding.lengths import INT64_MAX

_MAX_POSITIONS: Final = 1 << 12
"""Longer parts are gathered at positions that the graph computes."""


def write(node: ir.Node, site: Site, way: Way, pen: Pen) -> list[ir.Value | None]:
    """Write a split node in one way in its place, and return the new value of each output that is used.

    A node of ONNX may be written as a node of domain ``openvino``, as OpenVINO has it.
    """
    if way.kind is Kind.TREE:
        return _write_tree(node, way, pen)
    if isinstance(pen, OpenVINOPen):
        return _write_layers(node, way, pen)
    assert isinstance(pen, OnnxPen)
    writer = _OnnxWriter(node, site, way, pen)
    match way.kind:
        case Kind.NODE if way.is_kept:
            _trim(node)
            return list(node.outputs)
        case Kind.NODE:
            count = len(node.outputs)
            return writer.in_place()[:count]
        case Kind.CASTS:
            return writer.casts()
        case Kind.SEQUENCE:
            return writer.sequence()
        case _:
            return writer.slices()


def _write_tree(node: ir.Node, way: Way, pen: Pen) -> list[ir.Value | None]:
    """Write a tree of Splits, each with at most ``way.outputs`` outputs."""
    data, axis, lengths = node.inputs[0], way.axis, way.lengths
    assert data is not None
    assert axis is not None
    assert lengths is not None

    def split(whole: ir.Value, sizes: Sequence[int]) -> list[ir.Value]:
        if len(sizes) == 1:
            return [whole]
        groups = group_lengths(sizes, way.outputs)
        inner = pen.split(whole, axis, sum(sizes), [sum(group) for group in groups])
        pairs = zip(inner, groups, strict=True)
        return [part for value, group in pairs for part in split(value, group)]

    parts: list[ir.Value | None] = [*split(data, lengths.lengths)]
    pen.replace(node, parts)
    return parts


def group_lengths(lengths: Sequence[int], count: int) -> list[Sequence[int]]:
    """Divide lengths into at most ``count`` groups, of the same number of lengths if that is possible.

    Examples:
        >>> group_lengths([2, 2, 2, 2, 2, 2], 4), group_lengths([1, 2, 3, 4, 5], 4)
        ([[2, 2], [2, 2], [2, 2]], [[1, 2], [3, 4], [5]])
    """
    total = len(lengths)
    even = (total // groups for groups in range(count, 1, -1) if total % groups == 0)
    each = 1 if total <= count else next(even, -(-total // count))
    return [lengths[at : at + each] for at in range(0, total, each)]


def _write_layers(node: ir.Node, way: Way, pen: OpenVINOPen) -> list[ir.Value | None]:
    """Write layers of OpenVINO."""
    data, axis, lengths, outputs = node.inputs[0], way.axis, way.lengths, node.outputs
    assert data is not None
    assert axis is not None
    parts: list[ir.Value | None]
    if way.schema is None or lengths is None:
        parts = []
        for output, (begin, end) in zip(outputs, way.bounds, strict=True):
            if not is_read(output):
                parts.append(None)
            elif way.kind is Kind.SLICES:
                parts.append(pen.slice(data, {axis: slice(begin, end, 1)}))
            else:
                parts.append(pen.gather(data, range(begin or 0, end or 0), axis))
    elif way.is_computed:
        even = lengths.rule is SizeRule.EVEN
        shapes = [shape_of(output) if even else shape_like(data, {axis: UNKNOWN}) for output in outputs]
        parts = [*pen.computed_split(way.schema, lengths, node, axis, shapes)]
    else:
        sizes = lengths.lengths or [UNKNOWN] * len(outputs)
        parts = [*pen.split_as(way.schema, lengths, data, axis, sizes)]
    pen.replace(node, parts)
    return parts


def _trim(node: ir.Node) -> None:
    """Drop absent inputs at the end, which older versions do not declare."""
    count = len(node.inputs)
    while count and (node.inputs[count - 1] is None):
        count -= 1
    node.resize_inputs(count)


class _OnnxWriter:
    def __init__(self, node: ir.Node, site: Site, way: Way, pen: OnnxPen) -> None:
        self.node = node
        self.site = site
        self.way = way
        data = node.inputs[0]
        assert data is not None
        self.data = data
        self.pen = pen

    def in_place(self) -> list[ir.Value | None]:
        """Change the node itself: its name, outputs and metadata stay."""
        node, way = self.node, self.way
        row = way.schema
        assert row is not None
        attributes, inputs = self._operands(row)
        before = [value for value in node.inputs[1:] if value is not None]
        # A node of the other dialect becomes one of the row's.
        node.op_type, node.domain = row.name, row.domain
        node.version = row.since_version if row.domain else None
        node.attributes.clear()
        for attribute in attributes_of(attributes):
            node.attributes[attribute.name] = attribute
        assert node.graph is not None
        node.graph.insert_before(node, [made for made in self.pen.nodes if made.graph is None])
        set_inputs(node, inputs)
        # A node with fewer outputs than parts gets outputs that nobody reads.
        missing = way.outputs - len(node.outputs)
        if missing > 0 and not row.gives_sequence:
            node.resize_outputs(way.outputs)
            for value in node.outputs[-missing:]:
                value.name = self.pen.name("unused")
        for value in before:
            remove_if_unused(value)
        return list(node.outputs)

    def _operands(self, row: OperatorSchema) -> tuple[dict[str, Any], list[ir.Value | None]]:
        """Return attributes and inputs of the one node, and let the pen write what makes them."""
        way, site = self.way, self.site
        computed = way.is_computed or way.lengths is None
        lengths = None if computed else way.lengths
        attributes, inputs = written(
            row, way.axis or 0, lengths, self.data, self.pen.constant, squeeze=way.squeeze
        )
        reference = site.references.get(site.schema.axis.name)
        if reference is not None:
            axis = row.axis.name
            attributes[axis] = ir.RefAttr(axis, reference, ir.AttributeType.INT)
        if computed:
            source = next(source for source in row.lengths if source.given is Given.INPUT)
            index = row.input_index(source.name)
            inputs.extend([None] * (index + 1 - len(inputs)))
            inputs[index] = self._lengths()
        return attributes, inputs

    def _lengths(self) -> ir.Value:
        """Return the lengths as the row takes them, known when the model runs."""
        way, pen = self.way, self.pen
        if way.lengths is not None:
            return lengths_of_size(way.lengths, pen.size(self.data, self._axis()), pen)
        lengths = self._given_lengths()
        kind = way.lengths_type
        given = value_fact(lengths, read=False).type
        is_unknown = given is None and not way.is_computed
        if kind is not None and given is not kind and not is_unknown:
            lengths = pen.cast(lengths, kind, "lengths")
        if self.site.schema.lengths_rule is SizeRule.REMAINDER and way.is_computed:
            lengths = resolved_lengths(lengths, pen.size(self.data, self._axis()), pen)
        return lengths

    def _axis(self) -> ir.Value:
        """Return the axis, of shape [1], as a value: one may be what the caller of a function gives."""
        pen, axis = self.pen, self.way.axis
        if axis is not None:
            return pen.integers([axis])
        reference = self.site.references[self.site.schema.axis.name]
        given = pen.reference("value_int", ir.AttributeType.INT, reference, "axis")
        return pen.op("Reshape", [given, pen.integers([1])], hint="axis")

    def _given_lengths(self) -> ir.Value:
        """Return the value that holds the lengths, one of the pen where a function's caller gives them."""
        site, pen = self.site, self.pen
        for source in site.schema.lengths:
            if source.given is Given.INPUT:
                value = self.node.inputs[site.schema.input_index(source.name)]
                assert value is not None
                return value
            if source.name in site.references:
                kind, reference = ir.AttributeType.INTS, site.references[source.name]
                made = pen.reference("value_ints", kind, reference, "lengths")
                note(made, Tensor(ELEMENT_TYPES["int64"]))
                return made
        raise NotImplementedError("a split without lengths")

    def slices(self) -> list[ir.Value | None]:
        """Write a Slice or a Gather for each part that is used, with bounds as they are set or computed."""
        pen, way, outputs = self.pen, self.way, self.node.outputs
        assert way.axis is not None
        bounds: Sequence[tuple[int | ir.Value, int | ir.Value]]
        if way.bounds:
            marks = [[INT64_MAX if mark is None else mark for mark in span] for span in way.bounds]
            bounds = [(begin, end) for begin, end in marks]
        elif way.lengths is not None:
            size = pen.size(self.data, self._axis())
            bounds = uniform_bounds(way.lengths.count, len(outputs), size, pen)
        else:
            bounds = self._running_bounds(len(outputs))
        take = self._gather if way.kind is Kind.GATHERS else pen.part
        parts: list[ir.Value | None] = [
            take(self.data, way.axis, begin, end) if output.name else None
            for output, (begin, end) in zip(outputs, bounds, strict=True)
        ]
        pen.replace(self.node, parts)
        return parts

    def _gather(self, data: ir.Value, axis: int, begin: int | ir.Value, end: int | ir.Value) -> ir.Value:
        """Write a Gather of the positions between bounds."""
        pen = self.pen
        # OpenVINO reads a constant without entries as one position.
        if isinstance(begin, int) and isinstance(end, int) and 0 < end - begin <= _MAX_POSITIONS:
            positions = pen.integers(range(begin, end))
        else:
            begin, end = (pen.integers([mark]) if isinstance(mark, int) else mark for mark in (begin, end))
            if not self.way.bounds:
                end = pen.op("Min", [end, pen.size(data, pen.integers([axis]))])  # it may be past the end
            first, last = (pen.op("Squeeze", [bound]) for bound in (begin, end))
            positions = pen.op("Range", [first, last, pen.constant(np.array(1, np.int64))], hint="positions")
        return pen.op("Gather", [data, positions], {"axis": axis}, hint="part")

    def sequence(self) -> list[ir.Value | None]:
        """Write a Split, and a SequenceConstruct of its parts."""
        pen, way = self.pen, self.way
        kind, lengths, axis = type_of(self.data), way.lengths, way.axis
        assert kind is not None
        assert lengths is not None
        assert axis is not None
        if not lengths.lengths:
            made = pen.op("SequenceEmpty", [], {"dtype": kind.onnx_number})
        else:
            shape = shape_of(self.data)
            parts = pen.split(self.data, axis, UNKNOWN if shape is None else shape[axis], lengths.lengths)
            parts = [pen.squeeze(part, axis) if way.squeeze else part for part in parts]
            made = pen.op("SequenceConstruct", parts)
        pen.replace(self.node, [made])
        return [made]

    def _running_bounds(self, count: int) -> list[tuple[ir.Value, ir.Value]]:
        pen = self.pen
        lengths = self._given_lengths()
        if value_fact(lengths, read=False).type is not ELEMENT_TYPES["int64"]:
            lengths = pen.cast(lengths, ELEMENT_TYPES["int64"], "lengths")
        bounds: list[tuple[ir.Value, ir.Value]] = []
        begin = pen.integers([0])
        for index in range(count):
            length = pen.op("Gather", [lengths, pen.integers([index])], {"axis": 0}, hint="length")
            end = pen.op("Add", [begin, length])
            bounds.append((begin, end))
            begin = end
        return bounds

    def casts(self) -> list[ir.Value | None]:
        """Write the split on an element type that holds every value exactly."""
        pen, way = self.pen, self.way
        row, cast_type = way.schema, way.cast_type
        own = value_fact(self.data, read=False).type
        assert row is not None
        assert cast_type is not None
        assert own is not None
        carried = pen.cast(self.data, cast_type)
        attributes, inputs = self._operands(row)
        inputs[0] = carried
        split = pen.multi(row.name, inputs, attributes, outputs=way.outputs, hint="carried")
        parts: list[ir.Value | None] = [
            pen.cast(part, own, "part") if output.name else None
            for output, part in zip(self.node.outputs, split, strict=False)
        ]
        pen.replace(self.node, parts)
        return parts
