"""Boxes of a tensor: pieces cut along any axes, checked to make up the whole, and their bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from splitops.errors import PlanError, brief
from splitops.files.extents import Extent, contiguous, walked
from splitops.files.tensors import StoredTensor

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
def prove_boxes(boxes: tuple[Box, ...], shape: tuple[int, ...]) -> None:
    """Reject boxes that do not give every element of a shape exactly once.

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
    if held < math.prod(shape):
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


def box_extents(tensor: StoredTensor, box: Box, source: int, offset: int) -> Iterator[Extent]:
    """Yield which bytes of a piece go where in the whole tensor, target 0.

    Args:
        tensor: the whole.
        box: the piece.
        source: the position of the piece's file.
        offset: where the piece begins in it.

    Raises:
        PlanError: the piece begins or ends inside of a byte.
    """
    whole = tensor.shape
    if not math.prod(box.shape):
        return
    cut = [axis for axis, size in enumerate(whole) if box.shape[axis] != size] or [0]
    first, last = cut[0], cut[-1]
    strides = [math.prod(whole[axis + 1 :]) for axis in range(len(whole))]
    run = math.prod(box.shape[last:])
    # What is walked: the axes before the first cut as one, and those up to the last one; as the count, the
    # steps in the whole and in the piece.
    walks = [(math.prod(whole[:first]), math.prod(whole[first:]), run * math.prod(box.shape[first:last]))]
    walks += [
        (box.shape[a], strides[a], run * math.prod(box.shape[a + 1 : last])) for a in range(first, last)
    ]
    at = sum(begin * step for begin, step in zip(box.begin, strides, strict=True))
    begin = contiguous(source, offset, 0, _bytes(at, tensor), _bytes(run, tensor))
    yield from walked(
        begin, [(n, _bytes(own, tensor), _bytes(step, tensor)) for n, step, own in walks if n > 1]
    )


def _bytes(elements: int, tensor: StoredTensor) -> int:
    unit = tensor.unit
    if elements % unit.elements:
        raise PlanError(f"a piece goes through {unit.elements} elements in {unit.bytes} bytes")
    return elements // unit.elements * unit.bytes
