"""What one launch of a copy kernel does: plain integers, the same for Triton and for CUDA C.

The data are rows of bytes at a constant stride, and a part is a run of bytes in each row. Nothing is
uploaded: the whole :class:`Launch` travels in the kernel's arguments, so that a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from math import gcd
from typing import Final

import numpy as np

__all__ = ["MAX_PARTS", "WIDEST", "Launch", "launches", "rows_of", "run_on_host"]

MAX_PARTS: Final = 96
"""Parts of one launch: 16 bytes each, within the 4 KiB of arguments that every GPU takes."""
SHORT_PARTS: Final = 32
"""Parts of one launch that reads short runs: so many that one row's share stays in the first cache."""
SHORT_RUN: Final = 128
"""Shorter runs, in bytes, are read row by row for all parts together: they share cache lines."""
WIDEST: Final = 16
"""Bytes that one thread moves at once, at most."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Parts that one launch copies.

    Attributes:
        source: address of the first part's first byte.
        rows: number of rows, at least 1.
        stride: bytes from one row to the next.
        ends: for each part, where its run ends in a row, in bytes from ``source``; it begins where the one
            before ends.
        targets: for each part, the address of its memory, which holds its runs one after another.
        unit: bytes that divide every address, run and stride here: a power of 2, at most ``WIDEST``.
        run: the length of every run in bytes, where all are equal; otherwise 0.
        short: whether runs are short and equal.
    """

    source: int
    rows: int
    stride: int
    ends: tuple[int, ...]
    targets: tuple[int, ...]
    unit: int
    run: int
    short: bool

    @property
    def runs(self) -> tuple[int, ...]:
        """The length of each part's run in bytes."""
        return tuple(end - begin for begin, end in pairwise((0, *self.ends)))


def rows_of(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, axis: int
) -> tuple[int, int, int] | None:
    """Return memory as rows: their number, the bytes between them, the bytes of one index of the axis.

    Args:
        shape: without a zero.
        strides: in bytes.
        itemsize: bytes of one element.
        axis: the split axis.

    Returns:
        None where a part is not one run in each row, or the rows have no common stride.

    Examples:
        >>> rows_of((4, 6, 2), (96, 16, 8), 8, 1)
        (4, 96, 16)
        >>> rows_of((4, 6), (8, 32), 8, 1) is None
        True
    """
    inner = itemsize
    for size, step in zip(reversed(shape[axis + 1 :]), reversed(strides[axis + 1 :]), strict=True):
        if size > 1 and step != inner:
            return None
        inner *= size
    if shape[axis] > 1 and strides[axis] != inner:
        return None
    rows, stride = 1, 0
    for size, step in zip(reversed(shape[:axis]), reversed(strides[:axis]), strict=True):
        if size == 1:
            continue
        if rows > 1 and step != stride * rows:
            return None
        stride = stride if rows > 1 else step
        rows *= size
    return rows, stride, inner


def launches(
    address: int, rows: int, stride: int, runs: Sequence[int], targets: Sequence[int]
) -> Iterator[Launch]:
    """Return the launches that copy the parts of rows.

    Args:
        address: of the first row.
        rows: number of rows, at least 1.
        stride: bytes from one row to the next.
        runs: bytes of each part in a row; a part of none is left out.
        targets: the address of each part's memory.
    """
    begins = accumulate(runs, initial=0)
    table = [entry for entry in zip(begins, runs, targets, strict=False) if entry[1]]
    equal = len({run for _, run, _ in table}) == 1
    short = equal and rows > 1 and len(table) > 1 and table[0][1] < SHORT_RUN
    entries = iter(table)
    while group := list(islice(entries, SHORT_PARTS if short else MAX_PARTS)):
        source = address + group[0][0]
        unit = gcd(WIDEST, source, stride if rows > 1 else 0, *(n for _, run, at in group for n in (run, at)))
        yield Launch(
            source=source,
            rows=rows,
            stride=stride if rows > 1 else 0,
            ends=tuple(accumulate(run for _, run, _ in group)),
            targets=tuple(at for _, _, at in group),
            unit=unit,
            run=group[0][1] if equal else 0,
            short=short,
        )


def run_on_host(launch: Launch) -> None:
    """Do a launch in NumPy, on addresses of this process: the twin that the kernels are held against."""
    begin = 0
    for end, target in zip(launch.ends, launch.targets, strict=True):
        run = end - begin
        source = _bytes_at(launch.source + begin, (launch.rows, run), (launch.stride, 1))
        _bytes_at(target, (launch.rows, run), (run, 1))[...] = source
        begin = end


class _Bytes:
    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": "|u1",
        }


def _bytes_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(_Bytes(address, shape, strides))
