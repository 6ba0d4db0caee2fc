"""Generates valid specs: sizes at their boundaries, axes, element types, static and dynamic shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from splitops.spec import ELEMENT_TYPES, OperatorSchema, SizeRule, SourceKind, history
from splitops_compare.cases.fusion_patterns import generate_fusion_specs
from splitops_compare.cases.spec_templates import (
    find_lengths_input,
    make_count_spec,
    make_lengths_spec,
    make_part_names,
    make_plain_spec,
)
from splitops_compare.data import CaseSpec

_COUNTS: Final = {
    SizeRule.EVEN: ((6, 3), (6, 1), (6, 6), (0, 2)),
    SizeRule.CEIL: (
        (7, 4), (6, 4), (5, 4), (10, 4), (9, 4), (3, 4), (1, 4), (4, 3), (5, 2), (0, 2), (6, 1), (6, 6),
    ),
}  # fmt: skip
_LENGTHS: Final = (
    (6, (2, 4)), (6, (0, 6)), (6, (6, 0)), (6, (1, 2, 3)), (6, (6,)), (6, (2, 0, 4)), (0, (0, 0)),
    (6, (-1, 2)), (6, (4, -1)), (6, (-1,)), (6, (6, -1)), (6, (1, -1, 2)), (0, (-1, 0)),
)  # fmt: skip
_CHUNKS: Final = ((5, 2), (6, 2), (5, 5), (5, 7), (0, 3), (3, 1), (5, 2**31 + 1), (5, 2**63 - 1))
_BEYOND_32_BITS: Final = 2**32 + 4
"""A size that becomes 4 if it is truncated to 32 bits."""
_BEYOND_FLOAT64: Final = 2**53 + 2
"""A size whose successor float64 cannot represent."""


def generate_valid_specs(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield the valid specs of an operator version, the simplest first. The newest version has most."""
    yield from chain(
        _iter_plain_specs(schema),
        _iter_sizes(schema),
        _iter_types(schema),
        _iter_large(schema),
        _iter_outputs(schema),
        _iter_sequences(schema),
        _iter_ir(schema),
    )


def is_newest(schema: OperatorSchema) -> bool:
    """Return whether this is the newest version of its operator."""
    return schema is history(schema.name, schema.domain)[-1]


def _iter_plain_specs(schema: OperatorSchema) -> Iterator[CaseSpec]:
    yield make_plain_spec(schema)
    if schema.gives_sequence:
        yield make_plain_spec(schema, special="elements", outputs=make_part_names(2))


def _place_axis(size: int, index: int) -> tuple[tuple[int, ...], int | None]:
    """Return a shape with an axis of ``size``, and that axis (0 or None for the first).

    ``index`` selects the position.
    """
    places: Sequence[tuple[tuple[int, ...], int | None]] = (
        ((size,), None), ((2, size), 1), ((size, 3), None), ((2, size, 3), -2), ((size,), 0), ((2, size), -1),
    )  # fmt: skip
    return places[index % len(places)]


