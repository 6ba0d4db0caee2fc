"""How the suite makes, reads and observes the arrays of one library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.backends import Backend, get_backend
from splitops.spec.elements.types import ELEMENT_TYPES

Array = npt.NDArray[Any]
Function = Callable[[Any], Sequence[Any]]


class Library:
    """One array library, as the suite sees it. Override what the library has; the rest is not tested."""

    name: str = ""
    """Shown in reports."""
    element_types: Sequence[str] = ("float32", "float64", "int8", "int32", "int64", "bool")
    """Names in ``splitops.spec.elements.types.ELEMENT_TYPES`` of the types that its arrays can have."""

    def make(self, array: Array) -> Any:
        """Return an array of the library with these values, in memory of its own."""
        raise NotImplementedError

    def read(self, array: Any) -> Array:
        """Return an array's values, computed where the library is lazy."""
        raise NotImplementedError

    def part_type(self, data: Any) -> type:
        """Return the type that the parts of an array have: its own."""
        return type(data)

    def layouts(self, array: Array) -> Sequence[Any]:
        """Return arrays of the same values in other layouts: transposed, strided; none by default."""
        return ()

    def shares_memory(self, one: Any, other: Any) -> bool:
        """Return whether two arrays share memory; asked where views are declared."""
        raise NotImplementedError

    def is_contiguous(self, array: Any) -> bool:
        """Return whether an array is contiguous in C order."""
        return True

    def buffer(self, array: Array) -> Any:
        """Return an array of the library to be filled by ``out=``."""
        return self.make(array)

    def overlapping(self, data: Any, part: Any) -> Any | None:
        """Return a buffer of a part's shape on the memory of the data; None where the library has none."""
        return part

    def read_only(self, array: Array) -> Any:
        """Return an array that cannot be written."""
        raise NotImplementedError

    def is_writeable(self, array: Any) -> bool:
        """Return whether an array can be written."""
        raise NotImplementedError

    def no_computing(self) -> AbstractContextManager[Any]:
        """Return a context in which computing a lazy array fails."""
        return nullcontext()

    def gradient(self, function: Callable[[Any], Any], data: Any) -> Array:
        """Return the gradient of a scalar function; asked where gradients are declared."""
        raise NotImplementedError

    def weighted_sum(self, parts: Sequence[Any]) -> Any:
        """Return the sum over the parts of (index + 1) times the sum of the part, as a library's scalar."""
        total: Any = 0
        for index, part in enumerate(parts):
            total = total + (index + 1) * part.sum()
        return total

    def compilers(self) -> Mapping[str, Callable[[Function, Any], Sequence[Any]]]:
        """Return, for each name that is declared as ``compiled``, how to run a function of one array so."""
        return {}

    @property
    def backend(self) -> Backend:
        """The backend under test, found as a user's call finds it."""
        return get_backend(self.make(np.zeros(1, self.numpy_dtype(self.element_types[0]))))

    def numpy_dtype(self, name: str) -> np.dtype[Any]:
        """Return the NumPy dtype in which the suite writes an element type."""
        return ELEMENT_TYPES[name].numpy
