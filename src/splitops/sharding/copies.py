"""Copies of the same bytes on several ranks: checked to be equal before one of them is used."""

from __future__ import annotations

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
    if kept.runs == 1 or (kept.run == kept.stride and copy.run == copy.stride):
        steps = [(at, min(_BLOCK, kept.bytes - at), 1) for at in range(0, kept.bytes, _BLOCK)]
        places = [((kept.offset + at, 0), (copy.offset + at, 0), run, count) for at, run, count in steps]
    else:
        step = max(1, _BLOCK // max(kept.stride, copy.stride))
        places = [
            (
                (kept.offset + row * kept.stride, kept.stride),
                (copy.offset + row * copy.stride, copy.stride),
                kept.run,
                min(step, kept.runs - row),
            )
            for row in range(0, kept.runs, step)
        ]
    for first, second, run, count in places:
        if not np.array_equal(_rows(one, *first, run, count), _rows(other, *second, run, count)):
            raise PlanError(f"{label}: the copies in {one.name} and {other.name} differ, so neither is taken")


def _rows(source: Source, offset: int, stride: int, run: int, count: int) -> npt.NDArray[Any]:
    data = np.frombuffer(source.read(offset, (count - 1) * stride + run), np.uint8)
    return np.lib.stride_tricks.as_strided(data, (count, run), (stride, 1), writeable=False)