def _iter_sizes(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs of all sizes. In the newest version, a number of parts has a static and a dynamic spec."""
    counts = () if schema.count_rule is None else _COUNTS[schema.count_rule]
    return generate_sized_specs(schema, counts, _CHUNKS, _LENGTHS)


def generate_sized_specs(
    schema: OperatorSchema,
    counts: Iterable[tuple[int, int]],
    chunks: Iterable[tuple[int, int]],
    lengths: Iterable[tuple[int, Sequence[int]]],
) -> Iterator[CaseSpec]:
    """Yield specs from pairs of an axis size and a number of parts, a chunk size or lengths.

    Pairs that the version does not support are skipped.
    """
    for index, (size, count) in enumerate(counts if schema.count_rule is not None else ()):
        shape, axis = _place_axis(size, index)
        for dynamic in (False, True)[: 1 + is_newest(schema)]:
            yield make_count_spec(schema, shape, count, axis, dynamic=dynamic ^ (index // 2 % 2 == 1))
    for index, (size, chunk) in enumerate(chunks if schema.scalar_rule is SizeRule.CHUNK else ()):
        shape, axis = _place_axis(size, index)
        yield make_lengths_spec(schema, shape, chunk, axis, **_vary(schema, index))
    for index, (size, parts) in enumerate(lengths if schema.lengths else ()):
        if -1 not in parts or schema.lengths_rule is SizeRule.REMAINDER:
            shape, axis = _place_axis(size, index)
            yield make_lengths_spec(schema, shape, list(parts), axis, **_vary(schema, index))


def _vary(schema: OperatorSchema, index: int) -> dict[str, bool]:
    """Return ``dynamic`` and ``constant`` of a spec. Four successive indices cover all possible pairs."""
    has_input = find_lengths_input(schema) is not None
    return {"dynamic": index // 2 % 2 == 1, "constant": index % 2 == 0 or not has_input}


def _iter_types(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs of all types of the oldest and newest version, and of types that other versions add.

    OpenVINO's Split only gets types that ONNX lacks or that have fewer than 8 bits.
    """
    types = {kind.name for kind in schema.types_of(schema.inputs[0])}
    before = [
        other for other in history(schema.name, schema.domain) if other.since_version < schema.since_version
    ]
    if before and not is_newest(schema):
        types -= {kind.name for kind in before[-1].types_of(before[-1].inputs[0])}
    if schema.domain and not schema.lengths:
        types = {name for name in types if ELEMENT_TYPES[name].onnx is None or ELEMENT_TYPES[name].bits < 8}
    for name in sorted(types):
        yield make_plain_spec(schema, dtype=name)
    if is_newest(schema):
        for name in sorted(types & {"int64", "uint64", "float64"}):
            yield make_plain_spec(schema, dtype=name, special="wide")


def _iter_large(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs of sizes above 2^32 and 2^53. Another axis is empty, so the data needs no memory."""
    for size in (_BEYOND_32_BITS, _BEYOND_FLOAT64):
        if schema.count is not None and (is_newest(schema) or schema.lengths[0].kind is SourceKind.INPUT):
            yield make_count_spec(schema, (size, 0), 2)
        if schema.scalar_rule is not None and is_newest(schema):
            yield make_lengths_spec(schema, (size, 0), size // 2)
        if schema.lengths and is_newest(schema):
            yield make_lengths_spec(schema, (size, 0), [size - 2, 2])
            yield make_lengths_spec(schema, (size, 0), [size - 2, 2], dynamic=True)


def _iter_outputs(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield ONNX specs with omitted outputs or inputs, and cases of single versions such as Split-18."""
    if schema.domain:
        return
    simplest, optional = make_plain_spec(schema), find_lengths_input(schema)
    if schema.count is not None and optional is not None:
        yield replace(simplest, special="absent")
    if schema.count is not None and schema.count.kind is SourceKind.OUTPUTS and optional is not None:
        yield make_plain_spec(schema, dynamic=True, special="shared-input")
    if optional is not None and schema.lengths[0].kind is SourceKind.ATTRIBUTE:
        for dynamic in (False, True):
            yield replace(
                make_lengths_spec(schema, (6,), [2, 4], constant=False, dynamic=dynamic), constant=True
            )
    if not schema.gives_sequence:
        yield replace(simplest, outputs=("", "p1"))
    if not is_newest(schema):
        return
    if not schema.gives_sequence:
        yield replace(simplest, outputs=("p0", ""))
        yield make_lengths_spec(schema, (6,), [1, 2, 3], outputs=("p0", "", "p2"))
    if schema.count_rule is SizeRule.CEIL:
        yield from generate_fusion_specs(schema)
        yield replace(simplest, outputs=make_part_names(1))
        yield make_count_spec(schema, (2, 6), 2, 1, outputs=make_part_names(1))
        yield make_count_spec(schema, (2, 6), 2)
        yield make_count_spec(schema, (5,), 4, outputs=make_part_names(3))
        yield make_count_spec(schema, (7,), 4, outputs=make_part_names(2), dynamic=True)
        yield make_count_spec(schema, (5,), 2, -1)
        yield make_count_spec(schema, (5,), 2, dynamic=True)
        yield make_count_spec(schema, (5,), 4)
        yield make_count_spec(schema, (5,), 4, dynamic=True)
        yield make_count_spec(schema, (5,), 4, special="reversed")
        yield make_count_spec(schema, (4,), 3, dynamic=True)
        yield make_count_spec(schema, (1,), 2, dynamic=True)
        yield make_lengths_spec(schema, (6,), [0, 6])


def _iter_sequences(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs of sequences: parts of size 1, keepdims, and elements that other nodes read."""
    if schema.keepdims is None or schema.scalar_rule is None:
        return
    drop: dict[str, Any] = {"attributes": {schema.keepdims.name: 0}}
    keep: dict[str, Any] = {"attributes": {schema.keepdims.name: 1}}
    two: dict[str, Any] = {"special": "elements", "outputs": make_part_names(2)}
    yield make_count_spec(schema, (3,), 1)
    yield make_count_spec(schema, (0,), 1)
    yield make_count_spec(schema, (2, 3), 1, 1, **keep)
    yield make_count_spec(schema, (2, 3), 1, 1, **drop)
    yield make_count_spec(schema, (2, 3), 1, 1, dynamic=True, **drop)
    yield make_lengths_spec(schema, (2, 3), 1, 1, **drop)
    yield make_lengths_spec(schema, (2, 3), 2, 1, **drop)
    yield make_lengths_spec(schema, (2, 3), [1, 2], 1, **drop)
    yield make_lengths_spec(schema, (0,), [])
    yield make_lengths_spec(schema, (6,), 2, dynamic=True, **two)
    yield make_lengths_spec(schema, (6,), 2, constant=False, **two)
    yield make_lengths_spec(schema, (0,), [], special="length", outputs=make_part_names(1))
    if not is_newest(schema):
        return
    yield make_lengths_spec(schema, (6,), 2, lengths_dtype="int32")
    yield make_lengths_spec(schema, (6,), [2, 4], lengths_dtype="int32", dynamic=True)
    yield make_lengths_spec(schema, (6,), [2, 4], **two)
    yield make_lengths_spec(schema, (6,), [2, 4], dynamic=True, constant=False, **two)
    yield make_count_spec(schema, (2, 3), 1, 1, **two | drop)


def _iter_ir(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield specs of IR: input types and ranks, unknown ranks, constant data, and layers after the split."""
    if schema.axis.kind is not SourceKind.INPUT:
        return
    simplest = make_plain_spec(schema)
    yield replace(simplest, special="unranked")
    yield replace(simplest, special="constant-data")
    yield replace(simplest, special="packed", dtype="uint4")
    yield replace(simplest, axis_dtype="int32")
    yield replace(simplest, axis_dtype="uint8")
    yield replace(simplest, constant=False)
    ranks = schema.inputs[schema.input_index(schema.axis.name)].ranks
    if ranks is None or 1 in ranks:
        yield replace(simplest, axis_shape=(1,))
    if schema.lengths:
        yield make_lengths_spec(schema, (6,), [2, 4], lengths_dtype="int32")
        yield make_lengths_spec(schema, (6,), [2, -1], lengths_dtype="int8", special="unranked")
        yield make_lengths_spec(schema, (6, 1, 1), [0, 6], special="transposed")
