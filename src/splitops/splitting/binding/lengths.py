"""Binding step: read the lengths of a split, some of which may be unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.errors import Rule, brief, shown
from splitops.spec.sizes.arithmetic import Division
from splitops.spec.sizes.dims import Shape, to_integer
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding.compiled_schema import Operand
from splitops.splitting.binding.facts import Fact, Number
from splitops.splitting.binding.node import Node, format_shape

_MAX_UNKNOWN: Final = 1 << 16
"""Maximum number of unknown lengths that are listed one by one."""
_INTEGERS: Final = frozenset({int})

Lengths = tuple[int | None, ...]


def read_lengths(
    node: Node, place: Operand, data: Fact
) -> tuple[Division | None, Lengths | None, Shape | None]:
    """Return the division by lengths, the lengths if some are unknown, and the shape of the operand.

    A scalar is a chunk size. At least one of the first two results is None. Both are None if the number of
    lengths is unknown or too large to list them.
    """
    fact = _read_attribute(node, place) if place.index is None else _read_input(node, place, data)
    value = () if fact.shape == (0,) else fact.value  # an empty list is completely known
    if value is None:
        return None, _make_unknown(node, place, fact.shape), fact.shape
    if not isinstance(value, tuple):
        return _make_chunk(node, place, value), None, fact.shape
    lengths = _check_lengths(node, place, value)
    _check_count(node, place, len(lengths))
    if None in lengths:
        return None, lengths, fact.shape
    rule = node.schema.schema.lengths_rule
    if rule is SizeRule.REMAINDER and -1 not in lengths:
        rule = SizeRule.EXPLICIT
    known: Any = lengths
    return Division(rule, 0, known), None, fact.shape


def _read_attribute(node: Node, place: Operand) -> Fact:
    value = node.attributes[place.name]
    if isinstance(value, Fact):
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        got = f"{place.name} = {shown(value)}"
        raise node.make_error(Rule.LENGTHS_RANK, got, "it must be a list of integers", place)
    integers = tuple(map(to_integer, value))
    if None in integers:
        odd = value[integers.index(None)]
        got = f"{place.name} contains {shown(odd)}"
        raise node.make_error(Rule.LENGTHS_DTYPE, got, "it must be a list of integers", place, value=odd)
    return Fact(None, (len(integers),), integers)


def _read_input(node: Node, place: Operand, data: Fact) -> Fact:
    fact = node.get_input(place)
    assert fact is not None
    taken = frozenset({data.type}) if place.as_data and data.type is not None else place.types
    if fact.type is not None and fact.type not in taken:
        raise node.make_error(
            Rule.LENGTHS_DTYPE,
            f"{place.name} has element type {fact.type}",
            f"it must be {' or '.join(sorted(map(str, taken)))}",
            place,
            type=str(fact.type),
        )
    if fact.shape is not None and len(fact.shape) not in place.ranks:
        expected = "it must be 1-D" + (" or a scalar" if 0 in place.ranks else "")
        count = node.schema.schema.count_attribute
        if not fact.shape and count is not None:
            expected += f"; {count} is the number of parts"
        got = f"{place.name} has shape {format_shape(fact.shape)}"
        raise node.make_error(Rule.LENGTHS_RANK, got, expected, place, shape=fact.shape)
    return fact


def _check_lengths(node: Node, place: Operand, values: tuple[Number | None, ...]) -> Lengths:
    """Check the known lengths one by one, and return them as integers."""
    minimum = place.minimum
    assert minimum is not None
    integers: Any = values
    lengths: Lengths
    if not values or (
        minimum >= 0
        and _INTEGERS.issuperset(map(type, values))
        and min(integers) >= minimum
        and max(integers) <= INT64_MAX
    ):
        lengths = integers
        return lengths  # the usual case
    lengths = tuple(_check_length(node, place, value) for value in values)
    for index, length in enumerate(lengths):
        if length is not None and length < minimum:
            raise node.make_error(
                Rule.LENGTHS_NEGATIVE,
                f"{place.name} = {brief(lengths)} has {length} at index {index}",
                f"each length must be >= {minimum}",
                place,
                lengths=lengths,
                index=index,
            )
    if lengths.count(-1) > 1:
        got = f"{place.name} = {brief(lengths)} has {lengths.count(-1)} entries of -1"
        raise node.make_error(Rule.REMAINDER_REPEATED, got, "at most one is allowed", place, lengths=lengths)
    return lengths


def _check_length(node: Node, place: Operand, value: Number | None) -> int | None:
    """Return a length as an int, or None if it is unknown. Raise RuleError if it is not a 64-bit integer."""
    if value is None:
        return None
    if not INT64_MIN <= value <= INT64_MAX or value != int(value):  # NaN is not in the range
        got = f"{place.name} contains {shown(value)}"
        raise node.make_error(
            Rule.LENGTHS_VALUE, got, "each length must be a 64-bit integer", place, value=value
        )
    return int(value)


def _make_unknown(node: Node, place: Operand, shape: Shape | None) -> tuple[None, ...] | None:
    """Return one None per length, or None if the number of lengths is unknown or too large to list."""
    stated = None if node.schema.sequence else node.outputs
    count: Any = shape[0] if shape is not None and len(shape) == 1 else stated
    if not isinstance(count, int):
        return None
    _check_count(node, place, count)
    return (None,) * count if count <= _MAX_UNKNOWN else None


def _check_count(node: Node, place: Operand, count: int) -> None:
    if node.schema.sequence:
        return
    if count == 0:
        got, expected = f"{place.name} is empty", f"{node.schema.schema} has at least one part"
        raise node.make_error(Rule.LENGTHS_COUNT, got, expected, place)
    if node.outputs is not None and count != node.outputs:
        got, expected = f"{place.name} has {count} lengths", f"{node.outputs} outputs are declared"
        raise node.make_error(Rule.LENGTHS_COUNT, got, expected, place, count=count, outputs=node.outputs)


def _make_chunk(node: Node, place: Operand, value: Number) -> Division:
    chunk = _check_length(node, place, value)
    assert chunk is not None
    if chunk < 1:
        got = f"{place.name} = {chunk}"
        raise node.make_error(Rule.CHUNK_POSITIVE, got, "a scalar must be >= 1", place, chunk=chunk)
    return Division(SizeRule.CHUNK, chunk=chunk)
