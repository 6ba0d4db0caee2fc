"""Binding step: find the operands that set the lengths and the number of parts, and read that number."""

from __future__ import annotations

from splitops.common.integers import INT64_MAX
from splitops.errors import Rule, shown
from splitops.spec.operators.schemas import SourceKind
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import to_integer
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding.compiled_schema import Operand
from splitops.splitting.binding.facts import Fact
from splitops.splitting.binding.node import Node


def find_sources(node: Node) -> tuple[Operand | None, Operand | None]:
    """Return the operands that set the lengths and the number of parts, each None if it is not set."""
    compiled = node.schema
    lengths = None
    for place in compiled.lengths:
        if node.is_set(place):
            if lengths is not None:
                got = f"{lengths.source} and {place.source} are given"
                raise node.make_error(Rule.LENGTHS_CONFLICT, got, "only one of them may be")
            lengths = place
    count = compiled.count if compiled.count is not None and node.is_set(compiled.count) else None
    if lengths is not None and count is not None and compiled.schema.exclusive:
        got = f"both {lengths.source} and {count.source} are given"
        raise node.make_error(Rule.LENGTHS_CONFLICT, got, "exactly one must be")
    if lengths is None and count is None and compiled.schema.default_chunk is None:
        places = [place for place in (*compiled.lengths, compiled.count) if place is not None]
        got = f"no {' and no '.join(str(place.source) for place in places)} is given"
        expected = "exactly one must be" if len(places) > 1 else "it must be"
        raise node.make_error(Rule.LENGTHS_MISSING, got, expected)
    return lengths, count


def read_count(node: Node, place: Operand | None) -> Division | None:
    """Return the division by the number of parts in ``place``, or None if the number is unknown.

    If ``place`` is None, return the division by the default chunk size.
    """
    schema, outputs = node.schema.schema, node.outputs
    if place is None:
        assert schema.default_chunk is not None
        return Division(SizeRule.CHUNK, chunk=schema.default_chunk)
    assert schema.count_rule is not None
    if place.source.kind is SourceKind.OUTPUTS:
        assert outputs is not None
        if outputs < 1:
            got = f"{outputs} outputs are declared"
            raise node.make_error(Rule.OUTPUTS_COUNT, got, "there must be at least one")
        return Division(schema.count_rule, count=outputs)
    value = node.attributes[place.name]
    if isinstance(value, Fact):
        return None
    count = to_integer(value)
    assert place.minimum is not None
    if count is None or not place.minimum <= count <= INT64_MAX:
        got = f"{place.name} = {shown(value)}"
        raise node.make_error(Rule.PARTS_COUNT, got, "it must be a 64-bit integer >= 1", place, count=value)
    if outputs is not None and not 1 <= outputs <= count:
        got, expected = f"{outputs} outputs are declared", f"{place.name} = {count}"
        raise node.make_error(Rule.OUTPUTS_COUNT, got, expected, place, outputs=outputs, count=count)
    return Division(schema.count_rule, count=count)
