"""The launches of the CUDA C kernels: source, grid and arguments. CuPy itself comes in as an argument."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy as np

from splitops.backends.gpu.layout import Kernel, Launch

ENTRIES: Final = 240
"""Entries of a table within the 4 KiB of arguments that every GPU takes."""
MORE_ENTRIES: Final = 2040
"""Entries within the 32 764 bytes that CUDA 12.1 passes to GPUs of compute capability 7.0 and later."""
TILE: Final = 1 << 14
"""Bytes that one block copies."""
THREADS: Final = 256

_ENTRY: Final = np.dtype([("target", np.uint64), ("begin", np.int64)])


class Call(NamedTuple):
    """A kernel by name and source, its grid and its arguments.

    A structured array of one item is passed by value.
    """

    kernel: str
    entries: int
    blocks: int
    arguments: tuple[Any, ...]


@cache
def source(entries: int) -> str:
    """Return the CUDA C source of the kernels whose table has so many entries."""
    text = files("splitops.backends.gpu").joinpath("copy_parts.cu").read_text("utf-8")
    constants = {"TILE": TILE, "ENTRIES": entries}
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + text


def call_of(launch: Launch) -> Call:
    """Return what to call for a launch of fewer entries than ``MORE_ENTRIES``."""
    begins = (0, *launch.ends) if launch.kernel is Kernel.UNEVEN else launch.firsts
    entries = ENTRIES if len(begins) <= ENTRIES else MORE_ENTRIES
    table = np.zeros(1, _table(entries))
    table["entry"]["target"][0, : len(launch.targets)] = launch.targets
    table["entry"]["begin"][0, : len(begins)] = begins
    head = [
        np.uint64(launch.source),
        *map(np.int64, (launch.stride, launch.rows, launch.pitch, launch.count)),
    ]
    if launch.kernel is Kernel.UNEVEN:
        blocks = launch.rows * launch.ends[-1] // TILE + launch.count
        return Call("copy_uneven", entries, blocks, (*head, table))
    head += map(np.int64, (launch.run, launch.spacing))
    blocks = launch.count * -(-launch.rows * launch.run // TILE)
    return Call("copy_equal", entries, blocks, (*head, np.int64(len(begins)), table))


@cache
def _table(entries: int) -> np.dtype[np.void]:
    return np.dtype([("entry", _ENTRY, (entries,))])
