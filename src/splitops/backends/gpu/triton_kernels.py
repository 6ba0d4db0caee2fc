"""The copy kernels in Triton, for PyTorch on CUDA and ROCm (and on the CPU in Triton's interpreter)."""

# ruff: noqa: N803, N806, SIM108, SIM114 - Triton writes constants in capitals, and compiles each branch

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl

from splitops.backends.gpu.layout import MAX_ENTRIES, WIDEST, Kernel, Launch, launches, pitch_of, rows_of

__all__ = ["copy_parts"]

_TILE: Final = 1 << 14
"""Bytes that one program copies."""
_MARK: Final = 1 << 62 | 1 << 3
_LONG: Final = 1 << 30
"""From so many units on, 32-bit indices may overflow."""
_SMALL_UNITS: Final = 1024
"""Units that one program copies where parts are small."""
_SHORT_UNITS: Final = 1024
"""Units of each part that one program copies where runs are short."""
_SHORT_PARTS: Final = 8
"""Parts that one program copies where runs are short: enough to use whole cache lines."""
_TURNED_RUN: Final = 128
"""Bytes of a row that one program copies where it turns rows into parts."""
_TURNED_TILE: Final = 1 << 14
"""Bytes that one program copies there."""


def copy_parts(data: torch.Tensor, sizes: Sequence[int], axis: int, parts: Sequence[torch.Tensor]) -> bool:
    """Copy the parts of a tensor into tensors of their shapes, on its device and current stream.

    Args:
        data: strided tensor.
        sizes: the sizes of the parts along the axis, from the first on.
        axis: the axis, in [0, rank).
        parts: tensors of the dtype and device of the data.

    Returns:
        False where the memory has another layout than these kernels take; nothing is done then.
    """
    if data.numel() == 0:
        return True
    itemsize = data.itemsize
    layout = rows_of(data.shape, [step * itemsize for step in data.stride()], itemsize, axis)
    pitch: int | None = 0
    if not all(part.is_contiguous() for part in parts):
        strides = [[step * itemsize for step in part.stride()] for part in parts]
        pitch = pitch_of([part.shape for part in parts], strides, itemsize, axis)
    if layout is None or pitch is None:
        return False
    rows, stride, inner = layout
    addresses = [part.data_ptr() for part in parts]
    with torch.cuda.device_of(data):
        runs = [size * inner for size in sizes]
        for launch in launches(data.data_ptr(), rows, stride, runs, addresses, pitch=pitch):
            _start(launch)
    return True


