"""The cases that break a rule, each beside the valid one that it was before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from splitops.comparison.cases.forms import by_count, by_lengths, input_of_lengths, part_names, plain
from splitops.comparison.cases.valid import is_newest
from splitops.comparison.records import Record
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

Broken = tuple[Record, Record]
"""What breaks a rule, and its baseline."""


def invalid_records(row: OperatorSchema) -> Iterator[Broken]:
    """Yield the records of a row that break a rule, each with a valid record that differs little."""
    yield from chain(_axes(row), _lengths(row), _ways(row), _counts(row), _rest(row))


def _but(right: Record, **changes: Any) -> Broken:
    return replace(right, **changes), right


def _axes(row: OperatorSchema) -> Iterator[Broken]:
    right = by_lengths(row, (2, 6), [3, 3], 1) if row.count is None else by_count(row, (2, 6), 2, 1)
    yield _but(right, axis=2)
    yield _but(right, axis=-3)
    if is_newest(row):
        yield _but(plain(row), shape=())
    if row.axis.given is Given.INPUT:
        ranks = row.inputs[row.input_index(row.axis.name)].ranks or ()
        yield _but(plain(row), axis_dtype="float32")
        yield _but(plain(row), axis_shape=(2,))
        yield _but(plain(row), axis_shape=(1, 1))
        if 1 not in ranks:
            yield _but(plain(row), axis_shape=(1,))


def _lengths(row: OperatorSchema) -> Iterator[Broken]:
    """Yield lengths that do not fit, of the model and of the run."""
    if not row.lengths:
        return
    two, three = [2, 4], [1, 2, 3]
    wrong: list[tuple[list[int], list[int], dict[str, Any]]] = [
        ([2, 3], two, {}), ([8, -2], two, {}), ([2, 3], two, {"dynamic": True}),
    ]  # fmt: skip
    if is_newest(row):
        wrong += [([3, 4], two, {}), ([2**32, 6], two, {}), ([2**63 - 1, 2**63 - 1, 8], three, {})]
        if row.lengths_rule is SizeRule.REMAINDER:
            wrong += [(one, [-1, 4], {}) for one in ([-1, 8], [-1, -1], [-2, 8])]
        else:
            wrong.append(([-1, 7], two, {}))
        if input_of_lengths(row) is not None:  # which a run gives
            late = [{"constant": False, "dynamic": dynamic} for dynamic in (False, True)]
            sums = ([2, 3], [8, -2], [20_000_000, -19_999_994], [2**32, 6])
            wrong += [(one, two, how) for how in late for one in sums]
            if row.lengths_rule is SizeRule.REMAINDER:
                wrong += [([-1, 8], [-1, 4], how) for how in late]
            if row.gives_sequence:
                wrong.append(([], two, {"constant": False}))
    for lengths, right, how in wrong:
        yield by_lengths(row, (6,), lengths, **how), by_lengths(row, (6,), right, **how)
    if not row.gives_sequence:
        for lengths, count in ((three, 2), (two, 3)):
            yield _but(by_lengths(row, (6,), lengths), outputs=part_names(count))
    if row.scalar_rule is SizeRule.CHUNK:
        for chunk, constant in ((0, True), (0, False), (-1, True), (-1, False)):
            right_one = by_lengths(row, (6,), 3, constant=constant)
            yield by_lengths(row, (6,), chunk, constant=constant), right_one


def _ways(row: OperatorSchema) -> Iterator[Broken]:
    """Yield lengths of a wrong rank or type, stated twice, or not at all."""
    source = input_of_lengths(row)
    if source is None:
        return
    takes = row.types_of(row.inputs[row.input_index(source.name)])
    first = row.lengths[0]
    right = by_lengths(row, (6,), [2, 4], constant=first.given is Given.INPUT)
    yield _but(right, lengths=[[2, 4]])
    if row.scalar_rule is None:
        yield _but(right, lengths=6)
    for name in ("int32", "float32"):
        if ELEMENT_TYPES[name] not in takes:
            yield _but(right, lengths_dtype=name)
    if ELEMENT_TYPES["float32"] in takes:
        yield _but(right, lengths=[2.5, 3.5])
    if first.given is Given.ATTRIBUTE:
        yield _but(right, attributes={first.name: [2, 4]})
    if row.exclusive and row.count_attribute is not None:
        yield _but(right, attributes={row.count_attribute: 2})
        yield _but(plain(row), attributes={})
        yield _but(plain(row, dynamic=True), attributes={})


def _counts(row: OperatorSchema) -> Iterator[Broken]:
    if row.count_rule is SizeRule.EVEN:
        yield by_count(row, (7,), 2), plain(row)
        yield by_count(row, (7,), 2, dynamic=True), plain(row, dynamic=True)
    if row.count_attribute is not None:
        for count in (0, -1):
            yield _but(plain(row), attributes={row.count_attribute: count})
        yield _but(plain(row), outputs=part_names(3))


def _rest(row: OperatorSchema) -> Iterator[Broken]:
    """Yield types that the row does not take, and what belongs to another version."""
    takes = row.types_of(row.inputs[0])
    lacking = [name for name in ("int32", "bfloat16", "float8_e4m3fn") if ELEMENT_TYPES[name] not in takes]
    if lacking:
        yield _but(plain(row), dtype=lacking[0])
    if row.keepdims is not None:
        yield by_count(row, (3,), 1, attributes={row.keepdims.name: 2}), by_count(row, (3,), 1)
    if row.domain:
        return
    if row.count is not None and row.count_attribute is None:
        yield _but(plain(row), attributes={"num_outputs": 2})  # of a later version
    if row.lengths and row.attribute(row.lengths[0].name) is None and not row.gives_sequence:
        earlier = {row.lengths[0].name: [3, 3]}  # of an earlier one
        yield _but(plain(row), attributes={**plain(row).attributes, **earlier})
    if row.gives_sequence and not is_newest(row):
        yield _but(plain(row), opset=row.since_version - 1)
