"""Records drawn at random: the listed ones of other types, ranks and places, and other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Final

from splitops.comparison.cases.invalid import invalid_records
from splitops.comparison.cases.neighbours import NEIGHBOURS
from splitops.comparison.cases.valid import sized, valid_records
from splitops.comparison.records import Record
from splitops.spec.operators import SCHEMAS, OperatorSchema
from splitops.spec.sizes.rules import SizeRule

Pair = tuple[Record, Record | None]
"""A record, and the valid one that it was before something of it was changed to break a rule."""

_SIZES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 31, 32, 33)
_MOST_PARTS: Final = 9
_MOST_AXES: Final = 4
_OF_ANY_TYPE: Final = (None, "absent", "constant-data", "elements", "unranked")


def drawn(seed: int) -> Iterator[Pair]:
    """Yield the records of a seed, without end: half of them are made to break a rule."""
    choices = Random(seed)  # noqa: S311 - no secret
    listed: dict[OperatorSchema, tuple[list[Record], list[tuple[Record, Record]]]] = {}
    while True:
        row = choices.choice(SCHEMAS)
        if row not in listed:
            plain = [one for one in valid_records(row) if one.special not in NEIGHBOURS]
            listed[row] = plain, [(one, right) for one, right in invalid_records(row) if one.shape]
        valid, invalid = listed[row]
        new = _without_one(choices, row, choices.choice(list(_sized(choices, row))))
        match choices.randrange(4):
            case 0:
                yield _moved(choices, row, choices.choice(valid))[0], None
            case 1:
                yield _moved(choices, row, new)[0], None
            case 2 if row.count_attribute not in new.attributes:  # else it may have any size
                record, right = _moved(choices, row, _longer(new), new)
                yield record, right
            case _:
                record, right = _moved(choices, row, *choices.choice(invalid))
                yield record, right


def _sized(choices: Random, row: OperatorSchema) -> Iterator[Record]:
    """Yield splits of an axis of a size: parts alike, empty or of one element."""
    size, count = choices.choice(_SIZES), choices.randint(1, _MOST_PARTS)
    places = [(0, size, 1, size - 1, size * part // count) for part in range(1, count)]
    cuts = [0, *sorted(min(max(choices.choice(own), 0), size) for own in places), size]
    lengths = [end - begin for begin, end in pairwise(cuts)]
    rest = list(lengths)
    rest[choices.randrange(count)] = -1
    least = max(1, -(-size // _MOST_PARTS))
    chunk = max(least, choices.choice((size, size - 1, size + 1, size // 2, least)))
    even = size - size % count if row.count_rule is SizeRule.EVEN else size
    return sized(row, [(even, count)], [(size, chunk)], [(size, lengths), (size, rest)] * 2)


def _without_one(choices: Random, row: OperatorSchema, record: Record) -> Record:
    """Leave out an output of some records that may lack one."""
    names = list(record.outputs)
    if row.domain or row.gives_sequence or len(names) < 2 or choices.randrange(4):
        return record
    names[choices.randrange(len(names))] = ""
    return replace(record, outputs=tuple(names))


def _longer(record: Record) -> Record:
    axis = (record.axis or 0) % len(record.shape)
    return replace(record, shape=tuple(size + (place == axis) for place, size in enumerate(record.shape)))


def _moved(choices: Random, row: OperatorSchema, *records: Record) -> list[Record]:
    """Return a record, and what it was before, among other axes and of another type."""
    last = records[-1]
    count = choices.randint(0, _MOST_AXES - max(len(one.shape) for one in records))
    sizes = [choices.randint(1, 3) for _ in range(count)]
    place, flips = choices.randint(0, count), choices.random() < 0.5
    dtype = choices.choice(sorted(kind.name for kind in row.types_of(row.inputs[0])))
    if last.special not in _OF_ANY_TYPE or last.lengths_dtype == last.dtype:
        dtype = last.dtype
    return [
        replace(
            _placed(one, sizes[:place], sizes[place:]),
            dtype=dtype if one.dtype == last.dtype else one.dtype,
            dynamic=one.dynamic ^ flips,
        )
        for one in records
    ]


def _placed(record: Record, before: list[int], after: list[int]) -> Record:
    """Add axes before and behind those of a record; an axis that is out of range stays so."""
    rank, axis = len(record.shape), record.axis
    if axis is not None or before:
        axis = axis or 0
        if -rank <= axis < rank:
            axis += len(before) if axis >= 0 else -len(after)
        else:
            axis += (len(before) + len(after)) * (1 if axis > 0 else -1)
    return replace(record, shape=(*before, *record.shape, *after), axis=axis)
