"""Records drawn at random: the listed ones of other types, ranks and places, and other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np

from splitops.comparison.cases.forms import input_of_lengths, part_names
from splitops.comparison.cases.invalid import invalid_records
from splitops.comparison.cases.neighbours import NEIGHBOURS
from splitops.comparison.cases.valid import sized, valid_records
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
    size = choices.choice(choices.choice([_SIZES] * 7 + [_LARGE]))
    count = choices.randint(1, _MOST_PARTS)
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
    large = any(max(one.shape, default=0) > max(_SIZES) * 2 and 0 not in one.shape for one in records)
    count = choices.randint(large, _MOST_AXES - max(len(one.shape) for one in records))
    sizes = [choices.randint(1, 3) for _ in range(count)]
    sizes[:large] = [0] * large
    place, flips, turns = choices.randint(0, count), choices.random() < 0.5, choices.random() < 0.5
    dtype = choices.choice(sorted(kind.name for kind in row.types_of(row.inputs[0])))
    shared = all(one.lengths_dtype == one.dtype != "int64" for one in records) and not large
    if last.special not in _OF_ANY_TYPE or (last.lengths_dtype == last.dtype and not shared):
        dtype = last.dtype
    moved = [
        replace(
            _placed(one, sizes[:place], sizes[place:], turns),
            dtype=dtype if one.dtype == last.dtype else one.dtype,
            lengths_dtype=dtype if shared else one.lengths_dtype,
            dynamic=one.dynamic ^ flips,
        )
        for one in records
    ]
    return _told(choices, row, moved)


def _told(choices: Random, row: OperatorSchema, records: list[Record]) -> list[Record]:
    """Tell in another way what says nothing yet: the axis, the lengths, what is known, what is read."""
    ways: dict[str, Sequence[Any]] = {}  # the first of each says nothing
    if row.axis.given is Given.INPUT:
        ranks = row.inputs[row.input_index(row.axis.name)].ranks
        ways["axis_dtype"] = ("int64", "int32")
        ways["axis_shape"] = ((), (1,)) if ranks is None or 1 in ranks else ((),)
        ways["special"] = (None, None, "unranked", "constant-data")
    if len(records) == 1:  # it is valid
        lengths, source = records[0].lengths, input_of_lengths(row)
        if lengths is not None and source is not None and np.max(lengths, initial=0) < min(_LARGE):
            takes = row.types_of(row.inputs[row.input_index(source.name)])
            ways["lengths_dtype"] = [name for name in ("int64", "int32") if ELEMENT_TYPES[name] in takes]
        if row.keepdims is not None:
            ways["attributes"] = ({}, {row.keepdims.name: 0}, {row.keepdims.name: 1})
    for name, values in ways.items():
        if values and all(getattr(one, name) == values[0] for one in records):
            value = choices.choice(values)
            records = [replace(one, **{name: value}) for one in records]
    if row.gives_sequence and len(records) == 1 and records[0].special is None:
        size, lengths = records[0].shape[records[0].axis or 0], records[0].lengths
        parts = len(lengths) if isinstance(lengths, list) else -(-size // (lengths or 1))
        if parts and choices.random() < 0.5:
            return [replace(records[0], special="elements", outputs=part_names(min(parts, 2)))]
    return records


def _placed(record: Record, before: list[int], after: list[int], turns: bool) -> Record:
    """Add axes before and behind those of a record; an axis that is out of range stays so.

    Where it ``turns``, the axis is counted from the other end.
    """
    rank, axis = len(record.shape), record.axis
    if axis is not None or before:
        axis = axis or 0
        if -rank <= axis < rank:
            axis += len(before) if axis >= 0 else -len(after)
            if turns and not record.axis_dtype.startswith("u"):
                axis += (rank + len(before) + len(after)) * (1 if axis < 0 else -1)
        else:
            axis += (len(before) + len(after)) * (1 if axis > 0 else -1)
    return replace(record, shape=(*before, *record.shape, *after), axis=axis)
