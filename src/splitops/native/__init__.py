"""Moving the bytes of a split: views, fresh copies, copies into given buffers.

This layer knows extents, strides and bytes, and nothing of operators. A :class:`Plan` is a split as an axis,
the offset and size of each part along it, and whether the axis (of size 1 in each part) is removed. Its
bounds are checked when it is made, and each array against its shape, for every caller.

All is compiled C++ where the extension module could be built and imported (`available`), and the same in
NumPy elsewhere. ``SPLITOPS_NATIVE=0`` in the environment forces NumPy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from splitops.native import fallback
from splitops.native._types import Array, Parts, PoolStatistics, SplitPlan
from splitops.native.resources import default_pool_limit, thread_count

__all__ = [
    "Array",
    "Function",
    "Parts",
    "Plan",
    "PoolStatistics",
    "SplitPlan",
    "available",
    "get_num_threads",
    "instruction_set",
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
"""Gives plans and functions their ``__call__`` in Python.

``set_calls(plan, function)``: an instance does in C what it can, such as a plan all of an exact array of its
shape, and calls the function else. Tracers and `inspect` find the functions in the place of ``__call__``.
"""

Function: Any = getattr(_implementation, "Function", None)
"""A Python function whose calls on NumPy arrays are remembered as plans; None without the compiled core.

Made by ``Function(function, planner, names, defaults, positional)``: the names of the function's parameters,
which begin with the array and end with ``copy`` and ``out``, the defaults of those at the end, and how many
may be given by their place. A call that can be remembered asks ``planner(array, ...)``, with all values
before ``copy``, for the `Plan`, once, and runs it; every other call is the function's.

A call can be remembered where the data are an exact `np.ndarray`, not of objects, and the other values
exactly `None`, `int` (64 bits), a `list` or `tuple` of exact `int`, or an exact array of int64 or int32 of
rank 0 or 1; anything else, such as `True`, `1.0` or `np.int64(1)`, cannot. The dtype object, rank and extents
of the data are part of what is remembered; the memo is bounded and thread-safe.
"""


def instruction_set() -> str | None:
    """The instruction set whose kernels the compiled core uses here; None without the core."""
    return next(iter(_implementation.instruction_sets()), None)


def set_num_threads(n: int | None) -> None:
    """Sets how many threads a large copy may use, the caller's included.

    Args:
        n: the number; None restores the default: ``SPLITOPS_NUM_THREADS`` from the environment, else the
            processors that affinity and control groups leave to this process.

    Raises:
        TypeError: ``n`` is not an int.
        ValueError: ``n`` is not in [1, 1024].

    Examples:
        >>> import splitops
        >>> splitops.set_num_threads(1)
        >>> splitops.get_num_threads()
        1
        >>> splitops.set_num_threads(None)
    """
    if n is None:
        n = min(thread_count(), _MAX_THREADS)
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"the number of threads must be an int or None, not {type(n).__name__}")
    if not 1 <= n <= _MAX_THREADS:
        raise ValueError(f"the number of threads must be in [1, {_MAX_THREADS}], not {n}")
    _implementation.set_threads(n)


def get_num_threads() -> int:
    """How many threads a large copy may use, the caller's included.

    Examples:
        >>> import splitops
        >>> splitops.get_num_threads() >= 1
        True
    """
    return _implementation.threads()


def pool_limit(bytes: int | None = None) -> int:
    """Bytes that the pool of output memory may keep idle; sets them first if an int is given.

    Args:
        bytes: the new limit; what is idle beyond it is freed at once, and 0 keeps nothing. The default is an
            eighth of the memory of this process, 512 MiB at most.

    Raises:
        TypeError: ``bytes`` is not an int.
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
    """What the pool of output memory holds and has done; all zero but the limit without the core.

    Examples:
        >>> import splitops
        >>> splitops.pool_statistics().limit == splitops.pool_limit()
        True
    """
    return PoolStatistics(*_implementation.pool_counters())


def release_pool() -> None:
    """Frees the idle blocks of the pool. Blocks that arrays use return to it later as always.

    Examples:
        >>> import splitops
        >>> splitops.release_pool()
    """
    _implementation.release_pool()


set_num_threads(None)
pool_limit(default_pool_limit())
