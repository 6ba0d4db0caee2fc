"""Copies of the same bytes on several ranks: checked to be equal before one of them is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import PlanError
from splitops.files.extents import Extent
from splitops.files.sources import Source

_BLOCK: Final = 1 << 20


def prove_equal(label: str, one: Source, kept: Extent, other: Source, copy: Extent) -> None:
    """Reject a copy that differs from the one that is kept; a block of each is in memory.

    Args:
        label: what messages call the tensor.
        one: the file of the one that is kept.
        kept: where it is, as the source of an extent.
        other: the file of the copy.
        copy: where it is, in as many runs of the same length.

    Raises:
        PlanError: they differ.
    """
    if kept.runs == 1 or (kept.run == kept.stride and copy.run == copy.stride):  # rows of a byte each
        kept, copy = (each._replace(stride=1, run=1, runs=each.bytes) for each in (kept, copy))
    step = max(1, _BLOCK // max(kept.stride, copy.stride))
    for row in range(0, kept.runs, step):
        count = min(step, kept.runs - row)
        if not np.array_equal(_rows(one, kept, row, count), _rows(other, copy, row, count)):
            raise PlanError(f"{label}: the copies in {one.name} and {other.name} differ, so neither is taken")


def _rows(source: Source, extent: Extent, row: int, count: int) -> npt.NDArray[Any]:
    size = (count - 1) * extent.stride + extent.run
    data = np.frombuffer(source.read(extent.offset + row * extent.stride, size), np.uint8)
    return np.lib.stride_tricks.as_strided(data, (count, extent.run), (extent.stride, 1), writeable=False)


def each_once(label: str, extents: Iterable[Extent], sources: Sequence[Source]) -> tuple[Extent, ...]:
    """Return each place of a whole once, from the first that has it.

    Args:
        label: what messages call the whole.
        extents: to the whole; those to the same place have equal runs.
        sources: the files of the extents.

    Raises:
        PlanError: as :func:`prove_equal`.
    """
    seen: dict[tuple[int, int, int, int], Extent] = {}
    for extent in extents:
        place = (
            extent.target_offset,
            extent.target_stride if extent.runs > 1 else 0,
            extent.run,
            extent.runs,
        )
        kept = seen.setdefault(place, extent)
        if kept is not extent:
            prove_equal(label, sources[kept.source], kept, sources[extent.source], extent)
    return tuple(seen.values())
