"""The bytes of a split: views, new copies, and copies into given buffers.

This layer knows extents, strides and bytes, but no operators. A :class:`Plan` has the axis of a split, the
offset and size of each part along it, and whether the axis is removed from parts of size 1. Its bounds are
checked when it is created, and the shape of each array when it runs.

It is compiled C++ if the extension module can be imported (`available`), otherwise NumPy. The environment
variable ``SPLITOPS_NATIVE=0`` forces NumPy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from splitops.native import fallback
from splitops.native._types import Array, Parts, PoolStatistics, SplitPlan
from splitops.native.resources import compute_pool_limit, count_threads

__all__ = [
    "Array",
    "Function",
    "Parts",
    "Plan",
    "PoolStatistics",
    "SplitPlan",
    "available",
    "get_instruction_set",
    "get_num_threads",
    "pool_limit",
    "pool_statistics",
    "release_pool",
    "set_calls",
    "set_num_threads",
]

available: bool = False
"""Whether the compiled core is in use."""

_implementation = fallback
if not TYPE_CHECKING and os.environ.get("SPLITOPS_NATIVE", "1") != "0":
    try:
        from splitops.native import _core as _implementation

        available = True
    except ImportError:
        pass

_MAX_THREADS = 1024

Plan = _implementation.Plan
set_calls = _implementation.set_calls
"""Sets the ``__call__`` of plans and functions: ``set_calls(plan, function)``.

The compiled core executes calls of plans that it supports, such as on an exact array of the plan's shape, and
calls the given ``plan`` otherwise. It never calls ``function``. Tracers and `inspect` find both as
``__call__``.
"""

Function: Any = getattr(_implementation, "Function", None)
"""A Python function whose calls on NumPy arrays are cached as plans; None without the compiled core.

In ``Function(function, planner, names, defaults, positional)``, ``names`` are the function's parameters: the
array first, ``copy`` and ``out`` last. ``defaults`` are the defaults of the last parameters, and
``positional`` is the number of positional ones. A call that can be cached runs its `Plan`. If that is not in
the cache, it comes from ``planner(array, ...)``, with all values before ``copy``. Every other call runs the
function.

A call can be cached if the data is passed by position and is an exact `np.ndarray` (no subclass) whose dtype
is not object, and each value between the data and ``copy`` is exactly `None`, an `int` that fits into 64
bits, a `list` or `tuple` of exact `int`, or an exact array of int64 or int32 of rank 0 or 1. Calls with other
values, such as `True` or `1.0`, or with many lengths, cannot. The cache key includes the dtype object, rank
and extents of the data. The cache is bounded and thread-safe.
"""


def get_instruction_set() -> str | None:
    """Return the instruction set whose kernels the compiled core uses by default, or None without it."""
    return next(iter(_implementation.instruction_sets()), None)


def set_num_threads(n: int | None) -> None:
    """Set the maximum number of threads for a large copy, including the caller's.

    Without the compiled core, each copy uses one thread.

    Args:
        n: the number; None restores the default: ``SPLITOPS_NUM_THREADS`` from the environment or, without
            it, the number of processors that CPU affinity and control groups permit.

    Raises:
        TypeError: ``n`` is neither an int nor None.
        ValueError: ``n`` is not in [1, 1024].

    Examples:
        >>> import splitops
        >>> splitops.set_num_threads(1)
        >>> splitops.get_num_threads()
        1
        >>> splitops.set_num_threads(None)
    """
    if n is None:
        n = min(count_threads(), _MAX_THREADS)
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"the number of threads must be an int or None, not {type(n).__name__}")
    if not 1 <= n <= _MAX_THREADS:
        raise ValueError(f"the number of threads must be in [1, {_MAX_THREADS}], not {n}")
    _implementation.set_threads(n)


def get_num_threads() -> int:
    """Return the maximum number of threads for a large copy, including the caller's.

    Examples:
        >>> import splitops
        >>> splitops.get_num_threads() >= 1
        True
    """
    return _implementation.threads()


def pool_limit(bytes: int | None = None) -> int:
    """Return the maximum idle bytes of the pool of output memory, after setting it if ``bytes`` is an int.

    Args:
        bytes: the new limit. Idle memory beyond it is freed at once; 0 keeps nothing. None leaves the limit
            unchanged: initially an eighth of the memory that this process may use, at most 512 MiB.

    Raises:
        TypeError: ``bytes`` is neither an int nor None.
        ValueError: ``bytes`` is negative or does not fit into 63 bits.

    Examples:
        >>> import splitops
        >>> before = splitops.pool_limit()
        >>> splitops.pool_limit(64 << 20)
        67108864
        >>> splitops.pool_limit(before) == before
        True
    """
    if bytes is not None:
        if not isinstance(bytes, int) or isinstance(bytes, bool):
            raise TypeError(f"the limit must be an int or None, not {type(bytes).__name__}")
        if not 0 <= bytes < 1 << 63:
            raise ValueError(f"the limit must be in [0, 2**63), not {bytes}")
        _implementation.set_pool_limit(bytes)
    return pool_statistics().limit


def pool_statistics() -> PoolStatistics:
    """Return the statistics of the pool of output memory. Without the core, all except the limit are 0.

    Examples:
        >>> import splitops
        >>> splitops.pool_statistics().limit == splitops.pool_limit()
        True
    """
    return PoolStatistics(*_implementation.pool_counters())


def release_pool() -> None:
    """Free the idle blocks of the pool of output memory. Blocks in use return to it later, as usual.

    Examples:
        >>> import splitops
        >>> splitops.release_pool()
    """
    _implementation.release_pool()


set_num_threads(None)
pool_limit(compute_pool_limit())
