"""What splitops and other optimizers leave of exported models, alone and behind one another, and how fast.

    tasks.py bench simplified_models FOLDER              # of *.onnx, as real models are exported
    tasks.py bench simplified_models FOLDER --write docs/simplify.md

Needs onnxruntime; onnxslim, onnxsim, onnxoptimizer and onnxscript are compared where they are installed. Each
model is measured in a process of its own: every result is run by onnxruntime, without its optimizations for
the values, and with them, in turns, for the time of one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import re
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from dev.benchmarks.quiet import quiet

JOINING = frozenset(
    {"Split", "SplitToSequence", "SequenceAt", "SequenceLength"}
    | {"ConcatFromSequence", "Concat", "Slice", "Gather"}
)
"""Nodes that split and join."""
MOVING = JOINING | {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Identity", "Tile"}
"""Nodes that move data and compute nothing."""

MIN_TURNS, MAX_TURNS = 7, 101
ENOUGH = 1.5
"""Seconds of turns for one model."""
LONGEST = 240
"""Seconds for one model."""

Optimizer = Callable[[onnx.ModelProto], onnx.ModelProto]


# Optimizers


def by_splitops(model: onnx.ModelProto) -> onnx.ModelProto:
    from splitops.models.simplify import simplify

    return simplify(model)  # type: ignore[return-value]


def by_splitops_with_numerics(model: onnx.ModelProto) -> onnx.ModelProto:
    from splitops.models.simplify import simplify

    return simplify(model, allow=["numerics"])  # type: ignore[return-value]


def by_onnxslim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(model)


def by_onnxsim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxsim

    return onnxsim.simplify(model)[0]


def by_onnxoptimizer(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxoptimizer

    return onnxoptimizer.optimize(model, onnxoptimizer.get_fuse_and_elimination_passes(), fixed_point=True)


def by_onnxscript(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(model)


OTHERS: Mapping[str, Optimizer] = {
    "onnxslim": by_onnxslim,
    "onnxsim": by_onnxsim,
    "onnxoptimizer": by_onnxoptimizer,
    "onnxscript": by_onnxscript,
}
OURS: Mapping[str, Optimizer] = {"splitops": by_splitops, "splitops, numerics": by_splitops_with_numerics}


def installed() -> dict[str, str]:
    """Return the versions of the other optimizers that are installed."""
    found = {}
    for name in OTHERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


# One model


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Count the nodes of all graphs and functions by operator, constants left out."""
    found: Counter[str] = Counter()

    def visit(nodes: Sequence[onnx.NodeProto]) -> None:
        for node in nodes:
            found[node.op_type] += node.op_type != "Constant"
            for attribute in node.attribute:
                visit(attribute.g.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    return found


def counted(model: onnx.ModelProto) -> list[int]:
    """Return how many nodes there are, how many move data, and how many split and join."""
    found = operators(model)
    return [sum(found.values()), *(sum(found[name] for name in names) for names in (MOVING, JOINING))]


def feeds_of(model: onnx.ModelProto) -> dict[str, Any]:
    """Return inputs: small positions of words, masks that let all through, numbers around 0."""
    random, held = np.random.default_rng(0), {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name in held:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind in "iu":
            feeds[value.name] = random.integers(0, 2, shape).astype(dtype)
        elif dtype.kind == "b":
            feeds[value.name] = np.ones(shape, dtype)
        else:
            feeds[value.name] = random.standard_normal(shape).astype(dtype)
    return feeds


def session(model: onnx.ModelProto, *, optimized: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def compared(expected: Sequence[Any], found: Sequence[Any]) -> str:
    """Return whether results are the same bits, or close, or differ."""
    pairs = [(np.asarray(left), np.asarray(right)) for left, right in zip(expected, found, strict=True)]
    if any(left.shape != right.shape or left.dtype != right.dtype for left, right in pairs):
        return "differs"
    if all(left.tobytes() == right.tobytes() for left, right in pairs):
        return "bits"
    return (
        "close"
        if all(np.allclose(*pair, rtol=1e-3, atol=1e-4, equal_nan=True) for pair in pairs)
        else "differs"
    )


def seconds(sessions: Mapping[str, Any], feeds: dict[str, Any]) -> dict[str, float]:
    """Return the median time of each session, run in turns."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    begin = time.perf_counter()
    for turn in range(MAX_TURNS + 2):
        for name, one in sessions.items():
            start = time.thread_time()  # what else the machine does is not counted
            one.run(None, feeds)
            if turn > 1:
                times[name].append(time.thread_time() - start)
        if turn > MIN_TURNS and time.perf_counter() - begin > ENOUGH:
            break
    return {name: statistics.median(found) for name, found in times.items()}


def measured(path: Path, others: Sequence[str]) -> dict[str, Any]:
    """Return what each optimizer leaves of a model: counts, how the values compare, and the time."""
    given = onnx.load(path)
    feeds = feeds_of(given)
    models: dict[str, onnx.ModelProto | None] = {"exported": given}

    def make(name: str, optimizer: Optimizer, start: onnx.ModelProto | None) -> None:
        models[name] = None
        if start is not None:
            copy = onnx.ModelProto()
            copy.CopyFrom(start)
            with contextlib.suppress(Exception), quiet():
                models[name] = optimizer(copy)

    for name, optimizer in OURS.items():
        make(name, optimizer, given)
    for name in others:
        make(name, OTHERS[name], given)
        make(f"{name}, then splitops", by_splitops, models[name])
    expected: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name, model in models.items():
        row: dict[str, Any] = {"counts": None, "values": "rejected"}
        rows[name] = row
        if model is None:
            continue
        try:
            expected[name] = session(model, optimized=False).run(None, feeds)
        except Exception:
            continue
        before = name.removesuffix(", then splitops") if name.endswith(", then splitops") else "exported"
        row |= {"counts": counted(model), "values": compared(expected[before], expected[name])}
    kept = {name: model for name, model in models.items() if model is not None and name in expected}
    ratios = seconds({name: session(model, optimized=True) for name, model in kept.items()}, feeds)
    for name, ratio in ratios.items():
        rows[name]["time"] = ratio
    return rows


# All models


def every(folder: Path, others: Sequence[str], patterns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Measure each model in a process of its own; one that ends it, or takes too long, is left out."""
    warm = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[4] y) {y = Neg(x)}'
    )
    for optimizer in (*OURS.values(), *(OTHERS[name] for name in others)):
        with quiet():
            optimizer(warm)  # so that each process need not load it
    context, found = multiprocessing.get_context("fork"), {}
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(target=_answer, args=(sender, path, others))
        worker.start()
        sender.close()
        try:
            found[path.stem] = receiver.recv() if receiver.poll(LONGEST) else {}
        except EOFError:
            found[path.stem] = {}
        worker.kill()
        worker.join()
        print(path.stem, "" if found[path.stem] else "is left out", file=sys.stderr, flush=True)
    return {name: rows for name, rows in found.items() if rows}


def _answer(pipe: Connection, path: Path, others: Sequence[str]) -> None:
    pipe.send(measured(path, others))


def table(found: Mapping[str, Mapping[str, Any]], versions: Mapping[str, str]) -> str:
    """Return sums over the models that every optimizer has done, and the time where something changed."""
    names = list(next(iter(found.values())))
    whole = {name: rows for name, rows in found.items() if all(row["counts"] for row in rows.values())}
    lines = [
        "| | nodes | moving data | splitting, joining | same bits | close | differ | time where changed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in names:
        sums = [
            sum(column) for column in zip(*(rows[name]["counts"] for rows in whole.values()), strict=True)
        ]
        values = Counter(rows[name]["values"] for rows in found.values())
        label = next(
            (
                name.replace(other, f"{other} {version}", 1)
                for other, version in versions.items()
                if name.startswith(other)
            ),
            name,
        )
        cells = [
            *(f"{number:,}" for number in sums),
            *(str(values[kind]) for kind in ("bits", "close", "differs")),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} | {_times(found, name)} |")
    head = f"{len(whole)} of {len(found)} models, which every tool has done, are counted.\n\n"
    return head + "\n".join(lines) + "\n"


def _times(found: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return the ratio of the times of what has changed to those of what was given."""
    base = name.removesuffix(", then splitops")
    base = base if base != name else "exported"
    ratios = sorted(
        rows[name]["time"] / rows[base]["time"]
        for rows in found.values()
        if "time" in rows[name] and "time" in rows[base] and rows[name]["counts"] != rows[base]["counts"]
    )
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    best, worst = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    behind = "" if base == "exported" else f" of {base}'s"
    return f"{mean:.2f}{behind} ({best:.2f} to {worst:.2f}, {len(ratios)} models)"


def fastest(found: Mapping[str, Mapping[str, Any]], count: int = 12) -> str:
    """Return the models that our rewrites change most."""
    rows = defaultdict(list)
    for model, own in found.items():
        for name in ("splitops", "onnxslim, then splitops"):
            base = "exported" if name == "splitops" else "onnxslim"
            if name in own and "time" in own[name] and "time" in own[base]:
                rows[model].append(
                    (own[base]["counts"][1], own[name]["counts"][1], own[name]["time"] / own[base]["time"])
                )
    changed = [model for model, pair in rows.items() if len(pair) == 2 and all(a != b for a, b, _ in pair)]
    chosen = sorted(changed, key=lambda model: rows[model][1][2])[:count]
    lines = [
        "| model | nodes that move data: exported, splitops | time | onnxslim, then splitops | time |",
        "| --- | --- | ---: | --- | ---: |",
    ]
    for model in chosen:
        cells = [f"{before}, {after} | {ratio:.2f}" for before, after, ratio in rows[model]]
        lines.append(f"| {model.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pattern", nargs="+", default=["*.onnx"])
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    parser.add_argument("--json", type=Path, help="also write all that was measured")
    arguments = parser.parse_args()
    versions = installed()
    found = every(arguments.folder, list(versions), arguments.pattern)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found))
    made = f"{table(found, versions)}\n{fastest(found)}"
    if arguments.write is None:
        print(made)
        return
    page = arguments.write.read_text(encoding="utf-8")
    marked = re.compile(r"(<!-- models -->\n).*?(<!-- /models -->)", re.DOTALL)
    arguments.write.write_text(marked.sub(lambda m: f"{m[1]}\n{made}\n{m[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
