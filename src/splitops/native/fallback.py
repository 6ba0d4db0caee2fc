"""The native core in pure NumPy: the same plans and checks, tested equal to the compiled ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from splitops.native._types import Array, Parts, SplitPlan

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def _integers(values: Sequence[int], what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{what} must be a tuple or list of int, not {type(values).__name__}")
    result = tuple(values)
    for i, value in enumerate(result):
        if not isinstance(value, int):
            raise TypeError(f"{what}[{i}] must be an int, not {type(value).__name__}")
        if not _INT64_MIN <= value <= _INT64_MAX:
            raise ValueError(f"{what}[{i}] does not fit into 64 bits")
    return result


def _exact_array(array: object) -> Array:
    if type(array) is not np.ndarray:
        raise TypeError(f"expected an np.ndarray (no subclass), got {type(array).__name__}")
    return array


class Plan(SplitPlan):
    """A plan in NumPy; it is documented in its base."""

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
        extents = _integers(shape, "shape")
        starts, lengths = _integers(offsets, "offsets"), _integers(sizes, "sizes")
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

    if TYPE_CHECKING:  # `set_calls` says what it is

        def __call__(
            self, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None
        ) -> tuple[Any, ...] | list[Any]:
            """Split data of the plan's shape."""

    def _fitting(self, array: object) -> Array:
        data = _exact_array(array)
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

        A part is writeable if the array is, and keeps its memory alive.

        Raises:
            TypeError: not an exact ``np.ndarray``.
            ValueError: an array of another shape than the plan's; so for the other methods.
        """
        container: Callable[[Iterator[Array]], Parts] = list if self.sequence else tuple
        return container(self._cut(self._fitting(array)))

    def copies(self, array: Array, *, separate: bool = False) -> Parts:
        """Return the parts of an exact array as independent, C-contiguous, writeable arrays.

        The compiled core puts the parts of one call into one slab of pooled memory, each aligned to 64
        bytes. The slab returns to the pool when the last of its parts dies.

        Args:
            array: of the plan's shape.
            separate: give each part an allocation of its own, for parts that are to outlive the others.

        Raises:
            MemoryError: the parts do not fit into memory; it says how many bytes they have.
        """
        data = self._fitting(array)
        others = prod(self.shape[: self.axis] + self.shape[self.axis + 1 :])
        if sum(self.sizes) * data.itemsize * others > _INT64_MAX:
            raise MemoryError("the parts together have more bytes than fit into 63 bits")
        container: Callable[[Iterator[Array]], Parts] = list if self.sequence else tuple
        return container(part.copy(order="C") for part in self._cut(data))

    def copies_into(self, array: Array, out: Sequence[Array]) -> None:
        """Copy the parts of an exact array into the caller's arrays.

        All are checked before the first is written. The caller sees to it that they overlap neither the
        array nor each other.

        Args:
            array: of the plan's shape.
            out: a tuple or list with one exact array a part, of exactly its shape and dtype, with any
                strides.

        Raises:
            ValueError: an array of ``out`` has another shape or dtype, or is read-only.
        """
        parts = self.views(array)
        if not isinstance(out, (tuple, list)):
            raise TypeError(f"out must be a tuple or list of np.ndarray, not {type(out).__name__}")
        targets = tuple(out)
        if len(targets) != len(parts):
            raise ValueError(f"out has {len(targets)} arrays, but there are {len(parts)} parts")
        for i, (target, part) in enumerate(zip(targets, parts, strict=True)):
            _exact_array(target)
            if target.shape != part.shape:
                raise ValueError(f"out[{i}] must have shape {part.shape}, not {target.shape}")
            if target.dtype != part.dtype:
                raise ValueError(f"out[{i}] must have dtype {part.dtype}, not {target.dtype}")
            if not target.flags.writeable:
                raise ValueError(f"out[{i}] is read-only")
        for target, part in zip(targets, parts, strict=True):
            np.copyto(target, part)

    def fill(self, array: Array, out: Sequence[Array]) -> Parts | None:
        """Copy the parts into the caller's arrays where these surely fit and share no memory.

        Only what is proved by the bounds of the arrays' addresses is filled. Interleaved arrays have bounds
        that cross, and without the compiled core nothing is proved. Anything may be in ``out``.

        Returns:
            The arrays of ``out``; None where nothing is proved, and then nothing is written.
        """
        self._fitting(array)
        return None


Plan.__doc__ = SplitPlan.__doc__


def set_calls(plan: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Return how a plan is called; functions without the core do not cache calls."""
    Plan.__call__ = plan  # type: ignore[method-assign]


_settings = {"threads": 1, "pool_limit": 0}


def set_threads(threads: int) -> None:
    """Remembers the number; NumPy copies with one thread."""
    _settings["threads"] = threads


def threads() -> int:
    """The number last set."""
    return _settings["threads"]


def instruction_sets() -> tuple[str, ...]:
    """None: NumPy has its own."""
    return ()


def set_pool_limit(bytes: int) -> None:
    """Remembers the limit; NumPy's allocator keeps no pool of large blocks."""
    _settings["pool_limit"] = bytes


def pool_counters() -> tuple[int, int, int, int, int, int, int]:
    """The limit, and a pool that holds nothing."""
    return (_settings["pool_limit"], 0, 0, 0, 0, 0, 0)


def release_pool() -> None:
    """Do nothing: without the core, no pool exists."""