def _start(launch: Launch) -> None:
    units = launch.rows * max(launch.runs) // launch.unit
    targets, firsts = _packed(launch.targets), _packed(launch.firsts)
    head = launch.source, launch.stride, launch.rows, launch.pitch
    pitched = launch.pitch != 0
    equal = *head, launch.count, launch.run, launch.spacing, targets, firsts
    match launch.kernel:
        case Kernel.UNEVEN:
            blocks = sum(triton.cdiv(launch.rows * run, _TILE) for run in launch.runs)
            _copy_uneven[(blocks,)](
                *head,
                targets,
                _packed(launch.ends),
                UNIT=launch.unit,
                WIDE=WIDEST,
                TILE=_TILE,
                PITCHED=pitched,
                LONG=units >= _LONG,
                num_warps=8,
            )
        case Kernel.EQUAL:
            blocks = launch.count * triton.cdiv(launch.rows * launch.run, _TILE)
            _copy_equal[(blocks,)](
                *equal,
                UNIT=launch.unit,
                WIDE=WIDEST,
                TILE=_TILE,
                PITCHED=pitched,
                LONG=units >= _LONG,
                num_warps=8,
            )
        case Kernel.SMALL:
            units *= launch.count
            blocks = triton.cdiv(units, _SMALL_UNITS)
            _copy_small[(blocks,)](
                *equal, UNIT=launch.unit, BLOCK=_SMALL_UNITS, PITCHED=pitched, LONG=units >= _LONG
            )
        case Kernel.SHORT:
            group = min(_SHORT_PARTS, triton.next_power_of_2(launch.count))
            blocks = triton.cdiv(units, _SHORT_UNITS) * triton.cdiv(launch.count, group)
            _copy_short[(blocks,)](
                *equal,
                UNIT=launch.unit,
                UNITS=launch.run // launch.unit,
                BLOCK=_SHORT_UNITS,
                GROUP=group,
                PITCHED=pitched,
                LONG=units >= _LONG,
            )
        case Kernel.TURNED:
            word = min(launch.unit, 8)
            width = triton.next_power_of_2(launch.run // word)
            parts = max(1, _TURNED_RUN // (width * word))
            parts = min(parts, triton.next_power_of_2(launch.count + 1) // 2)  # a first tile that is full
            rows = _TURNED_TILE // (parts * width * word)
            blocks = triton.cdiv(launch.rows, rows) * triton.cdiv(launch.count, parts)
            _copy_turned[(blocks,)](
                *equal,
                WORD=word,
                WORDS=launch.run // word,
                WIDTH=width,
                ROWS=rows,
                PARTS=parts,
                READ=launch.read_unit,
                WRITE=launch.write_unit,
            )


def _packed(table: tuple[int, ...]) -> tuple[int, ...]:
    """Return a table as kernel arguments, of one of a few lengths, each of which is a kernel of its own.

    The last entry repeats: it names a part of no bytes or a stretch that begins where it did before. Triton
    compiles anew for each integer of a tuple that is 1, divisible by 16, or within 32 bits; marked so, all
    integers are alike to it.
    """
    length = next(size for size in (1, 2, 4, 8, 16, 32, 64, MAX_ENTRIES) if size >= len(table))
    return tuple(entry << 4 | _MARK for entry in table + table[-1:] * (length - len(table)))


@triton.jit
def _entry(packed: tl.tensor) -> tl.tensor:
    """Return an entry of a table as it was before it was marked."""
    return (packed.to(tl.int64) & 0x3FFFFFFFFFFFFFFF) >> 4


@triton.jit
def _target(part: tl.tensor, spacing: tl.tensor, targets: tl.tuple, firsts: tl.tuple) -> tl.tensor:
    """Return the address of the memory of each part."""
    first = part * 0
    target = first + _entry(targets[0])
    for i in tl.static_range(1, len(targets)):
        here = part >= _entry(firsts[i])
        target = tl.where(here, _entry(targets[i]), target)
        first = tl.where(here, _entry(firsts[i]), first)
    return target + (part - first) * spacing


@triton.jit
def _pointer(address: tl.tensor, UNIT: tl.constexpr) -> tl.tensor:
    """Return an address as a pointer to words: of the unit, or of 8 bytes of which a unit has two."""
    if UNIT == 1:
        pointer = address.to(tl.pointer_type(tl.int8))
    elif UNIT == 2:
        pointer = address.to(tl.pointer_type(tl.int16))
    elif UNIT == 4:
        pointer = address.to(tl.pointer_type(tl.int32))
    else:
        pointer = address.to(tl.pointer_type(tl.int64))
    return tl.multiple_of(pointer, UNIT)


@triton.jit
def _words(address: tl.tensor, WORD: tl.constexpr, UNIT: tl.constexpr) -> tl.tensor:
    """Return an address as a pointer to words that a larger unit divides."""
    return tl.multiple_of(_pointer(address, WORD), UNIT)


@triton.jit
def _move(
    source: tl.tensor,
    target: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    index: tl.tensor,
    stride: tl.tensor,
    pitch: tl.tensor,
    live: tl.tensor,
    UNIT: tl.constexpr,
    PITCHED: tl.constexpr,
) -> None:
    """Copy units: the one at a row and column of the source to the same or to its index in the target."""
    begin = _pointer(source, UNIT)
    goal = _pointer(target, UNIT)
    if PITCHED:
        index = row * (pitch // UNIT) + column
    if UNIT == 16:
        if len(source.shape) > 0:  # an address for each unit
            begin = begin[:, None]
            goal = goal[:, None]
        word = tl.arange(0, 2)[None, :]
        here = tl.multiple_of(row * ((stride // 16) * 2) + column * 2, 2)
        there = tl.multiple_of(index * 2, 2)
        value = tl.load(begin + here[:, None] + word, mask=live[:, None])
        tl.store(goal + there[:, None] + word, value, mask=live[:, None])
    else:
        value = tl.load(begin + row * (stride // UNIT) + column, mask=live)
        tl.store(goal + index, value, mask=live)


@triton.jit
def _copy_tile(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    run: tl.tensor,
    target: tl.tensor,
    block: tl.tensor,
    UNIT: tl.constexpr,
    TILE: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy one tile of one part."""
    units = run // UNIT
    STEP: tl.constexpr = 1024
    for step in range(TILE // (UNIT * STEP)):
        index = block * (TILE // UNIT) + step * STEP + tl.arange(0, STEP).to(tl.int64)
        live = index < rows * units
        if LONG:
            row = index // units
        else:
            row = (index.to(tl.int32) // units.to(tl.int32)).to(tl.int64)
        _move(source, target, row, index - row * units, index, stride, pitch, live, UNIT, PITCHED)


@triton.jit
def _copy_widest(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    run: tl.tensor,
    target: tl.tensor,
    block: tl.tensor,
    UNIT: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy one tile of one part in the widest units, where it allows them: an odd part slows no other one."""
    if UNIT == WIDE:
        _copy_tile(source, stride, rows, pitch, run, target, block, WIDE, TILE, PITCHED, LONG)
    elif (source | stride | pitch | run | target) % WIDE == 0:
        _copy_tile(source, stride, rows, pitch, run, target, block, WIDE, TILE, PITCHED, LONG)
    else:
        _copy_tile(source, stride, rows, pitch, run, target, block, UNIT, TILE, PITCHED, LONG)


@triton.jit(do_not_specialize=["source", "stride", "rows", "pitch"])
def _copy_uneven(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    targets: tl.tuple,
    ends: tl.tuple,
    UNIT: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy parts tile by tile: a program finds its part in the table and copies one tile of it."""
    program = tl.program_id(0).to(tl.int64)
    source = source.to(tl.int64)
    stride = stride.to(tl.int64)
    rows = rows.to(tl.int64)
    pitch = pitch.to(tl.int64)
    target = _entry(targets[0])
    length = _entry(ends[0])
    begin = length * 0
    first = length * 0
    passed = tl.cdiv(rows * length, TILE)  # blocks of the parts so far
    for i in tl.static_range(1, len(targets)):
        begins = _entry(ends[i - 1])
        run_here = _entry(ends[i]) - begins
        # The last part that begins at or before the program is its own; one without bytes never is.
        mine = (program >= passed) & (run_here > 0)
        target = tl.where(mine, _entry(targets[i]), target)
        begin = tl.where(mine, begins, begin)
        length = tl.where(mine, run_here, length)
        first = tl.where(mine, passed, first)
        passed += tl.cdiv(rows * run_here, TILE)
    block = program - first
    _copy_widest(source + begin, stride, rows, pitch, length, target, block, UNIT, WIDE, TILE, PITCHED, LONG)


@triton.jit(do_not_specialize=["source", "stride", "rows", "pitch", "count", "run", "spacing"])
def _copy_equal(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    count: tl.tensor,
    run: tl.tensor,
    spacing: tl.tensor,
    targets: tl.tuple,
    firsts: tl.tuple,
    UNIT: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy equal parts tile by tile."""
    program = tl.program_id(0).to(tl.int64)
    rows = rows.to(tl.int64)
    length = run.to(tl.int64)
    blocks = tl.cdiv(rows * length, TILE)
    part = program // blocks
    begin = source.to(tl.int64) + part * length
    target = _target(part, spacing.to(tl.int64), targets, firsts)
    stride = stride.to(tl.int64)
    pitch = pitch.to(tl.int64)
    block = program - part * blocks
    _copy_widest(begin, stride, rows, pitch, length, target, block, UNIT, WIDE, TILE, PITCHED, LONG)


@triton.jit(do_not_specialize=["source", "stride", "rows", "pitch", "count", "run", "spacing"])
def _copy_small(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    count: tl.tensor,
    run: tl.tensor,
    spacing: tl.tensor,
    targets: tl.tuple,
    firsts: tl.tuple,
    UNIT: tl.constexpr,
    BLOCK: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy equal parts as if they were one: a program copies the next units, of however many parts."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    units = run.to(tl.int64) // UNIT
    each = rows.to(tl.int64) * units
    live = index < count.to(tl.int64) * each
    if LONG:
        part = index // each
        inside = index - part * each
        row = inside // units
    else:
        part = (index.to(tl.int32) // each.to(tl.int32)).to(tl.int64)
        inside = index - part * each
        row = (inside.to(tl.int32) // units.to(tl.int32)).to(tl.int64)
    begin = source.to(tl.int64) + part * run.to(tl.int64)
    target = _target(part, spacing.to(tl.int64), targets, firsts)
    column = inside - row * units
    stride = stride.to(tl.int64)
    pitch = pitch.to(tl.int64)
    _move(begin, target, row, column, inside, stride, pitch, live, UNIT, PITCHED)


@triton.jit(do_not_specialize=["source", "stride", "rows", "pitch", "count", "run", "spacing"])
def _copy_short(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    count: tl.tensor,
    run: tl.tensor,
    spacing: tl.tensor,
    targets: tl.tuple,
    firsts: tl.tuple,
    UNIT: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    PITCHED: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy equal short runs: a program copies the same rows of many parts, which share their cache lines."""
    count = count.to(tl.int64)
    groups = tl.cdiv(count, GROUP)
    program = tl.program_id(0).to(tl.int64)
    block = program // groups
    first = (program - block * groups) * GROUP
    index = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    live = index < rows.to(tl.int64) * UNITS
    if LONG:
        row = index // UNITS
    else:
        row = (index.to(tl.int32) // UNITS).to(tl.int64)
    column = index - row * UNITS
    source = source.to(tl.int64)
    stride = stride.to(tl.int64)
    pitch = pitch.to(tl.int64)
    spacing = spacing.to(tl.int64)
    if len(targets) <= 8:  # loads of several parts are under way at once
        for i in tl.static_range(GROUP):
            if first + i < count:
                target = _target(first + i, spacing, targets, firsts)
                begin = source + (first + i) * (UNITS * UNIT)
                _move(begin, target, row, column, index, stride, pitch, live, UNIT, PITCHED)
    else:
        for part in range(first, tl.minimum(first + GROUP, count)):
            target = _target(part, spacing, targets, firsts)
            begin = source + part * (UNITS * UNIT)
            _move(begin, target, row, column, index, stride, pitch, live, UNIT, PITCHED)


@triton.jit(do_not_specialize=["source", "stride", "rows", "pitch", "count", "run", "spacing"])
def _copy_turned(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    pitch: tl.tensor,
    count: tl.tensor,
    run: tl.tensor,
    spacing: tl.tensor,
    targets: tl.tuple,
    firsts: tl.tuple,
    WORD: tl.constexpr,
    WORDS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    READ: tl.constexpr,
    WRITE: tl.constexpr,
) -> None:
    """Copy equal runs of few bytes: a program reads a tile along its rows and writes it along its parts.

    Runs are padded to `WIDTH` words, a power of 2, within the tile alone.
    """
    count = count.to(tl.int64)
    rows = rows.to(tl.int64)
    across = tl.cdiv(count, PARTS)
    program = tl.program_id(0).to(tl.int64)
    first_row = (program // across) * ROWS
    first_part = (program % across) * PARTS
    row = first_row + tl.arange(0, ROWS)
    column = tl.arange(0, PARTS * WIDTH)
    part = first_part + tl.arange(0, PARTS)
    index = tl.arange(0, ROWS * WIDTH)
    if WORDS == WIDTH:  # said so that Triton sees neighbours
        read = column
        write = index
    else:
        read = (column // WIDTH) * WORDS + column % WIDTH
        write = (index // WIDTH) * WORDS + index % WIDTH
    step = (stride.to(tl.int64) // READ) * (READ // WORD)
    begin = _words(source.to(tl.int64), WORD, READ)
    goal = _words(_target(part, spacing.to(tl.int64), targets, firsts), WORD, WRITE)
    here = begin + row[:, None] * step + (first_part * WORDS + read)[None, :]
    there = goal[:, None] + (first_row * WORDS + write)[None, :]
    if (first_row + ROWS <= rows) & (first_part + PARTS <= count):
        # Without a bound on rows or parts, a thread moves many words at once.
        if WORDS == WIDTH:
            tl.store(there, _turned(tl.load(here), ROWS, PARTS, WIDTH))
        else:
            value = tl.load(here, mask=(column % WIDTH < WORDS)[None, :])
            tl.store(there, _turned(value, ROWS, PARTS, WIDTH), mask=(index % WIDTH < WORDS)[None, :])
    else:
        inside = (first_part + column // WIDTH < count) & (column % WIDTH < WORDS)
        value = tl.load(here, mask=(row < rows)[:, None] & inside[None, :])
        inside = (first_row + index // WIDTH < rows) & (index % WIDTH < WORDS)
        live = (part < count)[:, None] & inside[None, :]
        tl.store(there, _turned(value, ROWS, PARTS, WIDTH), mask=live)


@triton.jit
def _turned(tile: tl.tensor, ROWS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """Return a tile of rows as one of parts, in each of which the runs stand one after another."""
    runs = tl.permute(tl.reshape(tile, [ROWS, PARTS, WIDTH]), [1, 0, 2])
    return tl.reshape(runs, [PARTS, ROWS * WIDTH])
