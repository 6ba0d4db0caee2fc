"""Copies of the same bytes on several ranks: checked to be equal before one of them is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import PlanError
from splitops.files.extents import Extent, Extents
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor

_BLOCK: Final = 1 << 20


def prove_equal(label: str, one: Source, kept: Extent, other: Source, copy: Extent) -> None:
    """Reject a copy that differs from the one that is kept, of runs as long; a block of each is in memory."""
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


def each_once(tensors: Sequence[StoredTensor], extents: Extents, sources: Sequence[Source]) -> Extents:
    """Return each place of tensors once, from the first that has it, in the order of the tensors.

    Targets of extents are positions of tensors. Copies of one place are proved to be equal.
    """
    places = extents.table[:, 3:].copy()
    places[places[:, 4] == 1, 2] = 0  # the stride of a single run
    order = np.lexsort((places[:, 2], places[:, 4], places[:, 3], places[:, 1], places[:, 0]))
    new = np.concatenate(([True], (np.diff(places[order], axis=0) != 0).any(1)))[: len(order)]
    kept = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    for at in np.flatnonzero(~new).tolist():
        one, copy = extents[int(order[kept[at]])], extents[int(order[at])]
        label = tensors[one.target].label
        prove_equal(label, sources[one.source], one, sources[copy.source], copy)
    return Extents(extents.table[order[new]])
