"""Run by ``test_gpu_kernels``: the Triton kernels in the interpreter, or compiled for an absent GPU."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import torch

from splitops.backends.gpu import triton_kernels as kernels
from splitops.backends.gpu.layout import Launch, launches

CASES: list[tuple[tuple[int, ...], list[int], int, torch.dtype]] = [
    ((64, 96), [32, 32, 32], 1, torch.bfloat16),
    ((5, 1008), [1, 7, 1000], 1, torch.bfloat16),
    ((33, 17, 3), [1, 1, 1], 2, torch.uint8),
    ((99, 50, 3), [1, 1, 1], 2, torch.uint8),
    ((9, 64), [1] * 64, 1, torch.float32),
    ((3, 40), [1] * 40, 1, torch.complex128),
    ((4, 400), [200, 0, 100, 100], 1, torch.float64),
    ((4, 400), [100, 0, 100, 100, 100], 1, torch.float64),
    ((700,), [300, 400], 0, torch.float16),
    ((6, 40, 3), [3, 37], 1, torch.int32),
    ((2, 20000), [9999, 10001], 1, torch.float32),
    ((2, 20000), [10000, 10000], 1, torch.float32),
    # Runs of few bytes: whole tiles and the rests of them, runs that divide no unit.
    ((300, 33), [1] * 33, 1, torch.float32),
    ((130, 50), [1] * 50, 1, torch.uint8),
    ((40, 21), [3] * 7, 1, torch.uint8),
    ((50, 60), [3] * 20, 1, torch.float64),
    ((50, 60), [1] * 60, 1, torch.complex128),
    # Short runs of many parts, one row, many equal parts with a rest.
    ((130, 16 * 40), [16] * 40, 1, torch.float32),
    ((1, 40), [1] * 40, 1, torch.uint8),
    ((1, 60), [2] * 30, 1, torch.complex128),
    ((20, 41), [2] * 20 + [1], 1, torch.float32),
]


def parts_of(shapes: list[tuple[int, ...]], dtype: torch.dtype, spaced: bool, odd: int) -> list[torch.Tensor]:
    """Return memory for parts, evenly spaced where they are equal or scattered, on any odd element."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    gaps = [1 + (0 if spaced else index * index % 5) for index in range(len(sizes))]
    slab = torch.zeros((sum(sizes) + sum(gaps) + odd) * dtype.itemsize, dtype=torch.uint8).view(dtype)
    parts, place = [], odd
    for shape, size, gap in zip(shapes, sizes, gaps, strict=True):
        parts.append(slab[place : place + size].view(shape))
        place += size + gap
    return parts


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def interpreted() -> None:
    # Each program looks at each entry, and the interpreter takes milliseconds for one.
    kernels.MAX_ENTRIES = 8  # type: ignore[misc]
    kernels.launches = partial(launches, entries=8)
    torch.cuda.device_of = lambda tensor: nullcontext()  # type: ignore[assignment,misc]
    launched: list[Launch] = []
    start = kernels._start
    kernels._start = lambda launch: (launched.append(launch), start(launch))  # type: ignore[assignment,func-returns-value]
    for (shape, sizes, axis, dtype), spaced in product(CASES, (True, False)):
        launched.clear()
        count, odd = torch.Size(shape).numel(), len(sizes) % 2
        raw = torch.randint(0, 256, ((count + odd) * dtype.itemsize,), dtype=torch.uint8)
        data = raw.view(dtype)[odd:].reshape(shape)
        parts = parts_of([(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes], dtype, spaced, odd)
        assert kernels.copy_parts(data, sizes, axis, parts)
        for part, right in zip(parts, data.split(sizes, axis), strict=True):
            assert torch.equal(bytes_of(part), bytes_of(right)), (shape, sizes, spaced)
        if spaced and len(set(sizes)) == 1:
            assert len(launched) == 1
    for rows, sizes in (
        (40, [4] * 12),
        (9, [5000, 5000]),
        (9, [7, 5000, 16, 1]),
        (40, [20] * 10),
        (1, [5, 5]),
    ):
        for dtype in (torch.uint8, torch.float64):
            launched.clear()
            data = torch.randint(0, 256, (rows, sum(sizes) * dtype.itemsize), dtype=torch.uint8).view(dtype)
            wide = torch.zeros(rows, sum(sizes) + 2 * len(sizes) + 1, dtype=dtype)
            parts = [part[:, 2:] for part in wide[:, 1:].split([size + 2 for size in sizes], 1)]
            assert kernels.copy_parts(data, sizes, 1, parts)
            assert len(launched) == 1
            for part, right in zip(parts, data.split(sizes, 1), strict=True):
                assert torch.equal(bytes_of(part), bytes_of(right)), (rows, sizes)
            assert torch.count_nonzero(wide[:, :3]) == 0
    strided = torch.zeros(6, 4, 8)[:, ::2, ::2]
    assert not kernels.copy_parts(strided, [2, 2], 2, [torch.empty(6, 2, 2)] * 2)


def compiled() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    def ptx(kernel: Any, constants: dict[str, Any], entries: int) -> str:
        names = kernel.arg_names
        tables = {"targets", "ends", "firsts"}
        signature = {name: ("i64",) * entries if name in tables else "i64" for name in names}
        signature |= dict.fromkeys(constants, "constexpr")
        values = {(names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=values)
        text: str = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
        assert ".local" not in text  # the table is read where the arguments are, not copied to memory
        return text

    uneven = {"UNIT": 2, "WIDE": 16, "TILE": 1 << 14, "LONG": False, "PITCHED": False}
    equal = {"UNIT": 16, "WIDE": 16, "TILE": 1 << 14, "LONG": False, "PITCHED": False}
    for kernel, constants in ((kernels._copy_uneven, uneven), (kernels._copy_equal, equal)):
        text = ptx(kernel, constants, 96)
        assert text.count("ld.global.v2.b64") == text.count("st.global.v2.b64") >= 4  # 16 bytes a thread
    assert "st.global.v2.b64" in ptx(kernels._copy_equal, equal | {"PITCHED": True}, 1)


if __name__ == "__main__":
    {"interpreted": interpreted, "compiled": compiled}[sys.argv[1]]()
    print("done")
