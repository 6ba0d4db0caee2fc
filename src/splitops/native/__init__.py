"""Moving the bytes of a split: views, fresh copies, copies into given buffers.

This layer knows extents, strides and bytes, and nothing of operators. A split is given as an axis, the
offset and size of each part along it, and whether the axis (of size 1 in each part) is removed. Every
bound is checked against the array, whoever the caller is.

The functions are compiled C++ where the extension module could be built and imported (`available`), and
the same in NumPy elsewhere. ``SPLITOPS_NATIVE=0`` in the environment forces NumPy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from splitops.native import fallback
from splitops.native._types import Array, PoolStatistics
from splitops.native.resources import default_pool_limit, thread_count

__all__ = [
    "CallCache",
    "Called",
    "PoolStatistics",
    "Recall",
    "Splitter",
    "available",
    "copies",
    "copies_into",
    "fill",
    "get_num_threads",
    "pool_limit",
    "pool_statistics",
    "release_pool",
    "set_num_threads",
    "views",
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

Splitter = _implementation.Splitter
"""A compiled split of arrays of one shape.

Made by ``Splitter(shape, axis, offsets, sizes, squeeze, *, listed=False)``.

- ``splitter(array)``: the parts as views, in a tuple, or in a list if it is ``listed``.
- ``splitter.copies(array, separate=False)``: fresh parts, as `copies` makes them.
- ``splitter.copies_into(array, out)``: as the function `copies_into`.
- ``splitter.fill(array, out)``: as the function `fill`.
"""

CallCache = _implementation.CallCache
"""A bounded, thread-safe memo from the arguments of earlier calls to their `Splitter`.

`CallCache` stores no semantics: the caller proves a call valid, makes its splitter and stores it; the same
arguments then find it. Arguments qualify when they are exactly `None`, `int` (64 bits), or a `list` or
`tuple` of exact `int`; anything else, such as `True`, `1.0` or `np.int64(1)`, never hits. The array must
be an exact `np.ndarray`; its dtype object, rank and extents are part of the key.

- ``cache(array, *arguments)``: the parts as views, in the splitter's container; None if the call is unknown.
- ``cache.copies(array, *arguments)``: fresh parts in the same way.
- ``cache.fill(out, array, *arguments)``: as ``splitter.fill(array, out)``; None if the call is unknown.
- ``cache.store(splitter, array, *arguments)``: True when it was stored.
- ``cache.clear()`` and ``len(cache)``.
"""

Recall = _implementation.Recall
"""A function whose remembered calls are done by its `CallCache`.

Made by ``Recall(function, cache, names, defaults, positional)``: the names of the function's parameters,
which begin with the array and end with ``copy`` and ``out``, the defaults of those at the end, and how many
may be given by their place. Calling it calls the function, unless the cache knows the values between the
array and ``copy``.
"""

Called = _implementation.Called
"""A base of classes whose instances are called without entering Python.

Entering a Python function takes longer than splitting a small array. An instance of a direct subclass, which
must have a ``__call__``, keeps in ``_call`` what does its calls, or None:

- a `Splitter` does those with nothing but an exact `np.ndarray` of its shape;
- a `Recall` does all.

All other calls are those of ``__call__``, which must do the same there. Subclasses of such a class call
what they override or inherit, and assigning ``__call__`` to the class ends the short cut. There is none
without the compiled core or with a free-threaded Python.
"""


def views(
    array: Array, axis: int, offsets: Sequence[int], sizes: Sequence[int], squeeze: bool
) -> tuple[Array, ...]:
    """The parts of an array as views.

    Part i is ``array[..., offsets[i] : offsets[i] + sizes[i], ...]`` along ``axis``; parts may be empty,
    may overlap, and need not cover the axis. A part is writeable if the array is, and keeps its memory
    alive.

    Args:
        array: an exact `np.ndarray` of any dtype and strides.
        axis: in [0, array.ndim).
        offsets: the first position of each part, a tuple or list of int.
        sizes: the size of each part along the axis.
        squeeze: remove the axis from the parts; every size must be 1.

    Raises:
        TypeError: not an exact array, or not integers.
        ValueError: a part lies outside of the array.
    """
    return _implementation.views(array, axis, offsets, sizes, squeeze)


def copies(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    *,
    separate: bool = False,
) -> tuple[Array, ...]:
    """The parts of an array as independent, C-contiguous, writeable arrays of the same dtype.

    The parts of one call lie in one slab of pooled memory, each aligned to 64 bytes. The slab returns to
    the pool when the last of its parts dies; parts that are meant to outlive the others should be
    ``separate``, which gives each an allocation of its own. Other arguments and errors as for `views`.

    Raises:
        MemoryError: the parts do not fit into memory; it says how many bytes they have.
    """
    return _implementation.copies(array, axis, offsets, sizes, squeeze, separate=separate)


def copies_into(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> None:
    """Copies the parts of an array into the caller's arrays.

    ``out`` is a tuple or list with one exact `np.ndarray` a part, of exactly its shape and dtype, with
    any strides. All are checked before the first is written. The caller sees to it that they overlap
    neither the array nor each other. Other arguments and errors as for `views`.

    Raises:
        ValueError: an array of ``out`` has another shape or dtype, or is read-only.
    """
    _implementation.copies_into(array, axis, offsets, sizes, squeeze, out)


def fill(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> tuple[Array, ...] | None:
    """Copies the parts of an array into the caller's arrays where these surely fit and share no memory.

    The arrays may be any; only what is proved by the bounds of their addresses is filled. Interleaved arrays
    have bounds that cross, and without the compiled core nothing is proved.

    Args and errors as for `views`, but that anything may be in ``out``.

    Returns:
        The arrays of ``out``; None where nothing is proved, and then nothing is written.
    """
    return _implementation.fill(array, axis, offsets, sizes, squeeze, out)


def set_num_threads(n: int | None) -> None:
    """Sets how many threads a large copy may use, the caller's included.

    Args:
        n: the number; None restores the default: ``SPLITOPS_NUM_THREADS`` from the environment, else the
            processors that affinity and control groups leave to this process.

    Raises:
        TypeError: ``n`` is no int.
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
        TypeError: ``bytes`` is no int.
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
