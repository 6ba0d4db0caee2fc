"""The native core in NumPy, with the same plans and checks. Tests compare it with the compiled core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.native._types import Array, Parts, SplitPlan


def _check_integers(values: Sequence[int], what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{what} must be a tuple or list of int, not {type(values).__name__}")
    result = tuple(values)
    for i, value in enumerate(result):
        if not isinstance(value, int):
            raise TypeError(f"{what}[{i}] must be an int, not {type(value).__name__}")
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{what}[{i}] does not fit into 64 bits")
    return result


def _check_exact_array(array: object) -> Array:
    if type(array) is not np.ndarray:
        raise TypeError(f"expected an np.ndarray (no subclass), got {type(array).__name__}")
    return array


class Plan(SplitPlan):
    """A plan in NumPy; see its base class."""

    __slots__ = ("axis", "offsets", "sequence", "shape", "sizes", "squeeze")
    __module__ = "splitops"

    def __init__(
        self,
        shape: Sequence[int],
        axis: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        squeeze: bool = False,
        sequence: bool = False,
    ) -> None:
        if not isinstance(axis, int):
            raise TypeError(f"axis must be an int, not {type(axis).__name__}")
        if not isinstance(squeeze, bool):
            raise TypeError(f"squeeze must be a bool, not {type(squeeze).__name__}")
        if not isinstance(sequence, bool):
            raise TypeError(f"sequence must be a bool, not {type(sequence).__name__}")
        extents = _check_integers(shape, "shape")
        starts, lengths = _check_integers(offsets, "offsets"), _check_integers(sizes, "sizes")
        if any(extent < 0 for extent in extents):
            raise ValueError("shape has a negative extent")
        if not 0 <= axis < len(extents):
            raise ValueError(f"axis {axis} is outside [0, {len(extents)})")
        if len(starts) != len(lengths):
            raise ValueError(f"{len(starts)} offsets, but {len(lengths)} sizes")
        for i, (offset, size) in enumerate(zip(starts, lengths, strict=True)):
            if offset < 0 or size < 0 or offset + size > extents[axis]:
                raise ValueError(
                    f"part {i} at offset {offset} with size {size} lies outside axis {axis} "
                    f"of size {extents[axis]}"
                )
            if squeeze and size != 1:
                raise ValueError(f"part {i} has size {size}: only an axis of size 1 can be removed")
        for name, value in zip(
            ("shape", "axis", "offsets", "sizes", "squeeze", "sequence"),
            (extents, int(axis), starts, lengths, squeeze, sequence),
            strict=True,
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"readonly attribute {name!r}")

    if TYPE_CHECKING:  # `set_calls` defines it

        def __call__(
            self, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None
        ) -> tuple[Any, ...] | list[Any]:
            """Split data of the plan's shape."""

    def _check_array(self, array: object) -> Array:
        data = _check_exact_array(array)
        if data.shape != self.shape:
            raise ValueError(f"this plan is for shape {self.shape}, got an array of shape {data.shape}")
        return data

    def _cut(self, data: Array) -> Iterator[Array]:
        before = (slice(None),) * self.axis
        for offset, size in zip(self.offsets, self.sizes, strict=True):
            cut: int | slice = offset if self.squeeze else slice(offset, offset + size)
            key: tuple[slice | int | EllipsisType, ...] = (*before, cut, ...)
            yield data[key]

    def views(self, array: Array) -> Parts:
        """Return the parts of an exact array as views.

        A part is writeable if the array is, and keeps the array's memory alive.

        Raises:
            TypeError: the array is not an exact ``np.ndarray``; also raised by the other methods.
            ValueError: the array does not have the shape of the plan; also raised by the other methods.
        """
        container: Callable[[Iterator[Array]], Parts] = list if self.sequence else tuple
        return container(self._cut(self._check_array(array)))

    def copies(self, array: Array, *, separate: bool = False) -> Parts:
        """Return the parts of an exact array as independent, C-contiguous, writeable arrays.

        The compiled core allocates the parts of one call together, each aligned to 64 bytes. From 32 KiB on,
        the memory comes from a pool, to which it returns when the last part is freed. NumPy allocates parts
        with objects or variable-width strings.

        Args:
            array: an array of the plan's shape.
            separate: whether to allocate each part separately, so that some can be freed before others.

        Raises:
            MemoryError: the parts do not fit in memory.
        """
        data = self._check_array(array)
        others = prod(self.shape[: self.axis] + self.shape[self.axis + 1 :])
        if sum(self.sizes) * data.itemsize * others > INT64_MAX:
            raise MemoryError("the total size of the parts does not fit into 63 bits")
        container: Callable[[Iterator[Array]], Parts] = list if self.sequence else tuple
        return container(part.copy(order="C") for part in self._cut(data))

    def copies_into(self, array: Array, out: Sequence[Array]) -> None:
        """Copy the parts of an exact array into given arrays.

        All of ``out`` is checked before the first part is written. The caller must ensure that the arrays in
        it overlap neither ``array`` nor each other.

        Args:
            array: an array of the plan's shape.
            out: a tuple or list with one exact array per part, with its shape and dtype, and any strides.

        Raises:
            TypeError: ``out`` is not a tuple or list, or contains anything but exact arrays.
            ValueError: ``out`` has the wrong length, or an array in it has another shape or dtype or is
                read-only.
        """
        parts = self.views(array)
        if not isinstance(out, (tuple, list)):
            raise TypeError(f"out must be a tuple or list of np.ndarray, not {type(out).__name__}")
        targets = tuple(out)
        if len(targets) != len(parts):
            raise ValueError(f"out has {len(targets)} arrays, but there are {len(parts)} parts")
        for i, (target, part) in enumerate(zip(targets, parts, strict=True)):
            _check_exact_array(target)
            if target.shape != part.shape:
                raise ValueError(f"out[{i}] must have shape {part.shape}, not {target.shape}")
            if target.dtype != part.dtype:
                raise ValueError(f"out[{i}] must have dtype {part.dtype}, not {target.dtype}")
            if not target.flags.writeable:
                raise ValueError(f"out[{i}] is read-only")
        for target, part in zip(targets, parts, strict=True):
            np.copyto(target, part)

    def fill(self, array: Array, out: Sequence[Array]) -> Parts | None:
        """Copy the parts into given arrays if these are certain to match and to share no memory.

        Only the address bounds of the arrays are compared, so interleaved arrays are not filled. Without the
        compiled core, no arrays are filled. ``out`` may be, and may contain, an object of any type.

        Returns:
            The arrays in ``out``, in a tuple or, for plans with ``sequence``, in a list; None if nothing was
            written.
        """
        self._check_array(array)
        return None


Plan.__doc__ = SplitPlan.__doc__


def set_calls(plan: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Set the ``__call__`` of plans. ``function`` is not used, because only the core caches calls."""
    Plan.__call__ = plan  # type: ignore[method-assign]


_settings = {"threads": 1, "pool_limit": 0}


def set_threads(threads: int) -> None:
    """Store the number of threads. It has no effect, because NumPy copies with one thread."""
    _settings["threads"] = threads


def threads() -> int:
    """Return the number of threads that :func:`set_threads` stored."""
    return _settings["threads"]


def instruction_sets() -> tuple[str, ...]:
    """Return an empty tuple: NumPy chooses its instruction set itself."""
    return ()


def set_pool_limit(bytes: int) -> None:
    """Store the limit. It has no effect, because there is no pool."""
    _settings["pool_limit"] = bytes


def pool_counters() -> tuple[int, int, int, int, int, int, int]:
    """Return the limit, and zeros for the other fields of PoolStatistics, because there is no pool."""
    return (_settings["pool_limit"], 0, 0, 0, 0, 0, 0)


def release_pool() -> None:
    """Do nothing, because there is no pool."""
