"""What each array library gives: the one source of the documentation's table, proved by the tests."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend gives.

    Attributes:
        views: ``copy=None`` gives parts that share memory with the data.
        copies: ``copy=True`` gives independent parts; contiguous ones where the library has such a notion.
        out: ``out=`` fills the caller's buffers.
        lazy: nothing is computed before the user asks for it.
        read_only: read-only data give read-only views.
        gradients: derivatives flow through the parts.
        compiled: the library's tracers and compilers that a split works inside.
        devices: where the arrays may live.
        element_types: which element types the arrays may have.
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
class Entry:
    """A row of the table: a library's name, which its adapter has too, and the roots of its array types."""

    name: str
    roots: tuple[str, ...]
    capabilities: Capabilities


_NUMPY_TYPES: Final = "all that ml_dtypes and NumPy have"

BACKENDS: Final = (
    Entry("numpy", ("numpy.ndarray",), Capabilities(views=True, copies=True, out=True, read_only=True)),
    Entry(
        "torch",
        ("torch.Tensor",),
        Capabilities(
            views=True,
            copies=True,
            out=True,
            gradients=True,
            compiled=("torch.compile", "torch.export", "torch.vmap", "torch.func", "torch.onnx.export"),
            devices=("CPU", "CUDA", "any other that torch has"),
            element_types="all that torch has: no strings, no packed types",
        ),
    ),
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
"""Every backend that has a library of its own, in the order in which they are asked."""

ARRAY_API: Final = Entry(
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
"""Any other array with ``__array_namespace__``; whether its slices are views is the library's affair."""

DLPACK: Final = Entry(
    "DLPack",
    (),
    Capabilities(
        views=True,
        copies=True,
        out=True,
        read_only=True,
        element_types="those that NumPy takes through DLPack: no bfloat16, no float8, no strings",
    ),
)
"""Any other array with ``__dlpack__``: on the CPU its memory is split as a NumPy array."""


def capability_rows(named: dict[str, Capabilities]) -> tuple[tuple[str, ...], ...]:
    """Return a table of capabilities as text: a heading, then one row for each backend.

    Examples:
        >>> heading, row = capability_rows({"numpy": Capabilities(views=True, copies=True, out=False)})
        >>> dict(zip(heading, row))["out"]
        'no'
    """
    names = [field.name for field in fields(Capabilities)]
    rows = [("backend", *(name.replace("_", " ") for name in names))]
    rows += [
        (name, *(_cell(getattr(capabilities, column)) for column in names))
        for name, capabilities in named.items()
    ]
    return tuple(rows)


def _cell(value: bool | str | tuple[str, ...]) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case tuple():
            return ", ".join(value) or "no"
