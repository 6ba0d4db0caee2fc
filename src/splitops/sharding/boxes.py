"""Boxes: pieces of a tensor along any axes. Check that they cover the tensor, and locate their bytes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from splitops.errors import PlanError, brief
from splitops.files.extents import (
    Extent,
    coalesce_axes,
    compute_strides,
    invert,
    iter_extents,
    make_contiguous,
)
from splitops.files.tensors import StoredTensor, Unit

_MAX_CELLS = 1 << 22


class Box(NamedTuple):
    """A piece of a tensor: its first index and its size along each axis."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """The index past the last one along each axis."""
        return tuple(b + n for b, n in zip(self.begin, self.shape, strict=True))


@lru_cache(maxsize=1024)
def check_boxes(boxes: tuple[Box, ...], shape: tuple[int, ...], *, part: bool = False) -> None:
    """Check that boxes contain every element of a shape exactly once; with ``part``, at most once."""
    for box in boxes:
        if any(end > size for end, size in zip(box.end, shape, strict=True)):
            raise PlanError(
                f"a piece of shape {brief(box.shape)} at {brief(box.begin)} ends outside of shape "
                f"{brief(shape)}"
            )
    filled = sorted(box for box in boxes if math.prod(box.shape))
    edges = [
        sorted({0, *(end for box in filled for end in (box.begin[axis], box.end[axis]))} - {size})
        for axis, size in enumerate(shape)
    ]
    if math.prod(map(len, edges)) > _MAX_CELLS:
        raise PlanError(
            f"cannot check {len(filled)} pieces of shape {brief(shape)}: they form over {_MAX_CELLS} cells"
        )
    cut = [axis for axis, found in enumerate(edges) if len(found) != 1]  # NumPy limits the number of axes
    counts = np.zeros([len(edges[axis]) for axis in cut] if math.prod(shape) else 0, np.int32)
    covered = 0
    for box in filled:
        ends = [(edges[axis], box.begin[axis], box.end[axis]) for axis in cut]
        place = tuple(slice(bisect_left(edge, b), bisect_left(edge, e)) for edge, b, e in ends)
        counts[place] += 1
        covered += counts[place].size
        if covered > counts.size:  # two boxes overlap
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
            f"the pieces contain {total} elements of shape {brief(shape)}: element {brief(at)} is missing"
        )
    if not shape:
        raise PlanError("two pieces contain the same scalar")
    (one, size), (other, more) = held[:2]
    raise PlanError(
        f"the pieces at {brief(one)} and {brief(other)}, of shapes {brief(size)} and {brief(more)}, overlap"
    )


def locate_box(tensor: StoredTensor, box: Box, source: int, offset: int) -> list[Extent]:
    """Return the extents from a box, stored at ``offset`` of ``source``, to the whole tensor (target 0)."""
    steps = compute_strides(tensor.shape)
    begin = sum(at * step for at, step in zip(box.begin, steps, strict=True))
    walks = list(zip(box.shape, steps, compute_strides(box.shape), strict=True))
    return [
        invert(extent)._replace(source=source, offset=offset + extent.target_offset)
        for extent in iter_strided(tensor, begin, walks)
    ]


def iter_strided(tensor: StoredTensor, begin: int, walks: Sequence[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield the extents that copy a strided view of a tensor (source 0) into another tensor (target 0).

    The view starts at flat index ``begin``. ``walks`` lists, for each axis, its size, its stride in the
    tensor and its stride in the target, all in elements.
    """
    if not all(count for count, _, _ in walks):
        return
    (outer, run), unit = coalesce_axes(walks), tensor.unit
    yield from iter_extents(
        make_contiguous(0, count_bytes(begin, unit), 0, 0, count_bytes(run, unit)),
        [(count, count_bytes(step, unit), count_bytes(own, unit)) for count, step, own in outer],
    )


def count_bytes(elements: int, unit: Unit) -> int:
    """Return the size of ``elements`` in bytes. Raise PlanError if they end inside of packed bytes."""
    if elements % unit.elements:
        raise PlanError(f"a shard would end inside of a group of {unit.elements} packed elements")
    return elements // unit.elements * unit.bytes
