"""Generates specs that break a rule, each with a similar valid spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from splitops.spec import ELEMENT_TYPES, OperatorSchema, SizeRule, SourceKind
from splitops_compare.cases.spec_templates import (
    find_lengths_input,
    make_count_spec,
    make_lengths_spec,
    make_part_names,
    make_plain_spec,
)
from splitops_compare.cases.valid_specs import is_newest
from splitops_compare.data import CaseSpec

SpecPair = tuple[CaseSpec, CaseSpec]
"""An invalid spec and its valid baseline."""


def generate_invalid_specs(schema: OperatorSchema) -> Iterator[SpecPair]:
    """Yield the specs of an operator version that break a rule, each with its baseline."""
    yield from chain(
        _iter_axes(schema),
        _iter_lengths(schema),
        _iter_sources(schema),
        _iter_counts(schema),
        _iter_others(schema),
    )


def _change(baseline: CaseSpec, **changes: Any) -> SpecPair:
    return replace(baseline, **changes), baseline


def _iter_axes(schema: OperatorSchema) -> Iterator[SpecPair]:
    baseline = (
        make_lengths_spec(schema, (2, 6), [3, 3], 1)
        if schema.count is None
        else make_count_spec(schema, (2, 6), 2, 1)
    )
    yield _change(baseline, axis=2)
    yield _change(baseline, axis=-3)
    if is_newest(schema):
        yield _change(make_plain_spec(schema), shape=())
    if schema.axis.kind is SourceKind.INPUT:
        ranks = schema.inputs[schema.input_index(schema.axis.name)].ranks or ()
        yield _change(make_plain_spec(schema), axis_dtype="float32")
        yield _change(make_plain_spec(schema), axis_shape=(2,))
        yield _change(make_plain_spec(schema), axis_shape=(1, 1))
        if 1 not in ranks:
            yield _change(make_plain_spec(schema), axis_shape=(1,))


def _iter_lengths(schema: OperatorSchema) -> Iterator[SpecPair]:
    """Yield specs with wrong lengths, either constant or set at run time."""
    if not schema.lengths:
        return
    two, three = [2, 4], [1, 2, 3]
    wrong: list[tuple[list[int], list[int], dict[str, Any]]] = [
        ([2, 3], two, {}), ([8, -2], two, {}), ([2, 3], two, {"dynamic": True}),
    ]  # fmt: skip
    if is_newest(schema):
        wrong += [([3, 4], two, {}), ([2**32, 6], two, {}), ([2**63 - 1, 2**63 - 1, 8], three, {})]
        if schema.lengths_rule is SizeRule.REMAINDER:
            wrong += [(one, [-1, 4], {}) for one in ([-1, 8], [-1, -1], [-2, 8])]
        else:
            wrong.append(([-1, 7], two, {}))
        if find_lengths_input(schema) is not None:  # lengths that are set at run time
            late = [{"constant": False, "dynamic": dynamic} for dynamic in (False, True)]
            sums = ([2, 3], [8, -2], [20_000_000, -19_999_994], [2**32, 6])
            wrong += [(one, two, options) for options in late for one in sums]
            if schema.lengths_rule is SizeRule.REMAINDER:
                wrong += [([-1, 8], [-1, 4], options) for options in late]
            if schema.gives_sequence:
                wrong.append(([], two, {"constant": False}))
    for lengths, valid, options in wrong:
        baseline = make_lengths_spec(schema, (6,), valid, **options)
        yield make_lengths_spec(schema, (6,), lengths, **options), baseline
    if not schema.gives_sequence:
        for lengths, count in ((three, 2), (two, 3)):
            yield _change(make_lengths_spec(schema, (6,), lengths), outputs=make_part_names(count))
    if schema.scalar_rule is SizeRule.CHUNK:
        for chunk, constant in ((0, True), (0, False), (-1, True), (-1, False)):
            baseline = make_lengths_spec(schema, (6,), 3, constant=constant)
            yield make_lengths_spec(schema, (6,), chunk, constant=constant), baseline


def _iter_sources(schema: OperatorSchema) -> Iterator[SpecPair]:
    """Yield specs whose lengths have a wrong rank or type, are fractions, are set twice, or are missing."""
    source = find_lengths_input(schema)
    if source is None:
        return
    types = schema.types_of(schema.inputs[schema.input_index(source.name)])
    first = schema.lengths[0]
    baseline = make_lengths_spec(schema, (6,), [2, 4], constant=first.kind is SourceKind.INPUT)
    yield _change(baseline, lengths=[[2, 4]])
    if schema.scalar_rule is None:
        yield _change(baseline, lengths=6)
    for name in ("int32", "float32"):
        if ELEMENT_TYPES[name] not in types:
            yield _change(baseline, lengths_dtype=name)
    if ELEMENT_TYPES["float32"] in types:
        yield _change(baseline, lengths=[2.5, 3.5])
    if first.kind is SourceKind.ATTRIBUTE:
        yield _change(baseline, attributes={first.name: [2, 4]})
    if schema.exclusive and schema.count_attribute is not None:
        yield _change(baseline, attributes={schema.count_attribute: 2})
        yield _change(make_plain_spec(schema), attributes={})
        yield _change(make_plain_spec(schema, dynamic=True), attributes={})


def _iter_counts(schema: OperatorSchema) -> Iterator[SpecPair]:
    if schema.count_rule is SizeRule.EVEN:
        yield make_count_spec(schema, (7,), 2), make_plain_spec(schema)
        yield make_count_spec(schema, (7,), 2, dynamic=True), make_plain_spec(schema, dynamic=True)
    if schema.count_attribute is not None:
        for count in (0, -1):
            yield _change(make_plain_spec(schema), attributes={schema.count_attribute: count})
        yield _change(make_plain_spec(schema), outputs=make_part_names(3))


def _iter_others(schema: OperatorSchema) -> Iterator[SpecPair]:
    """Yield specs with an element type, attribute, value or opset that the version does not support."""
    types = schema.types_of(schema.inputs[0])
    unsupported = [
        name for name in ("int32", "bfloat16", "float8_e4m3fn") if ELEMENT_TYPES[name] not in types
    ]
    if unsupported:
        yield _change(make_plain_spec(schema), dtype=unsupported[0])
    if schema.keepdims is not None:
        yield (
            make_count_spec(schema, (3,), 1, attributes={schema.keepdims.name: 2}),
            make_count_spec(schema, (3,), 1),
        )
    if schema.domain:
        return
    if schema.count is not None and schema.count_attribute is None:
        yield _change(
            make_plain_spec(schema), attributes={"num_outputs": 2}
        )  # an attribute of a later version
    if schema.lengths and schema.attribute(schema.lengths[0].name) is None and not schema.gives_sequence:
        earlier = {schema.lengths[0].name: [3, 3]}  # an attribute of an earlier version
        yield _change(make_plain_spec(schema), attributes={**make_plain_spec(schema).attributes, **earlier})
    if schema.gives_sequence and not is_newest(schema):
        yield _change(make_plain_spec(schema), opset=schema.since_version - 1)
