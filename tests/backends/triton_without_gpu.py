"""Run by ``test_gpu_kernels``: the Triton kernels in the interpreter, or compiled for an absent GPU."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch

from splitops.backends.gpu import triton_kernels as kernels

CASES: list[tuple[tuple[int, ...], list[int], int, torch.dtype]] = [
    ((64, 96), [32, 32, 32], 1, torch.bfloat16),
    ((5, 1008), [1, 7, 1000], 1, torch.bfloat16),
    ((33, 17, 3), [1, 1, 1], 2, torch.uint8),
    ((9, 64), [1] * 64, 1, torch.float32),
    ((3, 130), [1] * 130, 1, torch.complex128),
    ((4, 400), [200, 0, 100, 100], 1, torch.float64),
    ((700,), [300, 400], 0, torch.float16),
    ((6, 40, 3), [3, 37], 1, torch.int32),
    ((2, 20000), [9999, 10001], 1, torch.float32),
]


def interpreted() -> None:
    torch.cuda.device_of = lambda tensor: nullcontext()  # type: ignore[assignment,misc]
    for shape, sizes, axis, dtype in CASES:
        count = torch.Size(shape).numel()
        data = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype).reshape(shape)
        part_shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        parts = [torch.zeros(part, dtype=torch.uint8).to(dtype) for part in part_shapes]
        assert kernels.copy_parts(data, sizes, axis, parts)
        for part, right in zip(parts, data.split(sizes, axis), strict=True):
            assert torch.equal(part.view(torch.uint8), right.contiguous().view(torch.uint8)), (shape, sizes)
    strided = torch.zeros(6, 4, 8)[:, ::2, ::2]
    assert not kernels.copy_parts(strided, [2, 2], 2, [torch.empty(6, 2, 2)] * 2)


def compiled() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    def ptx(kernel: Any, constants: dict[str, Any], parts: int) -> str:
        names = kernel.arg_names
        tables = {"targets", "ends"}
        signature = {name: ("i64",) * parts if name in tables else "i64" for name in names}
        signature |= dict.fromkeys(constants, "constexpr")
        values = {(names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=values)
        text: str = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"]
        return text

    for equal in (True, False):
        constants = {"UNIT": 2, "WIDE": 16, "TILE": 1 << 14, "EQUAL": equal, "LONG": False}
        text = ptx(kernels._copy_runs, constants, 96)
        assert text.count("ld.global.v2.b64") == text.count("st.global.v2.b64") == 4  # 16 bytes a thread
        assert ".local" not in text  # the table is read where the arguments are, not copied to memory
    ptx(kernels._copy_short_runs, {"UNIT": 1, "RUN": 1, "BLOCK": 1024, "LONG": True}, 4)


if __name__ == "__main__":
    {"interpreted": interpreted, "compiled": compiled}[sys.argv[1]]()
    print("done")
