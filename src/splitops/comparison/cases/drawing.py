"""Records drawn at random: every row, element type, rank and place, with sizes at their boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

from splitops.comparison.cases.forms import by_count, by_lengths, input_of_lengths, part_names
from splitops.comparison.records import Record
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import SCHEMAS, OperatorSchema
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.rules import SizeRule

Pair = tuple[Record, Record | None]
"""A record, and the valid one that it was before something of it was changed to break a rule."""

_SIZES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 31, 32, 33)
_LARGE: Final = (2**31 - 1, 2**31, 2**32 + 4, 2**53 + 2)
"""Sizes of data that is empty on another axis."""
_MOST_PARTS: Final = 9
_FOREIGN: Final = ("int32", "bfloat16", "float8_e4m3fn")
"""Types of which rows lack some."""


def drawn(seed: int) -> Iterator[Pair]:
    """Yield the records of a seed, without end: valid ones, and as many that were changed to break a rule."""
    choices = Random(seed)  # noqa: S311 - no secret
    while True:
        row = choices.choice(SCHEMAS)
        right = _valid(choices, row)
        yield (right, None) if _yes(choices) else (choices.choice(list(_broken(row, right))), right)


def _yes(choices: Random) -> bool:
    return choices.random() < 0.5


def _valid(choices: Random, row: OperatorSchema) -> Record:
    count = choices.choice(range(1, _MOST_PARTS + 1))
    counted = not row.lengths or (row.count is not None and _yes(choices))
    chunked = row.scalar_rule is not None and _yes(choices)
    alone = chunked and _yes(choices)
    large = not alone and choices.choice(range(8)) == 0
    size = choices.choice(_LARGE if large else _SIZES)
    if counted and row.count_rule is SizeRule.EVEN:
        size -= size % count
    shape, axis = _placed(choices, size, empty=large)
    more = _told(choices, row)
    if counted:
        given_late = row.axis.given is Given.INPUT and _yes(choices)
        return _declared(choices, row, by_count(row, shape, count, axis, constant=not given_late, **more))
    if alone:
        return _declared(choices, row, by_count(row, shape, 1, axis, **more), size)
    own_input = input_of_lengths(row)
    stated = row.lengths[0].given is Given.ATTRIBUTE
    constant = own_input is None or (stated and large) or _yes(choices)
    if own_input is not None and not stated and not large:
        takes = row.types_of(row.inputs[row.input_index(own_input.name)])
        fitting = [name for name in ("int64", "int32") if ELEMENT_TYPES[name] in takes]
        more["lengths_dtype"] = choices.choice(fitting)
    if chunked:
        least = max(1, -(-size // _MOST_PARTS))
        chunk = max(least, choices.choice((size, size - 1, size + 1, size // 2, least)))
        record = by_lengths(row, shape, chunk, axis, constant=constant, **more)
        return _declared(choices, row, record, -(-size // chunk))
    lengths = _cut(choices, size, count)
    if row.lengths_rule is SizeRule.REMAINDER and _yes(choices):
        lengths[choices.choice(range(count))] = -1
    return _declared(choices, row, by_lengths(row, shape, lengths, axis, constant=constant, **more), count)


def _placed(choices: Random, size: int, *, empty: bool) -> tuple[tuple[int, ...], int | None]:
    """Return a shape with an axis of a size, and the axis; None where that is the first one."""
    others = [choices.choice((1, 2, 3)) for _ in range(choices.choice(range(empty, 4)))]
    others[:empty] = [0] * empty
    place = choices.choice(range(len(others) + 1))
    rank = len(others) + 1
    axes = (place, place - rank) if place else (0, -rank, None)
    return (*others[:place], size, *others[place:]), choices.choice(axes)


def _told(choices: Random, row: OperatorSchema) -> dict[str, Any]:
    """Return what else a record says: the type, what is known, how the axis is given."""
    types = sorted(kind.name for kind in row.types_of(row.inputs[0]))
    told: dict[str, Any] = {"dtype": choices.choice(types), "dynamic": _yes(choices)}
    if row.axis.given is Given.INPUT:
        ranks = row.inputs[row.input_index(row.axis.name)].ranks
        told["axis_dtype"] = choices.choice(("int64", "int32"))
        told["axis_shape"] = choices.choice(((), (1,))) if ranks is None or 1 in ranks else ()
        told["special"] = choices.choice((None, None, "unranked", "constant-data"))
    if row.keepdims is not None and _yes(choices):
        told["attributes"] = {row.keepdims.name: choices.choice((0, 1))}
    return told


def _cut(choices: Random, size: int, count: int) -> list[int]:
    """Return so many lengths of an axis: parts alike, empty or of one element."""
    places = [(0, size, 1, size - 1, size * part // count) for part in range(1, count)]
    cuts = [0, *sorted(min(max(choices.choice(own), 0), size) for own in places), size]
    return [end - begin for begin, end in pairwise(cuts)]


def _declared(choices: Random, row: OperatorSchema, record: Record, parts: int = 0) -> Record:
    """Leave out an output that may be, or read the elements of a sequence of so many parts."""
    if row.gives_sequence:
        if parts and _yes(choices):
            return replace(record, special="elements", outputs=part_names(min(parts, 2)))
        return record
    names = record.outputs
    if row.domain or len(names) < 2 or _yes(choices):
        return record
    if row.count_attribute in record.attributes and _yes(choices):
        return replace(record, outputs=names[:-1])
    place = choices.choice(range(len(names)))
    return replace(record, outputs=(*names[:place], "", *names[place + 1 :]))


def _broken(row: OperatorSchema, right: Record) -> Iterator[Record]:
    """Yield what a record can be changed to that breaks a rule."""
    rank, takes = len(right.shape), row.types_of(row.inputs[0])
    for axis in (rank, -rank - 1):
        yield replace(right, axis=axis)
    for name in _FOREIGN:
        if ELEMENT_TYPES[name] not in takes:
            yield replace(right, dtype=name)
    if row.axis.given is Given.INPUT:
        yield replace(right, axis_dtype="float32")
        yield replace(right, axis_shape=(2,))
    if row.keepdims is not None and right.lengths is None:
        yield replace(right, attributes={row.keepdims.name: 2})
    if not row.gives_sequence:
        yield replace(right, outputs=(*right.outputs, f"p{len(right.outputs)}"))
    yield from _miscounted(row, right)
    yield from _unfit(row, right)


def _miscounted(row: OperatorSchema, right: Record) -> Iterator[Record]:
    name = row.count_attribute
    if name is not None and name in right.attributes:
        for number in (0, -1):
            yield replace(right, attributes={name: number})
        if row.exclusive:
            yield replace(right, attributes={})
    elif row.exclusive and name is not None:
        yield replace(right, attributes={name: len(right.outputs)})
    stated = any(own.name in right.attributes for own in row.lengths)
    if row.count_rule is SizeRule.EVEN and right.lengths is None and not stated and len(right.outputs) > 1:
        axis = (right.axis or 0) % len(right.shape)
        yield replace(right, shape=tuple(n + (place == axis) for place, n in enumerate(right.shape)))


def _unfit(row: OperatorSchema, right: Record) -> Iterator[Record]:
    """Yield lengths that do not fit, of the model and of the run."""
    name = row.lengths[0].name if row.lengths else ""
    if name in right.attributes:
        for wrong in _wrong(right.attributes[name]):
            yield replace(right, attributes={name: wrong})
    if isinstance(right.lengths, list):
        yield from (replace(right, lengths=wrong) for wrong in _wrong(right.lengths))
        yield replace(right, lengths=[right.lengths])
    elif right.lengths is not None:
        yield from (replace(right, lengths=wrong) for wrong in (0, -1))
    source = input_of_lengths(row)
    if right.lengths is None or source is None:
        return
    if ELEMENT_TYPES["float32"] not in row.types_of(row.inputs[row.input_index(source.name)]):
        yield replace(right, lengths_dtype="float32")


def _wrong(lengths: list[int]) -> Iterator[list[int]]:
    first, *rest = lengths
    yield [-2, *rest]
    if -1 not in lengths:
        yield [first + 1, *rest]
    elif rest:
        yield [-1] * len(lengths)
    yield [*rest, first, 1 + max(lengths)]
