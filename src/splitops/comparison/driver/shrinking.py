"""The smallest record on which an implementation does the same: one change at a time, as long as any helps.

Smaller is, in this order: fewer axes, fewer outputs, fewer elements, smaller lengths, plainer (float32, a
static shape, constants, fewer attributes, the default axis, nothing special, the opset of the version). No
size and no length becomes 0: that would be another case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from splitops.comparison.cases import build, named
from splitops.comparison.cases.neighbours import NEIGHBOURS
from splitops.comparison.cases.words import row_of
from splitops.comparison.records import Case, Record
from splitops.errors import SplitError

_MOST_ELEMENTS: Final = 1 << 24


def shrunk(case: Case, does_the_same: Callable[[Case], bool], seconds: float) -> Case | None:
    """Return the smallest case so far on which an implementation does the same; None if none is smaller."""
    deadline = time.monotonic() + seconds
    best: Case | None = None
    record = case.record
    tried: set[str] = set()
    while record is not None:
        for candidate in sorted(smaller(record), key=size_of):
            if time.monotonic() > deadline:
                return best
            found = _new(candidate, case, tried)
            if found is not None and does_the_same(found):
                best, record = found, candidate
                break
        else:
            return best
    return best


def _new(record: Record, case: Case, tried: set[str]) -> Case | None:
    """Return the case of a record that was not tried, if it breaks what the case breaks."""
    text = str(record)
    if text in tried:
        return None
    tried.add(text)
    if math.prod(record.shape) > _MOST_ELEMENTS:  # an axis of size 0 beside a huge one is gone
        return None
    try:
        found = build(named(record))
    except SplitError:
        return None
    return found if found.error == case.error else None


def size_of(record: Record) -> tuple[Any, ...]:
    """Return what records are ordered by, from small to large."""
    return (
        len(record.shape),
        len(record.outputs),
        math.prod(record.shape),
        sum(record.shape),
        sum(abs(number) for value in _numbered(record).values() for number in _numbers(value)),
        record.special is not None,
        record.dtype != "float32",
        record.dynamic,
        not record.constant,
        len(record.attributes),
        record.axis is not None,
        abs(record.axis or 0),
        record.opset is not None,
    )


def _numbers(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [number for entry in value for number in _numbers(entry)]
    return [int(value)] if isinstance(value, int) else []


def smaller(record: Record) -> Iterator[Record]:
    """Yield records that are smaller by one change; not all of them make sense."""
    if record.special in NEIGHBOURS:  # which are as small as they can be
        return
    own = size_of(record)
    changes = (_ranks, _parts, _sizes, _plainer)
    yield from (found for change in changes for found in change(record) if size_of(found) < own)


def _ranks(record: Record) -> Iterator[Record]:
    """Leave out one axis that is not split; an axis that is out of range stays as far out."""
    rank, given = len(record.shape), record.axis or 0
    axis = given % rank if -rank <= given < rank else None
    for other in range(rank):
        if axis is None:
            moved = given - 1 if given > 0 else given + 1
        else:
            moved = given - (other < axis) if given >= 0 else given + (other > axis)
        shape = record.shape[:other] + record.shape[other + 1 :]
        if other != axis:
            yield replace(record, shape=shape, axis=None if record.axis is None else moved)


def _parts(record: Record) -> Iterator[Record]:
    """Leave out one part or make one number smaller, alone and with its share of the axis."""
    count, counted = len(record.outputs), False
    for name, value in _numbered(record).items():
        if isinstance(value, list | tuple):
            counted |= len(value) == count
            for index, length in enumerate(value) if all(isinstance(one, int) for one in value) else ():
                fewer = [()] if len(value) > 1 else []
                for rest in (*fewer, *((less,) for less in _less(length))):
                    changed = _with(record, name, [*value[:index], *rest, *value[index + 1 :]])
                    if not rest:
                        changed = replace(changed, outputs=_without(record, index))
                    yield from _resized(changed, sum(rest) - (length if rest else max(length, 0)))
                    yield changed
        elif isinstance(value, int):
            counted |= value == count
            yield from (_with(record, name, less) for less in _less(value))
            if name and value == count > 1:
                yield replace(_with(record, name, value - 1), outputs=record.outputs[:-1])
    # To declare fewer outputs than a number beside them says would be another case.
    for index in range(count) if count > 1 and not counted else ():
        yield replace(record, outputs=_without(record, index))


def _numbered(record: Record) -> dict[str, Any]:
    """Return what numbers a record has: its lengths, which have no name, and its attributes."""
    return {"": record.lengths, **record.attributes}


def _without(record: Record, index: int) -> tuple[str, ...]:
    """Return the outputs without that of one part; a sequence is one output of all parts."""
    names = record.outputs
    return names if len(names) == 1 else names[:index] + names[index + 1 :]


def _with(record: Record, name: str, value: Any) -> Record:
    if not name:
        return replace(record, lengths=value)
    return replace(record, attributes={**record.attributes, name: value})


def _resized(record: Record, change: int) -> Iterator[Record]:
    """Change the size of the split axis."""
    rank, axis = len(record.shape), record.axis or 0
    if -rank <= axis < rank and record.shape[axis] + change >= 0:
        yield _of_size(record, axis % rank, record.shape[axis] + change)


def _of_size(record: Record, axis: int, size: int) -> Record:
    return replace(record, shape=(*record.shape[:axis], size, *record.shape[axis + 1 :]))


def _sizes(record: Record) -> Iterator[Record]:
    """Make one size smaller."""
    for axis, size in enumerate(record.shape):
        yield from (_of_size(record, axis, less) for less in _less(size))


def _less(value: int) -> list[int]:
    """Return numbers that are nearer to 0, of the same sign."""
    sign, size = (1, value) if value > 0 else (-1, -value)
    return [sign * less for less in sorted({1, 2, size // 2, size - 1}) if 0 < less < size]


def _plainer(record: Record) -> Iterator[Record]:
    yield replace(record, special=None)
    yield replace(record, dtype="float32")
    yield replace(record, dynamic=False)
    yield replace(record, constant=True)
    for name in record.attributes:
        left = {other: value for other, value in record.attributes.items() if other != name}
        yield replace(record, attributes=left)
    if row_of(record).default_axis is not None:
        yield replace(record, axis=None)
    rank, axis = len(record.shape), record.axis or 0
    if 0 < axis < rank:  # the same axis, first
        shape = (record.shape[axis], *record.shape[:axis], *record.shape[axis + 1 :])
        yield replace(record, axis=0, shape=shape)
    yield replace(record, opset=None)
