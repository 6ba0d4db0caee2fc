"""What one launch of a copy kernel does: plain integers, the same for Triton and for CUDA C.

The data are rows of bytes at a constant stride, and a part is a run of bytes in each row. Its memory holds
the runs one after another or, as slices of a wider buffer do, at a constant pitch. Nothing is uploaded: the
whole :class:`Launch` travels in the kernel's arguments, so that a CUDA graph can capture it.
Equal parts at evenly spaced addresses need no table at all, however many they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate, groupby, pairwise
from math import gcd
from typing import Final, NamedTuple

MAX_ENTRIES: Final = 96
"""Entries of one launch's table: 16 bytes each, within the 4 KiB of arguments that every GPU takes."""
WIDEST: Final = 16
"""Bytes that one thread moves at once, at most."""


class Kernel(Enum):
    """How a launch shares its work out."""

    UNEVEN = auto()
    """Part by part, tile by tile; the table says where each part begins."""
    EQUAL = auto()
    """The same for equal runs, by arithmetic."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Parts that one launch copies.

    Attributes:
        kernel: how the work is shared out.
        source: address of the first part's first byte.
        rows: number of rows, at least 1.
        stride: bytes from one row to the next.
        count: number of parts.
        run: the length of every run in bytes, where all are equal; otherwise 0.
        ends: where runs are unequal, for each part where its run ends in a row, in bytes from ``source``; it
            begins where the one before ends.
        firsts: the parts that begin a stretch, in which targets are evenly spaced. Every uneven part does.
        targets: for each stretch, the address of its first part's memory.
        spacing: bytes from one target to the next within every stretch.
        pitch: bytes from one run to the next in the memory of every part; 0 where runs lie one after
            another, at their own length.
        unit: bytes that divide every address, run, stride and pitch here: a power of 2, at most ``WIDEST``.
    """

    kernel: Kernel
    source: int
    rows: int
    stride: int
    count: int
    run: int
    ends: tuple[int, ...]
    firsts: tuple[int, ...]
    targets: tuple[int, ...]
    spacing: int
    pitch: int
    unit: int

    @property
    def runs(self) -> tuple[int, ...]:
        """The length of each part's run in bytes."""
        if self.run:
            return (self.run,) * self.count
        return tuple(end - begin for begin, end in pairwise((0, *self.ends)))

    @property
    def addresses(self) -> Iterator[int]:
        """The address of each part's memory."""
        for first, stop, target in zip(
            self.firsts, (*self.firsts[1:], self.count), self.targets, strict=True
        ):
            yield from (target + index * self.spacing for index in range(stop - first))


def rows_of(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, axis: int
) -> tuple[int, int, int] | None:
    """Return memory as rows: their number, the bytes between them, the bytes of one index of the axis.

    No size is 0, and strides are in bytes. None where a part is not one run in each row, or the rows have no
    common stride.

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


def pitch_of(
    shapes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]], itemsize: int, axis: int
) -> int | None:
    """Return the bytes from one run to the next in every part; None where parts differ or have none.

    Examples:
        >>> pitch_of([(4, 2), (4, 3)], [(64, 8), (64, 8)], 8, 1)
        64
        >>> pitch_of([(4, 2), (4, 3)], [(16, 8), (64, 8)], 8, 1) is None
        True
    """
    layouts = {
        None if layout is None else layout[1]
        for layout in (
            rows_of(shape, steps, itemsize, axis)
            for shape, steps in zip(shapes, strides, strict=True)
            if 0 not in shape
        )
    }
    return layouts.pop() if len(layouts) == 1 else None


def launches(
    address: int,
    rows: int,
    stride: int,
    runs: Sequence[int],
    targets: Sequence[int],
    entries: int = MAX_ENTRIES,
    pitch: int = 0,
) -> Iterator[Launch]:
    """Return the launches that copy the parts of rows.

    Args:
        address: of the first row.
        rows: number of rows, at least 1.
        stride: bytes from one row to the next.
        runs: bytes of each part in a row; a part of none is left out.
        targets: the address of each part's memory.
        entries: entries of a launch's table, at most.
        pitch: bytes from one run to the next in each part; 0 where they lie one after another.
    """
    memory = _Memory(address, rows, stride if rows > 1 else 0, pitch if rows > 1 else 0)
    begins = accumulate(runs, initial=0)
    table = [entry for entry in zip(begins, runs, targets, strict=False) if entry[1]]
    if len({run for _, run, _ in table}) == 1:
        yield from _equal(memory, table, entries)
        return
    uneven: list[_Part] = []
    if len(table) > entries:  # mostly equal, perhaps: a last part that is smaller, and the like
        for _, neighbours in groupby(table, key=lambda part: part[1]):
            group = list(neighbours)
            if len(group) * 4 > entries:
                yield from _uneven(memory, uneven, entries)
                yield from _equal(memory, group, entries)
                uneven = []
            else:
                uneven += group
    else:
        uneven = table
    yield from _uneven(memory, uneven, entries)


class _Memory(NamedTuple):
    """The rows that all launches of a copy read, and how they write."""

    address: int
    rows: int
    stride: int
    pitch: int


_Part = tuple[int, int, int]
"""Where a part begins in a row, the length of its run, and the address of its memory."""


def _uneven(memory: _Memory, table: list[_Part], entries: int) -> Iterator[Launch]:
    address, rows, stride, pitch = memory
    for start in range(0, len(table), entries):
        group = table[start : start + entries]
        source = address + group[0][0]
        targets = tuple(at for _, _, at in group)
        yield Launch(
            kernel=Kernel.UNEVEN,
            source=source,
            rows=rows,
            stride=stride,
            count=len(group),
            run=0,
            ends=tuple(accumulate(run for _, run, _ in group)),
            firsts=tuple(range(len(group))),
            targets=targets,
            spacing=0,
            pitch=pitch,
            unit=gcd(WIDEST, source, stride, pitch, *targets, *(run for _, run, _ in group)),
        )


def _equal(memory: _Memory, table: list[_Part], entries: int) -> Iterator[Launch]:
    address, rows, stride, pitch = memory
    begin, run, _ = table[0]
    addresses = [at for _, _, at in table]
    spacing, firsts = _stretches(addresses)
    for start in range(0, len(firsts), entries):
        mine = firsts[start : start + entries]
        stop = firsts[start + entries] if start + entries < len(firsts) else len(table)
        source = address + begin + mine[0] * run
        targets = tuple(addresses[first] for first in mine)
        step = spacing if stop - mine[0] > len(mine) else 0
        yield Launch(
            kernel=Kernel.EQUAL,
            source=source,
            rows=rows,
            stride=stride,
            count=stop - mine[0],
            run=run,
            ends=(),
            firsts=tuple(first - mine[0] for first in mine),
            targets=targets,
            spacing=spacing,
            pitch=pitch,
            unit=gcd(WIDEST, source, stride, run, pitch, step, *targets),
        )


def _stretches(addresses: list[int]) -> tuple[int, list[int]]:
    """Return the commonest spacing of addresses, and where stretches begin that are spaced so."""
    if len(addresses) == 1:
        return 0, [0]
    steps = [after - before for before, after in pairwise(addresses)]
    spacing = steps[0]
    if any(step != spacing for step in steps):
        spacing = Counter(steps).most_common(1)[0][0]
    return spacing, [0, *(index for index, step in enumerate(steps, 1) if step != spacing)]
