"""Compare the copies of elements on several ranks, and keep one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import PlanError
from splitops.files.extents import Column, Extent, Extents
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor

_BLOCK: Final = 1 << 20


def check_equal(label: str, one: Source, kept: Extent, other: Source, copy: Extent) -> None:
    """Compare two stored copies of the same elements block by block. Raise PlanError if they differ.

    ``kept`` is the extent of the first in the source ``one``, ``copy`` that of the second in ``other``.
    """
    if kept.runs == 1 or (kept.run == kept.stride and copy.run == copy.stride):  # contiguous
        kept, copy = (each._replace(stride=1, run=1, runs=each.bytes) for each in (kept, copy))
    step = max(1, _BLOCK // max(kept.stride, copy.stride))
    for row in range(0, kept.runs, step):
        count = min(step, kept.runs - row)
        if not np.array_equal(_read_runs(one, kept, row, count), _read_runs(other, copy, row, count)):
            raise PlanError(f"{label}: the copies in {one.name} and {other.name} differ")


def _read_runs(source: Source, extent: Extent, row: int, count: int) -> npt.NDArray[Any]:
    size = (count - 1) * extent.stride + extent.run
    data = np.frombuffer(source.read(extent.offset + row * extent.stride, size), np.uint8)
    return np.lib.stride_tricks.as_strided(data, (count, extent.run), (extent.stride, 1), writeable=False)


def deduplicate(tensors: Sequence[StoredTensor], extents: Extents, sources: Sequence[Source]) -> Extents:
    """Return one extent per target range, ordered by target. Raise PlanError if duplicates differ."""
    table = extents.table.copy()
    table[table[:, Column.RUNS] == 1, Column.TARGET_STRIDE] = 0  # a single run has no stride
    keys = (Column.TARGET, Column.TARGET_OFFSET, Column.RUN, Column.RUNS, Column.TARGET_STRIDE)
    places = table[:, keys]
    order = np.lexsort(places.T[::-1])
    new = np.concatenate(([True], (np.diff(places[order], axis=0) != 0).any(1)))[: len(order)]
    kept = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    for at in np.flatnonzero(~new).tolist():
        one, copy = extents[int(order[kept[at]])], extents[int(order[at])]
        label = tensors[one.target].label
        check_equal(label, sources[one.source], one, sources[copy.source], copy)
    return Extents(extents.table[order[new]])
