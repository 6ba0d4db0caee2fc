"""The node that is bound: the first step checks its attributes and inputs, and reads its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from splitops.errors import ModelError, Rule, RuleError, SplitError, Where, rule_error, shown
from splitops.ground.records import record
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.dims import Shape
from splitops.splitting.binding.facts import Fact
from splitops.splitting.binding.rows import Operand, Row


@record
class Node:
    """One split as a node or call writes it: the arguments of :func:`splitops.splitting.binding.bind`.

    Inputs behind the last are absent, too.
    """

    row: Row
    attributes: Mapping[str, Any]
    inputs: Sequence[Fact | None]
    outputs: int | None
    where: Where

    def input(self, place: Operand) -> Fact | None:
        """Return what is known of an input; None where it is absent."""
        assert place.index is not None
        return self.inputs[place.index] if place.index < len(self.inputs) else None

    def states(self, place: Operand) -> bool:
        """Return whether the node sets something there."""
        index = place.index
        if index is not None:
            return index < len(self.inputs) and self.inputs[index] is not None
        if place.source.given is Given.OUTPUTS:
            return self.outputs is not None
        return place.name in self.attributes

    def error(
        self, rule: Rule, got: str, expected: str, place: Operand | None = None, **values: Any
    ) -> RuleError:
        """Make the error of a rule that is broken, at a place of the node."""
        where = self.where
        if place is not None and place.index is not None:
            where = replace(where, input=place.name)
        elif place is not None and place.source.given is Given.ATTRIBUTE:
            where = replace(where, attribute=place.name)
        return rule_error(str(self.row.schema), rule, got, expected, where=where, **values)


def take_data(node: Node) -> Fact:
    """Check that the version has each attribute and input and accepts the data; return the data."""
    row = node.row
    if not row.attributes.issuperset(node.attributes):
        name = next(name for name in node.attributes if name not in row.attributes)
        names = [attribute.name for attribute in row.schema.attributes]
        got = f"attribute {shown(name)} is given"
        raise node.error(
            Rule.OPERATOR_VERSION, got, f"{row.schema} has {_listing(names, 'attribute')}", attribute=name
        )
    known = len(row.schema.inputs)
    if any(fact is not None for fact in node.inputs[known:]):
        names = [parameter.name for parameter in row.schema.inputs]
        got = f"{len(node.inputs)} inputs are given"
        raise node.error(Rule.OPERATOR_VERSION, got, f"{row.schema} has {_listing(names, 'input')}")
    for place in row.required:
        if node.input(place) is None:
            raise _absent(node, place)
    data = node.input(row.data)
    assert data is not None
    if data.type is not None and data.type not in row.data.types:
        raise node.error(
            Rule.TYPE_UNSUPPORTED,
            f"{row.data.name} has element type {data.type}",
            f"{row.schema} takes {', '.join(sorted(map(str, row.data.types)))}",
            row.data,
            type=str(data.type),
        )
    return data


def _absent(node: Node, place: Operand) -> SplitError:
    row = node.row
    got, expected = f"{place.name} is absent", f"{row.schema} requires it"
    if place in row.lengths:
        return node.error(Rule.LENGTHS_MISSING, got, expected, place)
    if place == row.axis:
        return node.error(Rule.AXIS_DTYPE, got, expected, place)
    return ModelError(f"{row.schema}: {got}, but {expected}", replace(node.where, input=place.name))


def _listing(names: Sequence[str], noun: str) -> str:
    if not names:
        return f"no {noun}"
    return f"the {noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def write(shape: Shape) -> str:
    """Write a shape for a message."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
