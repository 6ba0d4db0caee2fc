"""Binding step: check which attributes and inputs a node has, and the element type of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from splitops.common.json_values import record
from splitops.errors import ModelError, Rule, RuleError, SplitError, Where, rule_error, shown
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.dims import Shape
from splitops.splitting.binding.compiled_schema import CompiledSchema, Operand
from splitops.splitting.binding.facts import Fact


@record
class Node:
    """One split as a node or call: the arguments of :func:`splitops.splitting.binding.bind`.

    Inputs past the end of ``inputs`` are absent.
    """

    schema: CompiledSchema
    attributes: Mapping[str, Any]
    inputs: Sequence[Fact | None]
    outputs: int | None
    where: Where

    def get_input(self, place: Operand) -> Fact | None:
        """Return the facts about an input, or None if it is absent."""
        assert place.index is not None
        return self.inputs[place.index] if place.index < len(self.inputs) else None

    def is_set(self, place: Operand) -> bool:
        """Return whether the node sets an operand: as an attribute, an input, or its number of outputs."""
        index = place.index
        if index is not None:
            return index < len(self.inputs) and self.inputs[index] is not None
        if place.source.kind is SourceKind.OUTPUTS:
            return self.outputs is not None
        return place.name in self.attributes

    def make_error(
        self, rule: Rule, got: str, expected: str, place: Operand | None = None, **values: Any
    ) -> RuleError:
        """Make the error for a broken rule, located at the operand ``place``."""
        where = self.where
        if place is not None and place.index is not None:
            where = replace(where, input=place.name)
        elif place is not None and place.source.kind is SourceKind.ATTRIBUTE:
            where = replace(where, attribute=place.name)
        return rule_error(str(self.schema.schema), rule, got, expected, where=where, **values)


def read_data(node: Node) -> Fact:
    """Check attributes, inputs and data type against the operator version. Return facts about the data."""
    compiled = node.schema
    if not compiled.attributes.issuperset(node.attributes):
        name = next(name for name in node.attributes if name not in compiled.attributes)
        names = [attribute.name for attribute in compiled.schema.attributes]
        got, expected = f"attribute {shown(name)} is given", _format_names(names, "attribute")
        raise node.make_error(Rule.OPERATOR_VERSION, got, f"{compiled.schema} has {expected}", attribute=name)
    known = len(compiled.schema.inputs)
    if any(fact is not None for fact in node.inputs[known:]):
        names = [parameter.name for parameter in compiled.schema.inputs]
        got = f"{len(node.inputs)} inputs are given"
        raise node.make_error(
            Rule.OPERATOR_VERSION, got, f"{compiled.schema} has {_format_names(names, 'input')}"
        )
    for place in compiled.required:
        if node.get_input(place) is None:
            raise _make_absent_error(node, place)
    data = node.get_input(compiled.data)
    assert data is not None
    if data.type is not None and data.type not in compiled.data.types:
        raise node.make_error(
            Rule.TYPE_UNSUPPORTED,
            f"{compiled.data.name} has element type {data.type}",
            f"{compiled.schema} supports {', '.join(sorted(map(str, compiled.data.types)))}",
            compiled.data,
            type=str(data.type),
        )
    return data


def _make_absent_error(node: Node, place: Operand) -> SplitError:
    compiled = node.schema
    got, expected = f"{place.name} is absent", f"{compiled.schema} requires it"
    if place in compiled.lengths:
        return node.make_error(Rule.LENGTHS_MISSING, got, expected, place)
    if place == compiled.axis:
        return node.make_error(Rule.AXIS_DTYPE, got, expected, place)
    return ModelError(f"{compiled.schema}: {got}, but {expected}", replace(node.where, input=place.name))


def _format_names(names: Sequence[str], noun: str) -> str:
    if not names:
        return f"no {noun}"
    return f"the {noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def format_shape(shape: Shape) -> str:
    """Format a shape like a tuple. Sizes that are not exact are shown as a name, a range or "?"."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
