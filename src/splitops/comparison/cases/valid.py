"""The valid cases of a row: sizes at their boundaries, places, types, and what is known before a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from splitops.comparison.cases.forms import by_count, by_lengths, input_of_lengths, part_names, plain
from splitops.comparison.cases.neighbours import neighbour_records
from splitops.comparison.records import Record
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import OperatorSchema, history
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

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
_ODD: Final = 2**32 + 4
"""A size that 32 bits take for 4."""
_FINE: Final = 2**53 + 2
"""A size whose neighbours float64 cannot represent."""


def valid_records(row: OperatorSchema) -> Iterator[Record]:
    """Yield the valid records of a row, its plain one first; of an older version, fewer."""
    yield from chain(
        _basic(row), _sizes(row), _types(row), _large(row), _declared(row), _of_sequences(row), _of_ir(row)
    )


def is_newest(row: OperatorSchema) -> bool:
    """Whether a row is the newest version of its operator."""
    return row is history(row.name, row.domain)[-1]


def _basic(row: OperatorSchema) -> Iterator[Record]:
    yield plain(row)
    if row.gives_sequence:
        yield plain(row, special="elements", outputs=part_names(2))


def _placed(size: int, index: int) -> tuple[tuple[int, ...], int | None]:
    """Return a shape with an axis of a size, at another place for each index."""
    places: Sequence[tuple[tuple[int, ...], int | None]] = (
        ((size,), None), ((2, size), 1), ((size, 3), None), ((2, size, 3), -2), ((size,), 0), ((2, size), -1),
    )  # fmt: skip
    return places[index % len(places)]


def _sizes(row: OperatorSchema) -> Iterator[Record]:
    """Yield every size; numbers of parts of the newest version with the axis known and unknown."""
    counts = () if row.count_rule is None else _COUNTS[row.count_rule]
    return sized(row, counts, _CHUNKS, _LENGTHS)


def sized(
    row: OperatorSchema,
    counts: Iterable[tuple[int, int]],
    chunks: Iterable[tuple[int, int]],
    lengths: Iterable[tuple[int, Sequence[int]]],
) -> Iterator[Record]:
    """Yield splits of given sizes into numbers of parts, by chunks and by lengths, where a row has them."""
    for index, (size, count) in enumerate(counts if row.count_rule is not None else ()):
        shape, axis = _placed(size, index)
        for dynamic in (False, True)[: 1 + is_newest(row)]:
            yield by_count(row, shape, count, axis, dynamic=dynamic ^ (index // 2 % 2 == 1))
    for index, (size, chunk) in enumerate(chunks if row.scalar_rule is SizeRule.CHUNK else ()):
        shape, axis = _placed(size, index)
        yield by_lengths(row, shape, chunk, axis, **_known(row, index))
    for index, (size, parts) in enumerate(lengths if row.lengths else ()):
        if -1 not in parts or row.lengths_rule is SizeRule.REMAINDER:
            shape, axis = _placed(size, index)
            yield by_lengths(row, shape, list(parts), axis, **_known(row, index))


def _known(row: OperatorSchema, index: int) -> dict[str, bool]:
    """Return what is known of the axis and who gives the lengths: four indices meet every pair."""
    runtime = input_of_lengths(row) is not None
    return {"dynamic": index // 2 % 2 == 1, "constant": index % 2 == 0 or not runtime}


def _types(row: OperatorSchema) -> Iterator[Record]:
    """Yield every element type that the version before does not take; of the newest one every type."""
    types = {kind.name for kind in row.types_of(row.inputs[0])}
    before = [other for other in history(row.name, row.domain) if other.since_version < row.since_version]
    if before and not is_newest(row):
        types -= {kind.name for kind in before[-1].types_of(before[-1].inputs[0])}
    if row.domain and not row.lengths:
        types = {name for name in types if ELEMENT_TYPES[name].onnx is None or ELEMENT_TYPES[name].bits < 8}
    for name in sorted(types):
        yield plain(row, dtype=name)
    if is_newest(row):
        for name in sorted(types & {"int64", "uint64", "float64"}):
            yield plain(row, dtype=name, special="wide")


def _large(row: OperatorSchema) -> Iterator[Record]:
    """Yield sizes beyond 2^31 and 2^53 that take no memory: another axis is empty."""
    for size in (_ODD, _FINE):
        if row.count is not None and (is_newest(row) or row.lengths[0].given is Given.INPUT):
            yield by_count(row, (size, 0), 2)
        if row.scalar_rule is not None and is_newest(row):
            yield by_lengths(row, (size, 0), size // 2)
        if row.lengths and is_newest(row):
            yield by_lengths(row, (size, 0), [size - 2, 2])
            yield by_lengths(row, (size, 0), [size - 2, 2], dynamic=True)


def _declared(row: OperatorSchema) -> Iterator[Record]:
    """Yield nodes that declare fewer outputs, that leave one out, and that name an absent input."""
    if row.domain:
        return
    six, optional = plain(row), input_of_lengths(row)
    if row.count is not None and optional is not None:
        yield replace(six, special="absent")
    if row.count is not None and row.count.given is Given.OUTPUTS and optional is not None:
        yield plain(row, dynamic=True, special="twin")
    if optional is not None and row.lengths[0].given is Given.ATTRIBUTE:
        for dynamic in (False, True):
            yield replace(by_lengths(row, (6,), [2, 4], constant=False, dynamic=dynamic), constant=True)
    if not row.gives_sequence:
        yield replace(six, outputs=("", "p1"))
    if not is_newest(row):
        return
    if not row.gives_sequence:
        yield replace(six, outputs=("p0", ""))
        yield by_lengths(row, (6,), [1, 2, 3], outputs=("p0", "", "p2"))
    if row.count_rule is SizeRule.CEIL:
        yield from neighbour_records(row)
        yield replace(six, outputs=part_names(1))
        yield by_count(row, (2, 6), 2, 1, outputs=part_names(1))
        yield by_count(row, (2, 6), 2)
        yield by_count(row, (5,), 4, outputs=part_names(3))
        yield by_count(row, (7,), 4, outputs=part_names(2), dynamic=True)
        yield by_count(row, (5,), 2, -1)
        yield by_count(row, (5,), 2, dynamic=True)
        yield by_count(row, (5,), 4)
        yield by_count(row, (5,), 4, dynamic=True)
        yield by_count(row, (5,), 4, special="reversed")
        yield by_count(row, (4,), 3, dynamic=True)
        yield by_count(row, (1,), 2, dynamic=True)
        yield by_lengths(row, (6,), [0, 6])


def _of_sequences(row: OperatorSchema) -> Iterator[Record]:
    """Yield what only sequences have: parts of one, keepdims, and elements that are read."""
    if row.keepdims is None or row.scalar_rule is None:
        return
    drop: dict[str, Any] = {"attributes": {row.keepdims.name: 0}}
    keep: dict[str, Any] = {"attributes": {row.keepdims.name: 1}}
    two: dict[str, Any] = {"special": "elements", "outputs": part_names(2)}
    yield by_count(row, (3,), 1)
    yield by_count(row, (0,), 1)
    yield by_count(row, (2, 3), 1, 1, **keep)
    yield by_count(row, (2, 3), 1, 1, **drop)
    yield by_count(row, (2, 3), 1, 1, dynamic=True, **drop)
    yield by_lengths(row, (2, 3), 1, 1, **drop)
    yield by_lengths(row, (2, 3), 2, 1, **drop)
    yield by_lengths(row, (2, 3), [1, 2], 1, **drop)
    yield by_lengths(row, (0,), [])
    yield by_lengths(row, (6,), 2, dynamic=True, **two)
    yield by_lengths(row, (6,), 2, constant=False, **two)
    yield by_lengths(row, (0,), [], special="length", outputs=part_names(1))
    if not is_newest(row):
        return
    yield by_lengths(row, (6,), 2, lengths_dtype="int32")
    yield by_lengths(row, (6,), [2, 4], lengths_dtype="int32", dynamic=True)
    yield by_lengths(row, (6,), [2, 4], **two)
    yield by_lengths(row, (6,), [2, 4], dynamic=True, constant=False, **two)
    yield by_count(row, (2, 3), 1, 1, **two | drop)


def _of_ir(row: OperatorSchema) -> Iterator[Record]:
    """Yield what only IR has: axes as inputs, unknown ranks, packed constants."""
    if row.axis.given is not Given.INPUT:
        return
    six = plain(row)
    yield replace(six, special="unranked")
    yield replace(six, special="constant-data")
    yield replace(six, special="packed", dtype="uint4")
    yield replace(six, axis_dtype="int32")
    yield replace(six, axis_dtype="uint8")
    yield replace(six, constant=False)
    ranks = row.inputs[row.input_index(row.axis.name)].ranks
    if ranks is None or 1 in ranks:
        yield replace(six, axis_shape=(1,))
    if row.lengths:
        yield by_lengths(row, (6,), [2, 4], lengths_dtype="int32")
        yield by_lengths(row, (6,), [2, -1], lengths_dtype="int8", special="unranked")
        yield by_lengths(row, (6, 1, 1), [0, 6], special="transposed")
