"""The split nodes of ONNX graphs, written as they are rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir

from splitops.models.graph.arithmetic import lengths_of_size, resolved_lengths, uniform_bounds
from splitops.models.graph.onnx import (
    attributes_of,
    note,
    remove_if_unused,
    set_inputs,
    value_fact,
)
from splitops.models.graph.pen import OnnxPen
from splitops.models.known import Tensor
from splitops.models.sites import Site
from splitops.models.sites.forms import Method, SplitForm
from splitops.models.sites.operands import written
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

_INT64_MAX: Final = (1 << 63) - 1


def write_site(node: ir.Node, site: Site, rewritten: SplitForm, pen: OnnxPen) -> list[ir.Value | None]:
    """Put the form of a split node in its place, and return what stands for each output that is read.

    The form is a node of ONNX, or one of domain ``openvino`` as OpenVINO has it.
    """
    writer = _Writer(node, site, rewritten, pen)
    match rewritten.method:
        case Method.KEPT:
            _trim(node)
            return list(node.outputs)
        case Method.ONE_NODE | Method.COMPUTED:
            count = len(node.outputs)
            return writer.in_place()[:count]
        case Method.SLICED:
            return writer.slices()
        case Method.CAST:
            return writer.casts()


def _trim(node: ir.Node) -> None:
    """Drop absent inputs at the end, which older versions do not declare."""
    count = len(node.inputs)
    while count and (node.inputs[count - 1] is None):
        count -= 1
    node.resize_inputs(count)


class _Writer:
    def __init__(self, node: ir.Node, site: Site, rewritten: SplitForm, pen: OnnxPen) -> None:
        self.node = node
        self.site = site
        self.rewritten = rewritten
        data = node.inputs[0]
        assert data is not None
        self.data = data
        self.pen = pen

    def in_place(self) -> list[ir.Value | None]:
        """Change the node itself: its name, outputs and metadata stay."""
        node, rewritten = self.node, self.rewritten
        row = rewritten.row
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
        missing = rewritten.outputs - len(node.outputs)
        if missing > 0 and not row.gives_sequence:
            node.resize_outputs(rewritten.outputs)
            for value in node.outputs[-missing:]:
                value.name = self.pen.name("unused")
        for value in before:
            remove_if_unused(value)
        return list(node.outputs)

    def _operands(self, row: OperatorSchema) -> tuple[dict[str, Any], list[ir.Value | None]]:
        """Return attributes and inputs of the one node, and let the pen write what makes them."""
        rewritten, site = self.rewritten, self.site
        computed = rewritten.method is Method.COMPUTED or rewritten.division is None
        division = None if computed else rewritten.division
        attributes, inputs = written(
            row, rewritten.axis or 0, division, self.data, self.pen.constant, squeeze=rewritten.squeeze
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
        rewritten, pen = self.rewritten, self.pen
        if rewritten.division is not None:
            return lengths_of_size(rewritten.division, pen.size(self.data, self._axis()), pen)
        lengths = self._given_lengths()
        kind = rewritten.lengths_type
        given = value_fact(lengths, read=False).type
        is_unknown = given is None and rewritten.method is not Method.COMPUTED
        if kind is not None and given is not kind and not is_unknown:
            lengths = pen.cast(lengths, kind, "lengths")
        if self.site.schema.lengths_rule is SizeRule.REMAINDER and rewritten.method is Method.COMPUTED:
            lengths = resolved_lengths(lengths, pen.size(self.data, self._axis()), pen)
        return lengths

    def _axis(self) -> ir.Value:
        """Return the axis, of shape [1], as a value: one may be what the caller of a function gives."""
        pen, axis = self.pen, self.rewritten.axis
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
        """Write a Slice for each part that is read, with bounds as they are given or computed."""
        pen, rewritten, outputs = self.pen, self.rewritten, self.node.outputs
        assert rewritten.axis is not None
        bounds: Sequence[tuple[int | ir.Value, int | ir.Value]]
        if rewritten.bounds:
            marks = [[_INT64_MAX if mark is None else mark for mark in span] for span in rewritten.bounds]
            bounds = [(begin, end) for begin, end in marks]
        elif rewritten.division is not None:
            size = pen.size(self.data, self._axis())
            bounds = uniform_bounds(rewritten.division.count, len(outputs), size, pen)
        else:
            bounds = self._running_bounds(len(outputs))
        parts: list[ir.Value | None] = [
            pen.part(self.data, rewritten.axis, begin, end) if output.name else None
            for output, (begin, end) in zip(outputs, bounds, strict=True)
        ]
        pen.replace(self.node, parts)
        return parts

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
        pen, rewritten = self.pen, self.rewritten
        row, carrier = rewritten.row, rewritten.carrier
        own = value_fact(self.data, read=False).type
        assert row is not None
        assert carrier is not None
        assert own is not None
        carried = pen.cast(self.data, carrier)
        attributes, inputs = self._operands(row)
        inputs[0] = carried
        split = pen.multi(row.name, inputs, attributes, outputs=rewritten.outputs, hint="carried")
        parts: list[ir.Value | None] = [
            pen.cast(part, own, "part") if output.name else None
            for output, part in zip(self.node.outputs, split, strict=False)
        ]
        pen.replace(self.node, parts)
        return parts
