"""Boxes of a tensor: pieces cut along any axes, checked to make up the whole, and their bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from splitops.errors import PlanError, brief
from splitops.files.extents import Extent, contiguous, inverse, runs_along, steps_of, walked
from splitops.files.tensors import StoredTensor, Unit

_MOST_CELLS = 1 << 20


class Box(NamedTuple):
    """A piece of a tensor.

    Attributes:
        begin: of each axis, the first position.
        shape: of each axis, how many.
    """

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """Of each axis, the position behind the last one."""
        return tuple(b + n for b, n in zip(self.begin, self.shape, strict=True))


@lru_cache(maxsize=1024)
def prove_boxes(boxes: tuple[Box, ...], shape: tuple[int, ...], *, part: bool = False) -> None:
    """Reject boxes that do not give every element of a shape exactly once.

    Args:
        boxes: the pieces.
        shape: of the whole.
        part: whether elements may be left out.

    Raises:
        PlanError: one lies outside, two overlap, or something is left out; it says where.
    """
    for box in boxes:
        if any(end > size for end, size in zip(box.end, shape, strict=True)):
            raise PlanError(
                f"a piece of shape {brief(box.shape)} at {brief(box.begin)} ends outside of {brief(shape)}"
            )
    filled = [box for box in boxes if math.prod(box.shape)]
    _reject_overlaps(filled)
    held = sum(math.prod(box.shape) for box in filled)
    if held < math.prod(shape) and not part:
        gap = _gap(filled, shape)
        where = f"nothing is at {brief(gap)}" if gap is not None else "something is left out"
        raise PlanError(f"the pieces hold {held} elements of shape {brief(shape)}: {where}")


def _reject_overlaps(boxes: Sequence[Box]) -> None:
    """Reject two boxes with an element in common; those that begin where another ends are not compared."""
    if not boxes:
        return
    # Along the axis with most beginnings few boxes reach over the next one's.
    axis = max(range(len(boxes[0].shape)), key=lambda a: len({box.begin[a] for box in boxes}), default=None)
    if axis is None:
        if len(boxes) > 1:
            raise PlanError("two pieces are the same single element")
        return
    ordered = sorted(boxes, key=lambda box: box.begin[axis])
    for number, box in enumerate(ordered):
        for at in range(number + 1, len(ordered)):
            other = ordered[at]
            if other.begin[axis] >= box.end[axis]:
                break
            ends = zip(box.begin, box.end, other.begin, other.end, strict=True)
            if all(max(b, ob) < min(e, oe) for b, e, ob, oe in ends):
                raise PlanError(
                    f"the pieces at {brief(box.begin)} and {brief(other.begin)}, of shapes "
                    f"{brief(box.shape)} and {brief(other.shape)}, overlap"
                )


def _gap(boxes: Sequence[Box], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the element that no box holds; None where there are too many places to look at."""
    edges = [
        sorted({0, *(end for box in boxes for end in (box.begin[axis], box.end[axis]) if end < size)})
        for axis, size in enumerate(shape)
    ]
    if math.prod(map(len, edges)) * max(1, len(boxes)) > _MOST_CELLS:
        return None
    return next(
        place
        for place in itertools.product(*edges)
        if not any(
            all(b <= at < e for at, b, e in zip(place, box.begin, box.end, strict=True)) for box in boxes
        )
    )


def box_extents(tensor: StoredTensor, box: Box, source: int, offset: int) -> list[Extent]:
    """Return which bytes of a piece go where in the whole tensor, target 0.

    Args:
        tensor: the whole.
        box: the piece.
        source: the position of the piece's file.
        offset: where the piece begins in it.

    Raises:
        PlanError: the piece begins or ends inside of a byte.
    """
    steps = steps_of(tensor.shape)
    begin = sum(at * step for at, step in zip(box.begin, steps, strict=True))
    walks = list(zip(box.shape, steps, steps_of(box.shape), strict=True))
    return [
        inverse(extent)._replace(source=source, offset=offset + extent.target_offset)
        for extent in strided(tensor, begin, walks)
    ]


def strided(tensor: StoredTensor, begin: int, walks: Sequence[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield which bytes of a tensor (source 0) are those of another (target 0), in long runs.

    Args:
        tensor: whose elements they are.
        begin: the first of them.
        walks: of each axis of the other, how many positions it has, and how many elements lie from one to the
            next: in the tensor, and in the other one.

    Raises:
        PlanError: a run begins or ends inside of a byte.
    """
    if not all(count for count, _, _ in walks):
        return
    (apart, run), unit = runs_along(walks), tensor.unit
    yield from walked(
        contiguous(0, unit_bytes(begin, unit), 0, 0, unit_bytes(run, unit)),
        [(count, unit_bytes(step, unit), unit_bytes(own, unit)) for count, step, own in apart],
    )


def unit_bytes(elements: int, unit: Unit) -> int:
    """Return the bytes of so many elements.

    Raises:
        PlanError: they end inside of a byte.
    """
    if elements % unit.elements:
        raise PlanError(f"a cut goes through {unit.elements} elements in {unit.bytes} bytes")
    return elements // unit.elements * unit.bytes
