"""The split nodes of ONNX graphs, written as they are rewritten."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from splitops.models.graph.arithmetic import lengths_of_size, resolved_lengths, uniform_bounds
from splitops.models.graph.onnx import (
    Names,
    Tape,
    attributes_of,
    note,
    remove_if_unused,
    replace_node,
    value_fact,
)
from splitops.models.known import Tensor
from splitops.models.sites import Site
from splitops.models.sites.forms import Method, Restatement
from splitops.models.sites.statement import stated
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

_INT64_MAX: Final = (1 << 63) - 1


def write_site(
    node: ir.Node,
    site: Site,
    rewritten: Restatement,
    opset: int,
    names: Names,
    *,
    tape: Tape | None = None,
) -> list[ir.Value | None]:
    """Put the rewrite of a split node in the place of its node.

    Args:
        node: the node.
        site: what is known of it.
        rewritten: how it is to be written.
        opset: the opset of its graph.
        names: the names of the model.
        tape: makes the nodes in front of it; None is a plain one.

    Returns:
        What stands for each output of the node now; None for one that nobody reads.
    """
    if rewritten.method is Method.KEPT:
        _trim(node)
        return list(node.outputs)
    count = len(node.outputs)
    writer = _Writer(node, site, rewritten, tape or Tape(opset, names, _stem(node)))
    match rewritten.method:
        case Method.STATED | Method.COMPUTED:
            return writer.in_place()[:count]
        case Method.SLICED:
            return writer.slices()
        case Method.SLICED_COMPUTED:
            return writer.computed_slices()
        case Method.CAST:
            return writer.casts()


def _trim(node: ir.Node) -> None:
    """Drop absent inputs at the end, which older versions do not declare."""
    count = len(node.inputs)
    while count and (node.inputs[count - 1] is None):
        count -= 1
    node.resize_inputs(count)


def _stem(node: ir.Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), None) or "split"


class _Writer:
    def __init__(self, node: ir.Node, site: Site, rewritten: Restatement, tape: Tape) -> None:
        self.node = node
        self.site = site
        self.rewritten = rewritten
        data = node.inputs[0]
        assert data is not None
        self.data = data
        self.tape = tape

    def in_place(self) -> list[ir.Value | None]:
        """Change the node itself: its name, outputs and metadata stay."""
        node, rewritten = self.node, self.rewritten
        row = rewritten.row
        assert row is not None
        attributes, inputs = self._statement(row)
        before = [value for value in node.inputs[1:] if value is not None]
        # A node of the other dialect becomes one of ours.
        node.op_type, node.domain = row.name, ""
        node.attributes.clear()
        for name, attribute in attributes.items():
            node.attributes[name] = attribute
        assert node.graph is not None
        node.graph.insert_before(node, self.tape.nodes)
        node.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            node.replace_input_with(index, value)
        # A node with fewer outputs than parts gets outputs that nobody reads.
        missing = rewritten.outputs - len(node.outputs)
        if missing > 0 and not row.gives_sequence:
            node.resize_outputs(rewritten.outputs)
            for value in node.outputs[-missing:]:
                value.name = self.tape.name("unused")
        for value in before:
            remove_if_unused(value)
        return list(node.outputs)

    def _statement(self, row: OperatorSchema) -> tuple[dict[str, ir.Attr], list[ir.Value | None]]:
        """Return attributes and inputs of the one node, and put what makes them on the tape."""
        rewritten, site = self.rewritten, self.site
        computed = rewritten.method is Method.COMPUTED or rewritten.division is None
        division = None if computed else rewritten.division
        values, facts = stated(row, rewritten.axis or 0, division, squeeze=rewritten.squeeze)
        attributes = {attribute.name: attribute for attribute in attributes_of(values)}
        reference = site.references.get(site.schema.axis.name)
        if reference is not None:
            axis = row.axis.name
            attributes[axis] = ir.RefAttr(axis, reference, ir.AttributeType.INT)
        inputs: list[ir.Value | None] = [
            None if fact is None else self.tape.constant(np.array(fact.value, np.int64), "lengths")
            for fact in facts
        ]
        inputs[0] = self.data
        if computed:
            source = next(source for source in row.lengths if source.given is Given.INPUT)
            index = row.input_index(source.name)
            inputs.extend([None] * (index + 1 - len(inputs)))
            inputs[index] = self._lengths()
        return attributes, inputs

    def _lengths(self) -> ir.Value:
        """Return the lengths as the row takes them, known when the model runs."""
        rewritten, tape = self.rewritten, self.tape
        if rewritten.division is not None:
            return lengths_of_size(rewritten.division, tape.size(self.data, self._axis()), tape)
        lengths = self._given_lengths()
        kind = rewritten.lengths_type
        given = value_fact(lengths, read=False).type
        if kind is not None and given is not None and given is not kind:
            lengths = tape.cast(lengths, kind, "lengths")
        if self.site.schema.lengths_rule is SizeRule.REMAINDER and rewritten.method is Method.COMPUTED:
            lengths = resolved_lengths(lengths, tape.size(self.data, self._axis()), tape)
        return lengths

    def _axis(self) -> ir.Value:
        """Return the axis, of shape [1], as a value: one may be what the caller of a function gives."""
        tape, axis = self.tape, self.rewritten.axis
        if axis is not None:
            return tape.integers([axis])
        given = tape.op("Constant", [], hint="axis")
        reference = self.site.references[self.site.schema.axis.name]
        tape.nodes[-1].attributes["value_int"] = ir.RefAttr("value_int", reference, ir.AttributeType.INT)
        return tape.op("Reshape", [given, tape.integers([1])], hint="axis")

    def _given_lengths(self) -> ir.Value:
        lengths = given_lengths(self.node, self.site, self.tape)
        assert lengths is not None
        return lengths

    def slices(self) -> list[ir.Value | None]:
        """Write a Slice for each part that is read."""
        tape, axis = self.tape, self.rewritten.axis
        assert axis is not None
        parts: list[ir.Value | None] = []
        for output, bounds in zip(self.node.outputs, self.rewritten.bounds, strict=True):
            begin, end = (_INT64_MAX if mark is None else mark for mark in bounds)
            if not output.name:
                parts.append(None)
            elif tape.opset >= 10:
                parts.append(tape.slice(self.data, axis, tape.integers([begin]), tape.integers([end])))
            else:
                attributes = {"axes": [axis], "starts": [begin], "ends": [end]}
                parts.append(tape.op("Slice", [self.data], attributes, hint="part"))
        replace_node(self.node, tape.nodes, parts)
        return parts

    def computed_slices(self) -> list[ir.Value | None]:
        """Write a Slice for each part that is read, with bounds as tensors."""
        tape, rewritten = self.tape, self.rewritten
        axis, count = rewritten.axis, len(self.node.outputs)
        assert axis is not None
        if rewritten.division is not None:
            size = tape.size(self.data, self._axis())
            bounds = uniform_bounds(rewritten.division.count, count, size, tape)
        else:
            bounds = self._running_bounds(count)
        parts: list[ir.Value | None] = [
            tape.slice(self.data, axis, begin, end) if output.name else None
            for output, (begin, end) in zip(self.node.outputs, bounds, strict=True)
        ]
        replace_node(self.node, tape.nodes, parts)
        return parts

    def _running_bounds(self, count: int) -> list[tuple[ir.Value, ir.Value]]:
        tape = self.tape
        lengths = self._given_lengths()
        if value_fact(lengths, read=False).type is not ELEMENT_TYPES["int64"]:
            lengths = tape.cast(lengths, ELEMENT_TYPES["int64"], "lengths")
        bounds: list[tuple[ir.Value, ir.Value]] = []
        begin = tape.integers([0])
        for index in range(count):
            length = tape.op("Gather", [lengths, tape.integers([index])], {"axis": 0}, hint="length")
            end = tape.op("Add", [begin, length])
            bounds.append((begin, end))
            begin = end
        return bounds

    def casts(self) -> list[ir.Value | None]:
        """Write the split on an element type that holds every value exactly."""
        tape, rewritten = self.tape, self.rewritten
        row, carrier = rewritten.row, rewritten.carrier
        own = value_fact(self.data, read=False).type
        assert row is not None
        assert carrier is not None
        assert own is not None
        carried = tape.cast(self.data, carrier)
        attributes, inputs = self._statement(row)
        inputs[0] = carried
        split = tape.multi(row.name, inputs, {}, outputs=rewritten.outputs, hint="carried")
        for name, attribute in attributes.items():
            tape.nodes[-1].attributes[name] = attribute
        parts: list[ir.Value | None] = [
            tape.cast(part, own, "part") if output.name else None
            for output, part in zip(self.node.outputs, split, strict=False)
        ]
        replace_node(self.node, tape.nodes, parts)
        return parts


def given_lengths(node: ir.Node, site: Site, tape: Tape) -> ir.Value | None:
    """Return the value that holds the lengths of a split node; None where it has none as a value.

    Lengths that a function's caller gives as an attribute become one on the tape.
    """
    for source in site.schema.lengths:
        if source.given is Given.INPUT:
            index = site.schema.input_index(source.name)
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is not None:
                return value
        elif source.name in site.references:
            made = tape.op("Constant", [], hint="lengths")
            reference = ir.RefAttr("value_ints", site.references[source.name], ir.AttributeType.INTS)
            tape.nodes[-1].attributes["value_ints"] = reference
            note(made, Tensor(ELEMENT_TYPES["int64"]))
            return made
    return None
