"""One thin adapter per array library, found by the type of the user's own array.

A library is never imported for being looked for: an array of it proves that it is loaded already.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from splitops.dtypes import ElementType
from splitops.errors import ArrayError
from splitops.planning import SplitPlan

__all__ = ["BACKENDS", "Backend", "Capabilities", "Entry", "backend_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend gives; the documentation's table is made from it.

    Attributes:
        views: ``copy=None`` gives parts that share memory with the data.
        copies: ``copy=True`` gives independent contiguous parts.
        out: ``out=`` fills the caller's buffers.
        lazy: nothing is computed before the user asks for it.
        read_only: read-only data give read-only views.
        gradients: derivatives flow through the parts.
        devices: where the arrays may live.
        element_types: which element types the arrays may have.
    """

    views: bool
    copies: bool
    out: bool
    lazy: bool = False
    read_only: bool = False
    gradients: bool = False
    devices: tuple[str, ...] = ("CPU",)
    element_types: str = "all"


class Backend(Protocol):
    """Obeys plans on the arrays of one library. It computes no size and knows no operator."""

    name: str
    capabilities: Capabilities

    def shape(self, array: Any) -> tuple[int, ...]:
        """Return the shape of an array as Python integers."""
        ...

    def element_type(self, array: Any) -> ElementType | None:
        """Return the element type of an array; None where it has none of ours."""
        ...

    def dtype_name(self, array: Any) -> str:
        """Return the library's own name of an array's dtype."""
        ...

    def views(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts, sharing memory with the array where the library can."""
        ...

    def copies(self, plan: SplitPlan, array: Any) -> tuple[Any, ...]:
        """Return the parts as independent contiguous arrays."""
        ...

    def fill(self, plan: SplitPlan, array: Any, out: Sequence[Any]) -> None:
        """Check every buffer, then write the parts into them.

        Raises:
            ArrayError: a buffer does not fit or overlaps; nothing is written then.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table: the library, the root type of its arrays and the module of its adapter."""

    library: str
    root: str
    module: str


BACKENDS: Final = (Entry("numpy", "ndarray", "splitops.backends.numpy"),)
"""Every backend, in the order in which they are asked."""

_OF_TYPE: dict[type, Backend] = {}


def backend_of(array: Any) -> Backend:
    """Return the backend of an array.

    Raises:
        ArrayError: no backend knows its type.
    """
    try:
        return _OF_TYPE[type(array)]
    except KeyError:
        backend = _OF_TYPE[type(array)] = _find(type(array))
        return backend


def _find(cls: type) -> Backend:
    for entry in BACKENDS:
        root = getattr(sys.modules.get(entry.library), entry.root, None)
        if isinstance(root, type) and issubclass(cls, root):
            backend: Backend = importlib.import_module(entry.module).BACKEND
            return backend
    known = ", ".join(entry.library for entry in BACKENDS)
    raise ArrayError(f"data is a {cls.__module__}.{cls.__qualname__}, but the array libraries are {known}")
