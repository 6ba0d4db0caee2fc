"""The native core in pure NumPy: the same functions and checks, tested equal to the compiled ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np

from splitops.native._types import Array, Parts

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MAX_DIMS = 64
_CACHE_ENTRIES = 256
_CACHE_PARTS = 4096
_CACHE_WORDS = 96

_Key = tuple[object, ...]


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


class Splitter:
    """A compiled split of arrays of one shape; see ``splitops.native``."""

    __slots__ = ("_axis", "_container", "_cuts", "_shape", "_squeeze")

    def __init__(
        self,
        shape: Sequence[int],
        axis: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        squeeze: bool,
        *,
        listed: bool = False,
    ) -> None:
        self._shape = _integers(shape, "shape")
        if len(self._shape) > _MAX_DIMS:
            raise ValueError(f"shape has {len(self._shape)} dimensions; NumPy has at most {_MAX_DIMS}")
        if any(extent < 0 for extent in self._shape):
            raise ValueError("shape has a negative extent")
        if prod(extent for extent in self._shape if extent) > _INT64_MAX:
            raise ValueError("the product of the extents of shape does not fit into 63 bits")
        if not isinstance(axis, int):
            raise TypeError(f"axis must be an int, not {type(axis).__name__}")
        if not isinstance(squeeze, bool):
            raise TypeError(f"squeeze must be a bool, not {type(squeeze).__name__}")
        if not isinstance(listed, bool):
            raise TypeError(f"listed must be a bool, not {type(listed).__name__}")
        if not 0 <= axis < len(self._shape):
            raise ValueError(f"axis {axis} is outside [0, {len(self._shape)})")
        self._axis = int(axis)
        self._squeeze = squeeze
        self._container: Callable[[Iterator[Array]], Parts] = list if listed else tuple
        starts, lengths = _integers(offsets, "offsets"), _integers(sizes, "sizes")
        if len(starts) != len(lengths):
            raise ValueError(f"{len(starts)} offsets, but {len(lengths)} sizes")
        extent = self._shape[axis]
        for i, (offset, size) in enumerate(zip(starts, lengths, strict=True)):
            if offset < 0 or size < 0 or offset + size > extent:
                raise ValueError(
                    f"part {i} at offset {offset} with size {size} lies outside axis {axis} of size {extent}"
                )
            if squeeze and size != 1:
                raise ValueError(f"part {i} has size {size}: only an axis of size 1 can be removed")
        self._cuts = tuple(zip(starts, lengths, strict=True))

    def _fitting(self, array: object) -> Array:
        data = _exact_array(array)
        if data.shape != self._shape:
            raise ValueError(f"this splitter is for shape {self._shape}, got an array of shape {data.shape}")
        return data

    def _views(self, array: object) -> Iterator[Array]:
        data = self._fitting(array)
        before = (slice(None),) * self._axis
        for offset, size in self._cuts:
            cut: int | slice = offset if self._squeeze else slice(offset, offset + size)
            key: tuple[slice | int | EllipsisType, ...] = (*before, cut, ...)
            yield data[key]

    def __call__(self, array: Array, /) -> Parts:
        """The parts of ``array`` as views."""
        return self._container(self._views(array))

    def copies(self, array: Array, *, separate: bool = False) -> Parts:
        """Fresh, C-contiguous, writeable parts; every part is an allocation of its own here."""
        total = sum(size for _, size in self._cuts) * _exact_array(array).itemsize
        if total * prod(self._shape[: self._axis] + self._shape[self._axis + 1 :]) > _INT64_MAX:
            raise MemoryError("the parts together have more bytes than fit into 63 bits")
        return self._container(part.copy(order="C") for part in self._views(array))

    def copies_into(self, array: Array, out: Sequence[Array]) -> None:
        """Fills the arrays of ``out`` with the parts of ``array``."""
        parts = self(array)
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
        """None: it is not proved here that the arrays of ``out`` share no memory."""
        self._fitting(array)
        return None


def _splitter(
    array: object, axis: int, offsets: Sequence[int], sizes: Sequence[int], squeeze: bool
) -> Splitter:
    return Splitter(_exact_array(array).shape, axis, offsets, sizes, squeeze)


def views(
    array: Array, axis: int, offsets: Sequence[int], sizes: Sequence[int], squeeze: bool
) -> tuple[Array, ...]:
    """See ``splitops.native.views``."""
    return tuple(_splitter(array, axis, offsets, sizes, squeeze)(array))


def copies(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    *,
    separate: bool = False,
) -> tuple[Array, ...]:
    """See ``splitops.native.copies``."""
    return tuple(_splitter(array, axis, offsets, sizes, squeeze).copies(array, separate=separate))


def copies_into(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> None:
    """See ``splitops.native.copies_into``."""
    _splitter(array, axis, offsets, sizes, squeeze).copies_into(array, out)


def fill(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> tuple[Array, ...] | None:
    """See ``splitops.native.fill``: nothing is proved here."""
    _splitter(array, axis, offsets, sizes, squeeze)
    return None


def _is_integer(value: object) -> bool:
    return type(value) is int and _INT64_MIN <= value <= _INT64_MAX


def _key(array: object, arguments: tuple[object, ...]) -> _Key | None:
    """A key that tells every type apart (``1``, ``True`` and ``1.0`` are equal to Python), or None."""
    if type(array) is not np.ndarray:
        return None
    words = 2 + array.ndim
    key: list[object] = [id(array.dtype), array.shape]
    for argument in arguments:
        if argument is None:
            key.append(None)
            words += 1
        elif _is_integer(argument):
            key.append(argument)
            words += 2
        elif (type(argument) is list or type(argument) is tuple) and all(map(_is_integer, argument)):
            key.append((type(argument), tuple(argument)))
            words += 2 + len(argument)
        else:
            return None
    return tuple(key) if words <= _CACHE_WORDS else None


class CallCache:
    """A bounded memo of compiled splits; see ``splitops.native``."""

    __slots__ = ("_entries", "_lock")

    def __init__(self) -> None:
        # The dtype is kept beside the splitter because the key holds its address.
        self._entries: dict[_Key, tuple[Splitter, object]] = {}
        self._lock = threading.Lock()

    def _find(self, array: object, arguments: tuple[object, ...]) -> Splitter | None:
        key = _key(array, arguments)
        entry = self._entries.get(key) if key is not None else None
        return None if entry is None else entry[0]

    def __call__(self, array: object, /, *arguments: object) -> Any:
        """The parts as views, or None when the call is unknown."""
        splitter = self._find(array, arguments)
        return None if splitter is None else splitter(_exact_array(array))

    def copies(self, array: object, /, *arguments: object) -> Any:
        """Fresh parts, or None when the call is unknown."""
        splitter = self._find(array, arguments)
        return None if splitter is None else splitter.copies(_exact_array(array))

    def fill(self, out: Any, array: object, /, *arguments: object) -> Any:
        """The arrays of ``out``, filled; None when the call is unknown, or as of a `Splitter`."""
        splitter = self._find(array, arguments)
        return None if splitter is None else splitter.fill(_exact_array(array), out)

    def store(self, splitter: Splitter, array: object, /, *arguments: object) -> bool:
        """Remembers the splitter; False when the arguments do not qualify."""
        if not isinstance(splitter, Splitter):
            raise TypeError("store takes a Splitter, an array and the arguments of the call")
        key = _key(array, arguments)
        if key is None:
            return False
        data = _exact_array(array)
        if data.shape != splitter._shape:
            raise ValueError(f"this splitter is for shape {splitter._shape}, got shape {data.shape}")
        if len(splitter._cuts) > _CACHE_PARTS:
            return False
        with self._lock:
            while len(self._entries) >= _CACHE_ENTRIES and key not in self._entries:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (splitter, data.dtype)
        return True

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class Recall:
    """A function whose remembered calls are done by its cache; see ``splitops.native``."""

    __slots__ = ("_cache", "_defaults", "_function", "_names", "_positional")

    def __init__(
        self,
        function: Callable[..., Any],
        cache: CallCache,
        names: tuple[str, ...],
        defaults: tuple[object, ...],
        positional: int,
        /,
    ) -> None:
        if len(names) < 3 or not 1 <= positional <= len(names) or len(defaults) > len(names):
            raise ValueError("the parameters are not an array, what is remembered, copy and out")
        self._function = function
        self._cache = cache
        self._names = names
        self._defaults = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        self._positional = positional

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The values of all parameters; None where the call is none that could be remembered."""
        if not 1 <= len(args) <= self._positional:
            return None
        values = [*args]
        named = 0
        for name in self._names[len(args) :]:
            if name in kwargs:
                values.append(kwargs[name])
                named += 1
            elif name in self._defaults:
                values.append(self._defaults[name])
            else:
                return None
        return values if named == len(kwargs) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, unless the cache remembers the call."""
        values = self._values(args, kwargs)
        if values is not None:
            *remembered, copy, out = values
            known = None
            if out is not None:
                known = self._cache.fill(out, *remembered) if copy is None or copy is True else None
            elif copy is None or copy is False:
                known = self._cache(*remembered)
            elif copy is True:
                known = self._cache.copies(*remembered)
            if known is not None:
                return known
        return self._function(*args, **kwargs)


class Called:
    """A base of classes whose instances are called; here by their own ``__call__``."""

    _call: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if not any("__call__" in base.__dict__ for base in cls.__mro__):
            raise TypeError(f"{cls.__name__} has no __call__")
        super().__init_subclass__(**kwargs)


_settings = {"threads": 1, "pool_limit": 0}


def set_threads(threads: int) -> None:
    """Remembers the number; NumPy copies with one thread."""
    _settings["threads"] = threads


def threads() -> int:
    """The number last set."""
    return _settings["threads"]


def set_pool_limit(bytes: int) -> None:
    """Remembers the limit; NumPy's allocator keeps no pool of large blocks."""
    _settings["pool_limit"] = bytes


def pool_counters() -> tuple[int, int, int, int, int, int, int]:
    """The limit, and a pool that holds nothing."""
    return (_settings["pool_limit"], 0, 0, 0, 0, 0, 0)


def release_pool() -> None:
    """Does nothing: there is no pool."""
