"""The copy kernels in Triton, for PyTorch on CUDA and ROCm (and on the CPU in Triton's interpreter)."""

# ruff: noqa: N803, N806, SIM108, SIM114 - Triton writes constants in capitals, and compiles each branch

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl

from splitops.backends.gpu.layout import MAX_ENTRIES, WIDEST, Kernel, Launch, launches, pitch_of, rows_of

_TILE: Final = 1 << 14
"""Bytes that one program copies."""
_MARK: Final = 1 << 62 | 1 << 3
_LONG: Final = 1 << 30
"""From so many units on, 32-bit indices may overflow."""


def copy_parts(data: torch.Tensor, sizes: Sequence[int], axis: int, parts: Sequence[torch.Tensor]) -> bool:
    """Copy the parts of a tensor into tensors of their shapes, on its device and current stream.

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
    targets = _packed(launch.targets)
    head = launch.source, launch.stride, launch.rows, launch.pitch
    pitched = launch.pitch != 0
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
                *head,
                launch.count,
                launch.run,
                launch.spacing,
                targets,
                _packed(launch.firsts),
                UNIT=launch.unit,
                WIDE=WIDEST,
                TILE=_TILE,
                PITCHED=pitched,
                LONG=units >= _LONG,
                num_warps=8,
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
