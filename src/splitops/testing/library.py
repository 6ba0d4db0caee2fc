"""Base class that describes an array library to the test suite."""

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
    """Description of an array library. Override the methods for the capabilities of the backend."""

    name: str = ""
    """Name in reports."""
    element_types: Sequence[str] = ("float32", "float64", "int8", "int32", "int64", "bool")
    """Element types of its arrays to test, as names in ``splitops.spec.elements.types.ELEMENT_TYPES``."""

    def make(self, array: Array) -> Any:
        """Return an array of the library with the values of ``array``, in separate memory."""
        raise NotImplementedError

    def read(self, array: Any) -> Array:
        """Return the values of an array. If the library is lazy, compute them."""
        raise NotImplementedError

    def get_part_type(self, data: Any) -> type:
        """Return the type of the parts of an array, by default the type of the array."""
        return type(data)

    def make_layouts(self, array: Array) -> Sequence[Any]:
        """Return arrays with the same values in other layouts, such as strided ones; by default none."""
        return ()

    def may_share_memory(self, one: Any, other: Any) -> bool:
        """Return whether two arrays share memory. Needed if the backend declares views."""
        raise NotImplementedError

    def is_contiguous(self, array: Any) -> bool:
        """Return whether an array is contiguous in C order; by default True."""
        return True

    def make_buffer(self, array: Array) -> Any:
        """Return an array for ``out=``, with the shape, dtype and values of ``array``."""
        return self.make(array)

    def make_overlapping(self, data: Any, part: Any) -> Any | None:
        """Return a buffer that overlaps ``data``, by default ``part``, or None if that is impossible."""
        return part

    def make_read_only(self, array: Array) -> Any:
        """Return a read-only array with the values of ``array``. Needed if ``read_only`` is declared."""
        raise NotImplementedError

    def is_writeable(self, array: Any) -> bool:
        """Return whether an array is writeable. Needed if ``read_only`` is declared."""
        raise NotImplementedError

    def forbid_computing(self) -> AbstractContextManager[Any]:
        """Return a context in which computing a lazy array fails. The default has no effect."""
        return nullcontext()

    def compute_gradient(self, function: Callable[[Any], Any], data: Any) -> Array:
        """Return the gradient of a scalar function. Needed if the backend declares gradients."""
        raise NotImplementedError

    def sum_weighted(self, parts: Sequence[Any]) -> Any:
        """Return the sum over the parts of (index + 1) times the sum of the part, as a scalar array."""
        total: Any = 0
        for index, part in enumerate(parts):
            total = total + (index + 1) * part.sum()
        return total

    def get_compilers(self) -> Mapping[str, Callable[[Function, Any], Sequence[Any]]]:
        """Return functions that compile a given function and run it on an array, keyed by compiler name."""
        return {}

    @property
    def backend(self) -> Backend:
        """The backend under test, looked up by the type of an array as in calls."""
        return get_backend(self.make(np.zeros(1, self.get_numpy_dtype(self.element_types[0]))))

    def get_numpy_dtype(self, name: str) -> np.dtype[Any]:
        """Return the NumPy dtype in which the suite generates values of an element type."""
        return ELEMENT_TYPES[name].numpy
