"""The launches of the CUDA C kernels: source, grid and arguments. CuPy itself comes in as an argument."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy as np

from splitops.backends.gpu.layout import MAX_PARTS, Launch

__all__ = ["THREADS", "Call", "call_of", "source"]

TILE: Final = 1 << 14
"""Bytes that one block copies."""
THREADS: Final = 256

_PART: Final = np.dtype([("target", np.uint64), ("end", np.int64)])
_TABLE: Final = np.dtype([("part", _PART, (MAX_PARTS,))])


class Call(NamedTuple):
    """A kernel by name, its grid and its arguments; a structured array of one item is passed by value."""

    kernel: str
    blocks: int
    arguments: tuple[Any, ...]


@cache
def source() -> str:
    """Return the CUDA C source of both kernels."""
    text = files("splitops.backends.gpu").joinpath("copy_parts.cu").read_text("utf-8")
    return f"#define TILE {TILE}\n#define MAX_PARTS {MAX_PARTS}\n{text}"


def call_of(launch: Launch) -> Call:
    """Return what to call for a launch."""
    table = np.zeros(1, _TABLE)
    count = len(launch.targets)
    table["part"]["target"][0, :count] = launch.targets
    table["part"]["end"][0, :count] = launch.ends
    head = np.uint64(launch.source), np.int64(launch.stride), np.int64(launch.rows), np.int64(count)
    if launch.short:
        blocks = -(-launch.rows * (launch.run // launch.unit) // THREADS)
        return Call("copy_short_runs", blocks, (*head, np.int64(launch.run), np.int64(launch.unit), table))
    blocks = sum(-(-launch.rows * run // TILE) for run in launch.runs)
    return Call("copy_runs", blocks, (*head, table))
