"""The copy kernels in Triton, for PyTorch on CUDA and ROCm (and on the CPU in Triton's interpreter)."""

# ruff: noqa: N803, N806, SIM108, SIM114 - Triton writes constants in capitals, and compiles each branch

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl

from splitops.backends.gpu.layout import MAX_PARTS, WIDEST, Launch, launches, rows_of

__all__ = ["copy_parts"]

_TILE: Final = 1 << 14
"""Bytes that one program copies."""
_MARK: Final = 1 << 62 | 1 << 3
_SHORT_UNITS: Final = 1024
"""Units of each part that one program copies where runs are short."""


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
    if layout is None or not all(part.is_contiguous() for part in parts):
        return False
    rows, stride, inner = layout
    addresses = [part.data_ptr() for part in parts]
    with torch.cuda.device_of(data):
        for launch in launches(data.data_ptr(), rows, stride, [size * inner for size in sizes], addresses):
            _start(launch)
    return True


def _start(launch: Launch) -> None:
    long = launch.rows * max(launch.runs) // launch.unit >= 1 << 30
    if launch.short:
        run = launch.run // launch.unit
        blocks = triton.cdiv(launch.rows * run, _SHORT_UNITS)
        _copy_short_runs[(blocks,)](
            launch.source,
            launch.stride,
            launch.rows,
            _packed(launch.targets),
            len(launch.targets),
            UNIT=launch.unit,
            RUN=run,
            BLOCK=_SHORT_UNITS,
            LONG=long,
        )
        return
    blocks = sum(triton.cdiv(launch.rows * run, _TILE) for run in launch.runs)
    _copy_runs[(blocks,)](
        launch.source,
        launch.stride,
        launch.rows,
        launch.run,
        _packed(launch.targets),
        _packed(launch.ends),
        UNIT=launch.unit,
        WIDE=WIDEST,
        TILE=_TILE,
        EQUAL=launch.run > 0,
        LONG=long,
        num_warps=8,
    )


def _packed(table: tuple[int, ...]) -> tuple[int, ...]:
    """Return a table as kernel arguments, of one of a few lengths, each of which is a kernel of its own.

    The last entry repeats: a part of no bytes, which gets no program. Triton compiles anew for each integer
    of a tuple that is 1, divisible by 16, or within 32 bits; marked so, all integers are alike to it.
    """
    length = next(size for size in (2, 4, 8, 16, 32, 64, MAX_PARTS) if size >= len(table))
    return tuple(entry << 4 | _MARK for entry in table + table[-1:] * (length - len(table)))


@triton.jit
def _entry(packed: tl.tensor) -> tl.tensor:
    """Return an entry of a table as it was before it was marked."""
    return (packed.to(tl.int64) & 0x3FFFFFFFFFFFFFFF) >> 4


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
def _move(
    source: tl.tensor,
    target: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    index: tl.tensor,
    stride: tl.tensor,
    live: tl.tensor,
    UNIT: tl.constexpr,
) -> None:
    """Copy units: the one at a row and column of the source to its index in the target."""
    begin = _pointer(source, UNIT)
    goal = _pointer(target, UNIT)
    if UNIT == 16:
        word = tl.arange(0, 2)[None, :]
        pitch = (stride // 16) * 2
        here = tl.multiple_of(row * pitch + column * 2, 2)
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
    run: tl.tensor,
    target: tl.tensor,
    block: tl.tensor,
    UNIT: tl.constexpr,
    TILE: tl.constexpr,
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
        _move(source, target, row, index - row * units, index, stride, live, UNIT)


@triton.jit(do_not_specialize=["source", "stride", "rows", "run"])
def _copy_runs(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    run: tl.tensor,
    targets: tl.tuple,
    ends: tl.tuple,
    UNIT: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    EQUAL: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy parts tile by tile: a program finds its part in the table and copies one tile of it."""
    program = tl.program_id(0).to(tl.int64)
    source = source.to(tl.int64)
    stride = stride.to(tl.int64)
    rows = rows.to(tl.int64)
    target = _entry(targets[0])
    if EQUAL:
        length = run.to(tl.int64)
        blocks = tl.cdiv(rows * length, TILE)
        part = program // blocks
        block = program - part * blocks
        begin = part * length
        for i in tl.static_range(1, len(targets)):
            target = tl.where(part == i, _entry(targets[i]), target)
    else:
        length = _entry(ends[0])
        begin = length * 0
        first = length * 0
        block = program
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
    if UNIT == WIDE:
        _copy_tile(source + begin, stride, rows, length, target, block, WIDE, TILE, LONG)
    elif ((source + begin) | stride | length | target) % WIDE == 0:  # an odd part slows no other one down
        _copy_tile(source + begin, stride, rows, length, target, block, WIDE, TILE, LONG)
    else:
        _copy_tile(source + begin, stride, rows, length, target, block, UNIT, TILE, LONG)


@triton.jit(do_not_specialize=["source", "stride", "rows", "count"])
def _copy_short_runs(
    source: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    targets: tl.tuple,
    count: tl.tensor,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    BLOCK: tl.constexpr,
    LONG: tl.constexpr,
) -> None:
    """Copy equal short runs: a program copies the same rows of every part, which share their cache lines."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    live = index < rows.to(tl.int64) * RUN
    if LONG:
        row = index // RUN
    else:
        row = (index.to(tl.int32) // RUN).to(tl.int64)
    column = index - row * RUN
    source = source.to(tl.int64)
    stride = stride.to(tl.int64)
    for i in tl.static_range(len(targets)):
        if i < count:
            begin = source + i * (RUN * UNIT)
            _move(begin, _entry(targets[i]), row, column, index, stride, live, UNIT)
