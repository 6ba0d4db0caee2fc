"""The types that both implementations share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
"""Any exact NumPy array."""

Parts = tuple[Array, ...] | list[Array]
"""The parts of a split, in a tuple or, where the splitter was made so, in a list."""


class PoolStatistics(NamedTuple):
    """What the pool of output memory holds, in bytes and blocks, and what it has done so far.

    Outputs of less than 32 KiB a call come from the ordinary allocator and are not counted.
    """

    limit: int
    """Bytes that may lie idle, at most."""
    idle_bytes: int
    idle_blocks: int
    used_bytes: int
    """Bytes of the blocks that living arrays use."""
    used_blocks: int
    reuses: int
    """Requests met from an idle block."""
    allocations: int
    """Requests that took new memory from the system."""
