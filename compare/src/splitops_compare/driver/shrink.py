"""Shrinks a case to a smaller one with the same verdict, by one change at a time.

Smaller means, in this order: fewer axes, fewer outputs, fewer elements, smaller sizes and lengths, and
simpler (nothing special, float32, a static shape, constants, fewer attributes, the default axis, the opset of
the version). A size or length is not reduced to 0 by itself, because that would be another case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from splitops.errors import SplitError
from splitops_compare.cases import build_case, make_entry
from splitops_compare.cases.fusion_patterns import FUSION_PATTERNS
from splitops_compare.cases.names import get_schema
from splitops_compare.data import Case, CaseSpec

_MAX_ELEMENTS: Final = 1 << 24


def shrink(case: Case, has_same_verdict: Callable[[Case], bool], seconds: float) -> Case | None:
    """Return the smallest case with the same verdict found in ``seconds``, or None if none is found."""
    deadline = time.monotonic() + seconds
    best: Case | None = None
    spec = case.spec
    tried: set[str] = set()
    while spec is not None:
        for candidate in sorted(iter_smaller(spec), key=make_sort_key):
            if time.monotonic() > deadline:
                return best
            smaller = _build_new(candidate, case, tried)
            if smaller is not None and has_same_verdict(smaller):
                best, spec = smaller, candidate
                break
        else:
            return best
    return best


def _build_new(spec: CaseSpec, case: Case, tried: set[str]) -> Case | None:
    """Build the case of a spec.

    Return None if the spec was tried, cannot be built, is too large, or has another ``error`` than ``case``.
    """
    text = str(spec)
    if text in tried:
        return None
    tried.add(text)
    if math.prod(spec.shape) > _MAX_ELEMENTS:  # the axis of size 0 next to a huge one was dropped
        return None
    try:
        smaller = build_case(make_entry(spec))
    except SplitError:
        return None
    return smaller if smaller.error == case.error else None


def make_sort_key(spec: CaseSpec) -> tuple[Any, ...]:
    """Return the sort key of a spec: smaller specs have smaller keys."""
    return (
        len(spec.shape),
        len(spec.outputs),
        math.prod(spec.shape),
        sum(spec.shape),
        sum(abs(number) for value in _get_lengths(spec).values() for number in _flatten(value)),
        spec.special is not None,
        spec.dtype != "float32",
        spec.dynamic,
        not spec.constant,
        len(spec.attributes),
        spec.axis is not None,
        abs(spec.axis or 0),
        spec.opset is not None,
    )


def _flatten(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [number for result in value for number in _flatten(result)]
    return [int(value)] if isinstance(value, int) else []


def iter_smaller(spec: CaseSpec) -> Iterator[CaseSpec]:
    """Yield specs that are smaller by one change. Not all of them can be built.

    A fusion pattern has a fixed size, so nothing is yielded for it.
    """
    if spec.special in FUSION_PATTERNS:  # these have a fixed size
        return
    key = make_sort_key(spec)
    changes = (_drop_axis, _drop_part, _reduce_size, _simplify)
    yield from (smaller for change in changes for smaller in change(spec) if make_sort_key(smaller) < key)


def _drop_axis(spec: CaseSpec) -> Iterator[CaseSpec]:
    """Drop one axis that is not split. An axis that is out of range stays equally far out."""
    rank, set_axis = len(spec.shape), spec.axis or 0
    axis = set_axis % rank if -rank <= set_axis < rank else None
    for other in range(rank):
        if axis is None:
            moved = set_axis - 1 if set_axis > 0 else set_axis + 1
        else:
            moved = set_axis - (other < axis) if set_axis >= 0 else set_axis + (other > axis)
        shape = spec.shape[:other] + spec.shape[other + 1 :]
        if other != axis:
            yield replace(spec, shape=shape, axis=None if spec.axis is None else moved)


def _drop_part(spec: CaseSpec) -> Iterator[CaseSpec]:
    """Drop one part or reduce one number.

    Each change in a list of lengths is made twice: with the same change of the axis size, if that is
    possible, and without it.
    """
    count, counted = len(spec.outputs), False
    for name, value in _get_lengths(spec).items():
        if isinstance(value, list | tuple):
            counted |= len(value) == count
            for index, length in enumerate(value) if all(isinstance(one, int) for one in value) else ():
                fewer = [()] if len(value) > 1 else []
                for rest in (*fewer, *((less,) for less in _list_smaller(length))):
                    changed = _set_value(spec, name, [*value[:index], *rest, *value[index + 1 :]])
                    if not rest:
                        changed = replace(changed, outputs=_drop_output(spec, index))
                    yield from _change_axis_size(changed, sum(rest) - (length if rest else max(length, 0)))
                    yield changed
        elif isinstance(value, int):
            counted |= value == count
            yield from (_set_value(spec, name, less) for less in _list_smaller(value))
            if name and value == count > 1:
                yield replace(_set_value(spec, name, value - 1), outputs=spec.outputs[:-1])
    # If the node sets the number of parts, fewer outputs would be another case.
    for index in range(count) if count > 1 and not counted else ():
        yield replace(spec, outputs=_drop_output(spec, index))


def _get_lengths(spec: CaseSpec) -> dict[str, Any]:
    """Return the values that may be lengths: the attributes, keyed by name, and the input as ``""``."""
    return {"": spec.lengths, **spec.attributes}


def _drop_output(spec: CaseSpec, index: int) -> tuple[str, ...]:
    """Return the outputs without that of one part. A single output, such as a sequence, is kept."""
    names = spec.outputs
    return names if len(names) == 1 else names[:index] + names[index + 1 :]


def _set_value(spec: CaseSpec, name: str, value: Any) -> CaseSpec:
    if not name:
        return replace(spec, lengths=value)
    return replace(spec, attributes={**spec.attributes, name: value})


def _change_axis_size(spec: CaseSpec, change: int) -> Iterator[CaseSpec]:
    """Yield the spec with ``change`` added to the size of the split axis, if that is possible."""
    rank, axis = len(spec.shape), spec.axis or 0
    if -rank <= axis < rank and spec.shape[axis] + change >= 0:
        yield _set_size(spec, axis % rank, spec.shape[axis] + change)


def _set_size(spec: CaseSpec, axis: int, size: int) -> CaseSpec:
    return replace(spec, shape=(*spec.shape[:axis], size, *spec.shape[axis + 1 :]))


def _reduce_size(spec: CaseSpec) -> Iterator[CaseSpec]:
    for axis, size in enumerate(spec.shape):
        yield from (_set_size(spec, axis, less) for less in _list_smaller(size))


def _list_smaller(value: int) -> list[int]:
    """Return up to four numbers with the same sign that are closer to 0, but not 0."""
    sign, size = (1, value) if value > 0 else (-1, -value)
    return [sign * less for less in sorted({1, 2, size // 2, size - 1}) if 0 < less < size]


def _simplify(spec: CaseSpec) -> Iterator[CaseSpec]:
    yield replace(spec, special=None)
    yield replace(spec, dtype="float32")
    yield replace(spec, dynamic=False)
    yield replace(spec, constant=True)
    for name in spec.attributes:
        left = {other: value for other, value in spec.attributes.items() if other != name}
        yield replace(spec, attributes=left)
    if get_schema(spec).default_axis is not None:
        yield replace(spec, axis=None)
    rank, axis = len(spec.shape), spec.axis or 0
    if 0 < axis < rank:  # move the axis to the front
        shape = (spec.shape[axis], *spec.shape[:axis], *spec.shape[axis + 1 :])
        yield replace(spec, axis=0, shape=shape)
    yield replace(spec, opset=None)
