"""Backends: one thin adapter per array library, chosen by the type of the array.

Finding a backend never imports its library: if an array exists, its library is already loaded. Other packages
add a backend with an entry point in the group ``splitops.backends``. Its name is the top-level package of the
array type, and its value is a :class:`Backend`, which ``splitops.testing`` can test.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from splitops.backends.capabilities import (
    ARRAY_API,
    BACKENDS,
    DLPACK,
    Capabilities,
    LibraryEntry,
    format_capability_table,
)
from splitops.backends.slicing import slice_parts
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of

__all__ = [
    "BACKENDS",
    "ENTRY_POINT_GROUP",
    "Backend",
    "Capabilities",
    "LibraryEntry",
    "find_backend",
    "format_capability_table",
    "get_backend",
    "register",
    "slice_parts",
]

ENTRY_POINT_GROUP: Final = "splitops.backends"
"""Group of the entry points with which other packages add backends."""


class Backend(Protocol):
    """Runs plans on the arrays of one library. It never computes sizes and does not know operators.

    The methods with a body work for libraries whose arrays have known sizes and NumPy dtypes, and support
    slicing and ``copy()``. A subclass overrides the others.
    """

    name: str
    symbols: tuple[type, ...] = ()
    """Types of the symbolic integers that the library uses for sizes while it traces."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the library, as listed in splitops. Backends of other packages override it."""
        return _ENTRIES[self.name].capabilities

    def get_shape(self, array: Any) -> tuple[Any, ...]:
        """Return the shape of an array.

        A size is an integer, or the library's symbolic integer while it traces, which supports arithmetic and
        comparisons. It is None if it is only known after computing the array.
        """
        # Lazy libraries use None or nan for unknown sizes.
        return tuple(
            None if size is None or (isinstance(size, float) and math.isnan(size)) else int(size)
            for size in array.shape
        )

    def get_element_type(self, array: Any) -> ElementType | None:
        """Return the element type of an array, or None if splitops does not have it."""
        return element_type_of(array.dtype) if isinstance(array.dtype, np.dtype) else None

    def get_dtype_name(self, array: Any) -> str:
        """Return the library's own name for the dtype of an array."""
        return str(array.dtype)

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """Read a small array, an axis or lengths, into NumPy. This waits for an accelerator.

        Raises:
            ArrayError: the values are unknown, because the array is traced or lazy.
        """
        ...

    def make_views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts. They share memory with the array if the library supports it."""
        return slice_parts(plan, array)

    def make_copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts as independent contiguous arrays."""
        return tuple(part.copy() for part in self.make_views(plan, array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        """Check all buffers, then copy the parts into them.

        Raises:
            ArrayError: a buffer does not match its part, or overlaps other memory. Nothing is written then.
        """
        ...


_ENTRIES: Final = {row.name: row for row in (*BACKENDS, ARRAY_API, DLPACK)}
_CACHE: dict[type, Backend] = {}
_REGISTERED: dict[type, Backend] = {}


def get_backend(array: Any) -> Backend:
    """Return the backend for an array.

    Raises:
        ArrayError: no backend supports its type.
    """
    backend = find_backend(type(array))
    if backend is None:
        cls = type(array)
        got = f"{cls.__module__}.{cls.__qualname__}"
        raise ArrayError(f"data is a {got}: arrays of {', '.join(_ENTRIES)} are supported")
    return backend


def find_backend(cls: type) -> Backend | None:
    """Return the backend for an array type, or None if no backend supports it."""
    backend = _CACHE.get(cls)
    if backend is None:
        backend = _find(cls)
        if backend is not None:
            _CACHE[cls] = backend
    return backend


def register(cls: type, backend: Backend) -> None:
    """Use a backend for an array type and its subclasses in this process.

    Registered backends precede built-in ones and entry points. If several registered types match, the first
    registered wins. To register a backend for all users of a package, declare an entry point in the group
    ``splitops.backends``.

    Args:
        cls: root class of the library's array types.
        backend: the backend that splits these arrays.
    """
    _REGISTERED[cls] = backend
    _CACHE.clear()


def _find(cls: type) -> Backend | None:
    for root, backend in _REGISTERED.items():
        if issubclass(cls, root):
            return backend
    for entry in BACKENDS:
        if any(issubclass(cls, root) for root in _find_types(entry)):
            return _import_adapter(entry)
    packages = {base.__module__.partition(".")[0] for base in cls.__mro__} - {"builtins"}
    for point in _find_entry_points():
        if point.name in packages:
            loaded: Backend = point.load()
            return loaded
    if hasattr(cls, "__array_namespace__"):
        return _import_adapter(ARRAY_API)
    if hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__"):
        return _import_adapter(DLPACK)
    return None


def _find_types(entry: LibraryEntry) -> list[type]:
    """Return the array types of a library, or an empty list if the library is not loaded."""
    places = (path.rpartition(".") for path in entry.roots)
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in places)
    return [root for root in found if isinstance(root, type)]


def _import_adapter(entry: LibraryEntry) -> Backend:
    module = entry.name.lower().replace(" ", "_")
    backend: Backend = importlib.import_module(f"{__name__}.{module}").BACKEND
    return backend


@cache
def _find_entry_points() -> tuple[Any, ...]:
    from importlib.metadata import entry_points  # slow to import, and only needed for unknown types

    return tuple(entry_points(group=ENTRY_POINT_GROUP))
