"""Measure ``copy=True`` on a CUDA GPU against PyTorch's own copies and a plain device-to-device copy.

    python dev/benchmarks/gpu.py [--json FILE] [--quick]

Prints a table and leaves with status 1 where a goal is missed. Each row is the median of many runs, timed by
CUDA events in the same process, the contenders in turn; bytes are read plus written. Needs a CUDA build of
PyTorch with Triton; CuPy is measured too where it is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import splitops

LARGE = 64 << 20
"""Bytes from which a case is held to the share of a plain copy."""
SHARE = 0.92
SHORT_RUN = 128
SHORT_GAIN = 2.0

Contender = Callable[[], object]


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    axis: int
    sizes: Sequence[int]
    dtype: torch.dtype


def cases(quick: bool) -> Iterable[Case]:
    rows = 1024 if quick else 8192
    yield Case("QKV", (rows, 3 * 4096), 1, [4096] * 3, torch.bfloat16)
    uneven = [1, 7, 1000, 3, 2037, 1048]
    yield Case("uneven", (4 * rows, sum(uneven)), 1, uneven, torch.bfloat16)
    yield Case("64 parts", (rows, 64 * 128), 1, [128] * 64, torch.bfloat16)
    yield Case("1024 parts", (rows, 1024 * 16), 1, [16] * 1024, torch.float32)
    yield Case("1024 bytes", (8 * rows, 1024), 1, [1] * 1024, torch.uint8)
    yield Case("1024 in turn", (rows, 1024 * 3), 1, [2, 4] * 512, torch.float32)
    side = 1024 if quick else 4096
    yield Case("channels", (side, side, 3), 2, [1, 1, 1], torch.uint8)
    yield Case("single elements", (rows * 64, 32), 1, [1] * 32, torch.float32)
    yield Case("leading axis", (64, rows * 512), 0, [1, 31, 32], torch.float32)
    yield Case("small", (64, 96), 1, [32, 32, 32], torch.float16)


@dataclass(frozen=True)
class Row:
    case: str
    contender: str
    microseconds: float
    terabytes_per_second: float
    of_copy: float


def medians(contenders: dict[str, Contender], repeats: int) -> dict[str, float]:
    """Return the median microseconds of each, run in turn so that clocks and neighbours treat all alike."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(5):
        for run in contenders.values():
            run()
    torch.cuda.synchronize()
    for _ in range(repeats):
        for name, run in contenders.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def captured(run: Contender) -> Contender:
    """Return a CUDA graph of a call: it proves that the call can be captured, and has no cost on the host."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(case: Case, repeats: int) -> list[Row]:
    data = torch.randint(0, 127, case.shape, device="cuda").to(case.dtype)
    target = torch.empty_like(data)
    sizes, axis = list(case.sizes), case.axis
    out = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in data.split(sizes, axis)]
    for part, right in zip(
        splitops.onnx.split(data, sizes, axis=axis, copy=True), data.split(sizes, axis), strict=True
    ):
        assert torch.equal(part, right)

    def fill() -> object:
        return splitops.onnx.split(data, sizes, axis=axis, out=out)

    largest = max(part.numel() for part in out)
    slab = torch.empty(len(out), largest, dtype=case.dtype, device="cuda")
    slices = [row[: part.numel()].view(part.shape) for row, part in zip(slab, out, strict=True)]

    def fill_slices() -> object:
        return splitops.onnx.split(data, sizes, axis=axis, out=slices)

    fill()
    contenders: dict[str, Contender] = {
        "copy of the same bytes": lambda: target.copy_(data),
        "splitops": lambda: splitops.onnx.split(data, sizes, axis=axis, copy=True),
        "splitops out=": fill,
        "splitops out= of one tensor": fill_slices,
        "splitops out= in a CUDA graph": captured(fill),
        "torch split_with_sizes_copy(out=)": lambda: torch.split_with_sizes_copy(data, sizes, axis, out=out),
        "torch split + contiguous": lambda: [part.contiguous() for part in data.split(sizes, axis)],
    }
    contenders |= cupy_contenders(data, case)
    times = medians(contenders, repeats)
    copy = times["copy of the same bytes"]
    return [
        Row(case.name, name, time, 2 * data.nbytes / time / 1e6, copy / time) for name, time in times.items()
    ]


def cupy_contenders(data: torch.Tensor, case: Case) -> dict[str, Contender]:
    try:
        import cupy
    except ImportError:
        return {}
    try:
        array: Any = cupy.from_dlpack(data)
    except (BufferError, RuntimeError, TypeError, ValueError):  # CuPy has no bfloat16
        return {}
    sizes, axis = list(case.sizes), case.axis
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return {
        "splitops on CuPy": lambda: splitops.onnx.split(array, sizes, axis=axis, copy=True),
        "cupy split + copy": lambda: [part.copy() for part in cupy.split(array, ends, axis)],
    }


def misses(case: Case, rows: list[Row]) -> list[str]:
    """Return the goals that a case misses, in words."""
    by_name = {row.contender: row for row in rows}
    ours = by_name["splitops out="]
    found = []
    size = 2 * torch.Size(case.shape).numel() * case.dtype.itemsize
    if size >= LARGE and ours.of_copy < SHARE:
        found.append(f"{case.name}: {ours.of_copy:.2f} of a copy, not {SHARE}")
    inner = torch.Size(case.shape[case.axis + 1 :]).numel() * case.dtype.itemsize
    rivals = [row for row in rows if row.contender.startswith(("torch", "cupy"))]
    fastest = min(rivals, key=lambda row: row.microseconds)
    gain = fastest.microseconds / ours.microseconds
    if gain < 1:
        found.append(f"{case.name}: {gain:.2f} of {fastest.contender}")
    if size >= LARGE and max(case.sizes) * inner < SHORT_RUN and gain < SHORT_GAIN:
        found.append(f"{case.name}: {gain:.2f} times {fastest.contender}, not {SHORT_GAIN}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--quick", action="store_true", help="small cases and few repeats")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA GPU: nothing was measured", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print(f"{'case':16} {'contender':36} {'us':>9} {'TB/s':>6} {'of copy':>8}")
    rows, missed = [], []
    for case in cases(arguments.quick):
        measured = measure(case, 20 if arguments.quick else 100)
        rows += measured
        missed += misses(case, measured)
        for row in measured:
            print(
                f"{row.case:16} {row.contender:36} {row.microseconds:9.1f} "
                f"{row.terabytes_per_second:6.2f} {row.of_copy:8.2f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    for line in missed:
        print(f"goal missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
