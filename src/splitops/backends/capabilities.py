"""Capabilities of each array library. The tables in the documentation are generated from here and tested."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The calls, arrays and devices that a backend supports.

    Attributes:
        views: whether parts share memory with the data for ``copy=None``.
        copies: whether ``copy=True`` returns independent parts, contiguous if the library has that property.
        out: whether ``out=`` is supported.
        lazy: whether nothing is computed until the user requests it.
        read_only: whether views of read-only data are read-only.
        gradients: whether derivatives propagate through the parts.
        compiled: tracers and compilers of the library that support splits.
        devices: devices of the arrays.
        element_types: element types of the arrays.
    """

    views: bool
    copies: bool
    out: bool
    lazy: bool = False
    read_only: bool = False
    gradients: bool = False
    compiled: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("CPU",)
    element_types: str = "all"


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """An array library. Its adapter module is called ``name`` in lower case, with ``_`` for spaces.

    ``roots`` are the import paths of the base classes of its arrays.
    """

    name: str
    roots: tuple[str, ...]
    capabilities: Capabilities


_NUMPY_TYPES: Final = "all that ml_dtypes and NumPy have"

BACKENDS: Final = (
    LibraryEntry(
        "numpy", ("numpy.ndarray",), Capabilities(views=True, copies=True, out=True, read_only=True)
    ),
    LibraryEntry(
        "torch",
        ("torch.Tensor",),
        Capabilities(
            views=True,
            copies=True,
            out=True,
            gradients=True,
            compiled=("torch.compile", "torch.export", "torch.vmap", "torch.func", "torch.onnx.export"),
            devices=("CPU", "CUDA", "any other device of torch"),
            element_types="all that torch has: no strings, no packed types",
        ),
    ),
    LibraryEntry(
        "jax",
        ("jax.Array", "jax.core.Tracer"),
        Capabilities(
            views=False,
            copies=True,
            out=False,
            gradients=True,
            compiled=("jax.jit", "jax.grad", "jax.vmap", "jax.export"),
            devices=("any that JAX has",),
            element_types="all that JAX has: no strings",
        ),
    ),
    LibraryEntry(
        "cupy",
        ("cupy.ndarray",),
        Capabilities(
            views=True,
            copies=True,
            out=True,
            devices=("CUDA",),
            element_types="all that CuPy has: no strings",
        ),
    ),
    LibraryEntry(
        "dask",
        ("dask.array.Array",),
        Capabilities(
            views=False,
            copies=True,
            out=False,
            lazy=True,
            compiled=("dask schedulers",),
            devices=("those of the chunks",),
            element_types=_NUMPY_TYPES,
        ),
    ),
    LibraryEntry(
        "xarray",
        ("xarray.Variable", "xarray.DataArray"),
        Capabilities(
            views=True,
            copies=True,
            out=False,
            devices=("those of the array inside",),
            element_types="those of the array inside",
        ),
    ),
    LibraryEntry(
        "sparse",
        ("sparse.SparseArray",),
        Capabilities(
            views=False,
            copies=True,
            out=False,
            element_types="all that sparse has: no strings",
        ),
    ),
)
"""Libraries with a backend of their own, in the order in which types are matched."""

ARRAY_API: Final = LibraryEntry(
    "array API",
    (),
    Capabilities(
        views=True,
        copies=True,
        out=False,
        devices=("those of the library",),
        element_types="those of the array API standard, and others by NumPy's names",
    ),
)
"""Any other array with ``__array_namespace__``. Whether its slices are views depends on the library."""

DLPACK: Final = LibraryEntry(
    "DLPack",
    (),
    Capabilities(
        views=True,
        copies=True,
        out=True,
        read_only=True,
        element_types="those that NumPy imports through DLPack: no bfloat16, no float8, no strings",
    ),
)
"""Any other array with ``__dlpack__`` in CPU memory, which is split as a NumPy array."""


def format_capability_table(named: dict[str, Capabilities]) -> tuple[tuple[str, ...], ...]:
    """Return a table of capabilities as text: a header row, then one row per backend.

    Examples:
        >>> capabilities = Capabilities(views=True, copies=True, out=False)
        >>> heading, row = format_capability_table({"numpy": capabilities})
        >>> dict(zip(heading, row))["out"]
        'no'
    """
    names = [field.name for field in fields(Capabilities)]
    rows = [("backend", *(name.replace("_", " ") for name in names))]
    rows += [
        (name, *(_format_cell(getattr(capabilities, column)) for column in names))
        for name, capabilities in named.items()
    ]
    return tuple(rows)


def _format_cell(value: bool | str | tuple[str, ...]) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case tuple():
            return ", ".join(value) or "no"
