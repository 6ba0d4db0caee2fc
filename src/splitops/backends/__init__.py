"""One thin adapter per array library, found by the type of the user's own array.

A library is never imported for being looked for: an array of it proves that it is loaded already. Other
packages add a backend by an entry point in the group ``splitops.backends``, whose name is the top-level
package of the array type and whose value is a :class:`Backend`; ``splitops.testing`` proves it.
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
    Entry,
    capability_rows,
)
from splitops.backends.slicing import slices
from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ElementType, element_type_of

__all__ = [
    "BACKENDS",
    "ENTRY_POINT_GROUP",
    "Backend",
    "Capabilities",
    "Entry",
    "backend_of",
    "capability_rows",
    "find_backend",
    "register",
    "slices",
]

ENTRY_POINT_GROUP: Final = "splitops.backends"
"""The entry points of other packages that are backends."""


class Backend(Protocol):
    """Obeys plans on the arrays of one library. It computes no size and knows no operator.

    A class that inherits it says only what differs: the methods with a body are those of a library whose
    arrays have sizes, dtypes of NumPy, slices and ``copy()``.
    """

    name: str
    symbols: tuple[type, ...] = ()
    """The types of the library's symbolic integers, which stand for sizes while it traces; mostly none."""

    @property
    def capabilities(self) -> Capabilities:
        """What it gives: of a library of :data:`BACKENDS`, what its row says."""
        return _ROWS[self.name].capabilities

    def shape(self, array: Any) -> tuple[Any, ...]:
        """Return the shape of an array.

        A size is a Python integer; the library's own symbolic integer while it traces (it takes part in
        arithmetic and comparisons); None where nothing but computing the array would tell.
        """
        # A lazy library may have None or nan for a size that it does not know.
        return tuple(
            None if size is None or (isinstance(size, float) and math.isnan(size)) else int(size)
            for size in array.shape
        )

    def element_type(self, array: Any) -> ElementType | None:
        """Return the element type of an array; None where it has none of ours."""
        return element_type_of(array.dtype) if isinstance(array.dtype, np.dtype) else None

    def dtype_name(self, array: Any) -> str:
        """Return the library's own name of an array's dtype."""
        return str(array.dtype)

    def numbers(self, array: Any) -> npt.NDArray[Any]:
        """Read a small array, of axis or lengths, into NumPy. On an accelerator this waits for the device.

        Raises:
            ArrayError: its values are not known yet: it is traced or lazy.
        """
        ...

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts, sharing memory with the array where the library can."""
        return slices(plan, array)

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts as independent contiguous arrays."""
        return tuple(part.copy() for part in self.views(plan, array))

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        """Check every buffer, then write the parts into them.

        Raises:
            ArrayError: a buffer does not fit or overlaps; nothing is written then.
        """
        ...


_ROWS: Final = {row.name: row for row in (*BACKENDS, ARRAY_API, DLPACK)}
_OF_TYPE: dict[type, Backend] = {}
_REGISTERED: dict[type, Backend] = {}


def backend_of(array: Any) -> Backend:
    """Return the backend of an array.

    Raises:
        ArrayError: no backend knows its type.
    """
    backend = find_backend(type(array))
    if backend is None:
        cls = type(array)
        got = f"{cls.__module__}.{cls.__qualname__}"
        raise ArrayError(f"data is a {got}, but the array libraries are {', '.join(_ROWS)}")
    return backend


def find_backend(cls: type) -> Backend | None:
    """Return the backend of a type of arrays; None where no backend knows it."""
    backend = _OF_TYPE.get(cls)
    if backend is None:
        backend = _find(cls)
        if backend is not None:
            _OF_TYPE[cls] = backend
    return backend


def register(cls: type, backend: Backend) -> None:
    """Use a backend for a type of arrays and its subclasses, in this process, before any other.

    An entry point in the group ``splitops.backends`` does the same for everyone who installs a package.

    Args:
        cls: the root of the library's array types.
        backend: obeys plans on its arrays.
    """
    _REGISTERED[cls] = backend
    _OF_TYPE.clear()


def _find(cls: type) -> Backend | None:
    for root, backend in _REGISTERED.items():
        if issubclass(cls, root):
            return backend
    for entry in BACKENDS:
        if any(issubclass(cls, root) for root in _roots(entry)):
            return _adapter(entry)
    packages = {base.__module__.partition(".")[0] for base in cls.__mro__} - {"builtins"}
    for point in _entry_points():
        if point.name in packages:
            loaded: Backend = point.load()
            return loaded
    if hasattr(cls, "__array_namespace__"):
        return _adapter(ARRAY_API)
    if hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__"):
        return _adapter(DLPACK)
    return None


def _roots(entry: Entry) -> list[type]:
    """Return a library's array types; none where it is not loaded."""
    places = (path.rpartition(".") for path in entry.roots)
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in places)
    return [root for root in found if isinstance(root, type)]


def _adapter(entry: Entry) -> Backend:
    module = entry.name.lower().replace(" ", "_")
    backend: Backend = importlib.import_module(f"{__name__}.{module}").BACKEND
    return backend


@cache
def _entry_points() -> tuple[Any, ...]:
    from importlib.metadata import entry_points  # only an array of an unknown type needs it

    return tuple(entry_points(group=ENTRY_POINT_GROUP))
