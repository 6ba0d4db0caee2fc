"""Boxes of a tensor: pieces cut along any axes, checked to make up the whole, and their bytes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from splitops.errors import PlanError, brief
from splitops.files.extents import Extent, coalesce_axes, invert, make_contiguous, steps_of, walked
from splitops.files.tensors import StoredTensor, Unit

_MOST_CELLS = 1 << 22


class Box(NamedTuple):
    """A piece of a tensor: of each axis the first position, and how many."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """Of each axis, the position behind the last one."""
        return tuple(b + n for b, n in zip(self.begin, self.shape, strict=True))


@lru_cache(maxsize=1024)
def prove_boxes(boxes: tuple[Box, ...], shape: tuple[int, ...], *, part: bool = False) -> None:
    """Reject boxes that do not give every element of a shape exactly once."""
    for box in boxes:
        if any(end > size for end, size in zip(box.end, shape, strict=True)):
            raise PlanError(
                f"a piece of shape {brief(box.shape)} at {brief(box.begin)} ends outside of {brief(shape)}"
            )
    filled = sorted(box for box in boxes if math.prod(box.shape))
    edges = [
        sorted({0, *(end for box in filled for end in (box.begin[axis], box.end[axis]))} - {size})
        for axis, size in enumerate(shape)
    ]
    if math.prod(map(len, edges)) > _MOST_CELLS:
        raise PlanError(f"{len(filled)} pieces of shape {brief(shape)} lie in no grid of {_MOST_CELLS} cells")
    cut = [axis for axis, found in enumerate(edges) if len(found) != 1]  # arrays have few axes
    counts = np.zeros([len(edges[axis]) for axis in cut] if math.prod(shape) else 0, np.int32)
    covered = 0
    for box in filled:
        ends = [(edges[axis], box.begin[axis], box.end[axis]) for axis in cut]
        place = tuple(slice(bisect_left(edge, b), bisect_left(edge, e)) for edge, b, e in ends)
        counts[place] += 1
        covered += counts[place].size
        if covered > counts.size:  # two overlap
            break
    wrong = np.argwhere(counts > 1 if part or covered > counts.size else counts != 1)[:1].tolist()
    if not wrong:
        return
    at = [0] * len(shape)
    for axis, index in zip(cut, wrong[0], strict=True):
        at[axis] = edges[axis][index]
    held = [box for box in filled if all(b <= i < e for i, b, e in zip(at, box.begin, box.end, strict=True))]
    if not held:
        total = sum(math.prod(box.shape) for box in filled)
        raise PlanError(
            f"the pieces hold {total} elements of shape {brief(shape)}: nothing is at {brief(at)}"
        )
    if not shape:
        raise PlanError("two pieces are the same single element")
    (one, size), (other, more) = held[:2]
    raise PlanError(
        f"the pieces at {brief(one)} and {brief(other)}, of shapes {brief(size)} and {brief(more)}, overlap"
    )


def box_extents(tensor: StoredTensor, box: Box, source: int, offset: int) -> list[Extent]:
    """Return which bytes of a piece go where in the whole tensor, target 0."""
    steps = steps_of(tensor.shape)
    begin = sum(at * step for at, step in zip(box.begin, steps, strict=True))
    walks = list(zip(box.shape, steps, steps_of(box.shape), strict=True))
    return [
        invert(extent)._replace(source=source, offset=offset + extent.target_offset)
        for extent in strided(tensor, begin, walks)
    ]


def strided(tensor: StoredTensor, begin: int, walks: Sequence[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield which bytes of a tensor (source 0) are those of another (target 0), in long runs.

    A walk has of an axis of the other the number of positions, and how many elements lie from one to the
    next, in the tensor and in the other.
    """
    if not all(count for count, _, _ in walks):
        return
    (apart, run), unit = coalesce_axes(walks), tensor.unit
    yield from walked(
        make_contiguous(0, unit_bytes(begin, unit), 0, 0, unit_bytes(run, unit)),
        [(count, unit_bytes(step, unit), unit_bytes(own, unit)) for count, step, own in apart],
    )


def unit_bytes(elements: int, unit: Unit) -> int:
    """Return the bytes of so many elements."""
    if elements % unit.elements:
        raise PlanError(f"a cut goes through {unit.elements} elements in {unit.bytes} bytes")
    return elements // unit.elements * unit.bytes
