"""Types that both implementations share, and everything in a plan except copying."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
"""An exact NumPy array, not an instance of a subclass."""

Parts = tuple[Array, ...] | list[Array]
"""The parts of a split, in a tuple or, for plans with ``sequence``, in a list."""


class SplitPlan:
    """A split in numbers, independent of operators: where each part begins and how long it is.

    The numbers in a :class:`Plan` are plain integers. It can run on any number of arrays of its shape.

    Attributes:
        shape: shape of the data.
        axis: split axis, in [0, rank).
        offsets: offset of each part on the axis.
        sizes: size of each part on the axis.
        squeeze: whether the axis is removed from the parts, which have size 1 along it.
        sequence: whether the parts are returned in a list (SplitToSequence) instead of a tuple.

    Examples:
        >>> import numpy as np, splitops
        >>> plan = splitops.plan("Split", shape=(6, 4), axis=0, split=[2, 4], opset=18)
        >>> plan.sizes, plan.offsets, plan.shapes
        ((2, 4), (0, 2), ((2, 4), (4, 4)))
        >>> [part.shape for part in plan(np.zeros((6, 4)))]
        [(2, 4), (4, 4)]
    """

    __slots__ = ()
    shape: tuple[int, ...]
    axis: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    squeeze: bool
    sequence: bool

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each part."""
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        if self.squeeze:
            return (before + after,) * len(self.sizes)
        return tuple((*before, size, *after) for size in self.sizes)

    def _get_state(self) -> tuple[Any, ...]:
        return self.shape, self.axis, self.offsets, self.sizes, self.squeeze, self.sequence

    def __repr__(self) -> str:
        sizes = self.sizes
        if len(sizes) > 16:  # the first and last parts of a split into thousands
            shown = f"{', '.join(map(str, sizes[:8]))}, ..., {', '.join(map(str, sizes[-2:]))}"
            text = f"({shown}) of {len(sizes)} parts"
        else:
            text = repr(sizes)
        flags = "".join(f", {name}=True" for name in ("squeeze", "sequence") if getattr(self, name))
        return f"Plan(shape={self.shape}, axis={self.axis}, sizes={text}{flags})"

    def __eq__(self, other: object) -> bool:
        return self._get_state() == other._get_state() if isinstance(other, SplitPlan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._get_state()


class PoolStatistics(NamedTuple):
    """Statistics of the pool of output memory.

    Calls with outputs of less than 32 KiB use the ordinary allocator and are not counted.
    """

    limit: int
    """Maximum idle bytes."""
    idle_bytes: int
    idle_blocks: int
    used_bytes: int
    """Bytes of the blocks that arrays use."""
    used_blocks: int
    reuses: int
    """Number of requests that reused an idle block."""
    allocations: int
    """Number of requests that allocated new memory."""
