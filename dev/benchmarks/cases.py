"""The cases, in sections; each gives one row with the times of splitops and of every installed peer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import splitops
from dev.benchmarks import peers
from dev.benchmarks.timing import Call, Times, interleaved, statement
from splitops import native

MIB = 1 << 20
OURS = "splitops"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """One case: times by candidate, and the goals as (peer, times as fast as the implementation at least)."""

    section: str
    name: str
    times: Mapping[str, Times]
    goals: Mapping[str, float] = field(default_factory=dict)

    minimum: bool = False
    """Whether ratios are of the minima instead of the medians."""

    def seconds(self, candidate: str) -> float:
        """The time of a call."""
        times = self.times[candidate]
        return times.minimum if self.minimum else times.median

    def ratio(self, peer: str) -> float:
        """How many times as fast as the implementation splitops is."""
        return self.seconds(peer) / self.seconds(OURS)


@dataclass(frozen=True)
class Options:
    """How much to measure: `scale` divides the sizes of the large cases."""

    rounds: int = 15
    scale: int = 1
    sweep_mib: int = 64


def _present(candidates: Mapping[str, Call | None]) -> dict[str, Call]:
    return {name: call for name, call in candidates.items() if call is not None}


def _parts(x: Array, axis: int, sizes: Sequence[int]) -> list[Array]:
    """Warm buffers for the parts."""
    shape = list(x.shape)
    out = []
    for size in sizes:
        shape[axis] = size
        out.append(np.ones(shape, x.dtype))
    return out


def views(options: Options) -> Iterator[Row]:
    """Two views, and a hundred thousand."""
    x = np.zeros((4, 8), np.float32)
    names: dict[str, Any] = {
        "x": x,
        "np": np,
        "plan": splitops.plan("Split", shape=(4, 8), axis=0, split=[2, 2], opset=18),
        "split": splitops.onnx.split,
    }
    peers_of_two = {
        "slicing": statement("x[:2], x[2:]", names),
        "np.split": statement("np.split(x, 2)", names),
    }
    torch = peers.load("torch")
    if torch is not None:
        names["t"] = torch.from_numpy(x)
        peers_of_two["torch"] = statement("t.split(2)", names)
    for name, source, goals in (
        ("(4, 8) in 2, plan(x)", "plan(x)", {"slicing": 1 / 0.45}),
        ("(4, 8) in 2, onnx.split", "split(x, [2, 2])", {"slicing": 1.0, "np.split": 1 / 0.15}),
    ):
        candidates = {OURS: statement(source, names), **peers_of_two}
        yield Row("views", name, interleaved(candidates, 4 * options.rounds, 0.002), goals)

    if torch is not None:
        yield from _torch_views(torch, options)

    rows = np.zeros((100_000, 64), np.float32)
    many = splitops.plan("SplitToSequence", shape=rows.shape, axis=0, opset=18)
    candidates = {
        OURS: lambda: many(rows),
        "np.array_split": lambda: np.array_split(rows, 100_000),
    }
    yield Row(
        "views", "100 000 parts", interleaved(candidates, options.rounds, 0), {"np.array_split": 1 / 0.12}
    )


def _torch_views(torch: Any, options: Options) -> Iterator[Row]:
    """Views of tensors, remembered, by lists and by numbers: beside the same call of PyTorch."""
    names: dict[str, Any] = {"split": splitops.onnx.split, "torch": torch}
    for shape, axis, sizes in (
        ((6,), 0, [2, 2, 2]),
        ((4, 8), 0, [2, 2]),
        ((2, 12, 8), 1, [4, 4, 4]),
        ((2, 3, 4, 6), 3, [3, 3]),
        ((4, 64), 1, [2] * 32),
    ):
        parts = len(sizes)
        used = {**names, "t": torch.zeros(shape), "sizes": sizes}
        for how, ours, theirs in (
            ("a list", f"split(t, sizes, axis={axis})", f"torch.split(t, sizes, {axis})"),
            (
                "a number",
                f"split(t, num_outputs={parts}, axis={axis})",
                f"torch.split(t, {sizes[0]}, {axis})",
            ),
        ):
            candidates = {OURS: statement(ours, used), "torch.split": statement(theirs, used)}
            # Short turns, and many: each measures less than a processor is lent to somebody else.
            times = interleaved(candidates, 20 * options.rounds, 0.0005)
            yield Row("views of tensors", f"{shape} in {parts}, {how}", times, {"torch.split": 1.0})


def calls(options: Options) -> Iterator[Row]:
    """Functions that have seen the very call before, and that have not; lengths in a list and in an array."""
    x = np.zeros((4, 8), np.float32)
    names: dict[str, Any] = {"x": x, "split": splitops.onnx.split, "lengths": np.array([2, 2])}
    candidates = {
        OURS: statement("split(x, lengths)", names),
        "a list": statement("split(x, [2, 2])", names),
        "slicing": statement("x[:2], x[2:]", names),
    }
    times = interleaved(candidates, 4 * options.rounds, 0.002)
    yield Row("calls", "(4, 8) in 2, an array of lengths", times, {"a list": 0.5})

    # A function remembers some hundred calls, and this is one of each of a thousand shapes.
    names["shapes"] = [np.zeros((4, 8 + i), np.float32) for i in range(1000)]
    candidates = {
        OURS: lambda: [splitops.onnx.split(x, [2, 2]) for x in names["shapes"]],
        "an array": lambda: [splitops.onnx.split(x, names["lengths"]) for x in names["shapes"]],
        "slicing": lambda: [(x[:2], x[2:]) for x in names["shapes"]],
    }
    times = interleaved(candidates, options.rounds, 0)
    yield Row("calls", "1000 shapes, not remembered", times, {"an array": 0.5})


LARGE_GOALS = {"memcpy": 0.95, "onnxruntime": 1.1, "numpy": 3.0, "torch": 3.0, "jax": 3.0}


def _large(scale: int) -> list[tuple[str, Array, int, list[int], dict[str, float], dict[str, float]]]:
    """Name, data, axis, sizes, goals with fresh outputs, goals with the caller's buffers."""
    f32 = np.ones((1024 // scale, 65536), np.float32)
    qkv = np.ones((8192 // scale, 12288), np.float16)
    rgb = np.ones((4096 // scale, 4096, 3), np.uint8)
    rgba = np.ones((2048 // scale, 2048, 4), np.float32)
    return [
        ("f32 [1024, 65536], axis 0 in 4", f32, 0, [256 // scale] * 4, LARGE_GOALS, {"memcpy": 0.95}),
        ("f32 [1024, 65536], axis 1 in 64", f32, 1, [1024] * 64, LARGE_GOALS, {"memcpy": 0.95}),
        ("f16 [8192, 12288], axis 1 in 3", qkv, 1, [4096] * 3, LARGE_GOALS, {"memcpy": 0.95}),
        (
            "u8 [4096, 4096, 3], axis 2 in 3",
            rgb,
            2,
            [1] * 3,
            {"memcpy": 1.0, "onnxruntime": 4.5, "cv2": 1.5},
            {"memcpy": 0.9},
        ),
        (
            "f32 [2048, 2048, 4], axis 2 in 4",
            rgba,
            2,
            [1] * 4,
            {"memcpy": 1.0, "onnxruntime": 3.0, "cv2": 1.5},
            {"memcpy": 0.9},
        ),
    ]


def fresh(options: Options) -> Iterator[Row]:
    """Copies into fresh outputs: with a warm pool, and the first call with an empty one."""
    for name, x, axis, sizes, goals, _ in _large(options.scale):
        candidates = _present(
            {
                OURS: _fresh(x, axis, sizes),
                "memcpy": peers.Memcpy(x.nbytes),
                "numpy": peers.numpy_fresh(x, axis, sizes),
                "onnxruntime": peers.onnxruntime_fresh(x, axis, sizes),
                "torch": peers.torch_fresh(x, axis, sizes),
                "jax": peers.jax_fresh(x, axis, sizes),
                "cv2": peers.cv2_split(x, None),
            }
        )
        yield Row("fresh", name, interleaved(candidates, options.rounds, 0, clean=True), goals)

        # Neither has memory at hand: what the allocator of C keeps for NumPy is given back as well.
        candidates = {name: candidates[name] for name in (OURS, "memcpy", "numpy")}
        before = {OURS: native.release_pool, "numpy": peers.trim_memory}
        times = interleaved(candidates, options.rounds, 0, clean=True, before=before)
        yield Row("fresh, empty pool", name, times, {"memcpy": 0.5, "numpy": 1.7})


def _fresh(x: Array, axis: int, sizes: Sequence[int]) -> Call:
    return lambda: splitops.onnx.split(x, sizes, axis=axis, copy=True)


def _out(x: Array, axis: int, sizes: Sequence[int], out: Sequence[Array]) -> Call:
    return lambda: splitops.onnx.split(x, sizes, axis=axis, out=out)


def _rows_of(total: int, dtype: str, sizes: Sequence[int]) -> Array:
    width = sum(sizes)
    return np.ones((total // (width * np.dtype(dtype).itemsize), width), dtype)


def out(options: Options) -> Iterator[Row]:
    """Copies into the caller's warm buffers."""
    cases = [(name, x, axis, sizes, goals) for name, x, axis, sizes, _, goals in _large(options.scale)]
    total = 64 * MIB // options.scale
    for name, dtype, sizes, goal in (
        ("4 KiB x 16", "f4", [1024] * 16, 0.95),
        ("1 KiB x 8", "f4", [256] * 8, 0.9),
        ("256 B x 4", "f4", [64] * 4, 0.9),
        ("64 B x 4", "f4", [16] * 4, 0.9),
        ("32 B x 4", "f4", [8] * 4, 0.8),
        ("16 B x 4", "c16", [1] * 4, 0.9),
        ("8 B x 4", "f8", [1] * 4, 0.9),
        ("2 B x 3", "u2", [1] * 3, 0.9),
        ("1 B x 2", "u1", [1] * 2, 0.9),
        ("1 B x 8", "u1", [1] * 8, 0.9),
        ("1 B x 16", "u1", [1] * 16, 0.9),
        ("3 + 1 B", "u1", [3, 1], 0.8),
        ("4 + 8 + 20 + 96 B", "u1", [4, 8, 20, 96], 0.7),
        ("12 + 20 + 100 + 700 B", "u1", [12, 20, 100, 700], 0.7),
        ("4 + 28 + 4000 B", "u1", [4, 28, 4000], 0.7),
    ):
        cases.append((name, _rows_of(total, dtype, sizes), 1, sizes, {"memcpy": goal}))
    for name, x, axis, sizes, goals in cases:
        targets = _parts(x, axis, sizes)
        candidates = _present(
            {
                OURS: _out(x, axis, sizes, targets),
                "memcpy": peers.Memcpy(x.nbytes),
                "numpy": peers.numpy_out(x, axis, sizes, targets),
                "onnxruntime": peers.onnxruntime_out(x, axis, sizes, targets) if x.dtype != "c16" else None,
                "openvino": peers.openvino_out(x, axis, sizes, targets) if x.dtype != "c16" else None,
                "torch": peers.torch_out(x, axis, sizes, targets),
                "cv2": peers.cv2_split(x, targets),
            }
        )
        yield Row("out=", name, interleaved(candidates, options.rounds, 0, clean=True), goals)


def many(options: Options) -> Iterator[Row]:
    """Small copies, and many parts."""
    x = np.zeros((4, 8), np.float32)
    names = {"x": x, "split": splitops.onnx.split}
    session = peers.onnxruntime_fresh(x, 0, [2, 2])
    hundred = None if session is None else (lambda: [session() for _ in range(100)])
    candidates = _present(
        {
            OURS: statement("split(x, [2, 2], copy=True)", names),
            "slicing": statement("x[:2], x[2:]", names),
            "onnxruntime": hundred,
        }
    )
    times = interleaved(candidates, 4 * options.rounds, 0.002)
    yield Row("small, many", "(4, 8) in 2, copied", times, {"slicing": 1 / 2.5, "onnxruntime": 8.0})

    rows = np.zeros((4096, 64), np.float32)
    candidates = _present(
        {
            OURS: lambda: splitops.onnx.split_to_sequence(rows, keepdims=0, copy=True),
            "onnxruntime": peers.onnxruntime_sequence(rows),
        }
    )
    times = interleaved(candidates, options.rounds, 0)
    yield Row("small, many", "SplitToSequence 4096 x [64]", times, {"onnxruntime": 5.0})

    long = np.ones((100_000, 64), np.float32)
    sizes = [1] * 100_000
    plan = splitops.plan("Split", shape=long.shape, axis=0, split=sizes, opset=18)
    torch_fresh = peers.torch_fresh(long, 0, sizes)
    candidates = _present({OURS: lambda: plan(long, copy=True), "torch": torch_fresh})
    yield Row(
        "small, many", "100 000 x 256 B, fresh", interleaved(candidates, options.rounds, 0), {"torch": 12.0}
    )
    targets = _parts(long, 0, sizes)
    torch_out = peers.torch_out(long, 0, sizes, targets)
    candidates = _present(
        {OURS: lambda: plan(long, out=targets), "torch out=": torch_out, "torch": torch_fresh}
    )
    times = interleaved(candidates, max(3, options.rounds // 3), 0)
    yield Row("small, many", "100 000 x 256 B, out=", times, {"torch": 40.0})


def _sweep_layouts(total: int) -> Iterator[tuple[str, Array, list[int]]]:
    """Inner runs, parts, element sizes, uneven parts, and inputs with gaps or off their alignment."""
    for run, parts in itertools.product(
        (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 500, 512, 1024, 2048, 4096),
        (2, 3, 8, 64, 1024),
    ):
        if run * parts <= 1 << 20:
            yield f"{run} B x {parts}", _rows_of(total, "u1", [run] * parts), [run] * parts
    for dtype in ("u2", "f4", "f8", "c16"):
        yield f"[1, 7, 1000] of {dtype}", _rows_of(total, dtype, [1, 7, 1000]), [1, 7, 1000]
        yield f"[1] * 5 of {dtype}", _rows_of(total, dtype, [1] * 5), [1] * 5
    for run in (3, 16, 100):
        sizes = [run] * 4
        gaps = np.ones((total // (6 * run), 6 * run), np.uint8)[:, run : 5 * run]
        yield f"{run} B x 4 of rows with gaps", gaps, sizes
        shifted = np.ones(total // (4 * run) * 4 * run + 1, np.uint8)[1:].reshape(-1, 4 * run)
        yield f"{run} B x 4, off by one byte", shifted, sizes


def sweep(options: Options) -> Iterator[Row]:
    """The grid without a cliff; `python -m dev.benchmarks` prints its worst ratio."""
    total = options.sweep_mib * MIB // options.scale
    memcpy = peers.Memcpy(total)
    for name, x, sizes in _sweep_layouts(total):
        targets = _parts(x, 1, sizes)
        plan = native.Plan(x.shape, 1, tuple(itertools.accumulate([0, *sizes[:-1]])), tuple(sizes))

        def ours(plan: native.Plan = plan, x: Array = x, targets: list[Array] = targets) -> None:
            plan.copies_into(x, targets)

        times = interleaved({OURS: ours, "memcpy": memcpy}, max(3, options.rounds // 3), 0, clean=True)
        yield Row("sweep", name, times)


SECTIONS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "views": views,
    "calls": calls,
    "fresh": fresh,
    "out": out,
    "many": many,
    "sweep": sweep,
}
