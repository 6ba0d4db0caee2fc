"""Sessions beside onnxruntime and OpenVINO themselves: bits, the time of a run, and that of making one.

Make a folder with ``tasks.py bench architectures --out FOLDER``, then run
``tasks.py bench sessions FOLDER [--write docs/models.md] [--only WORD ...] [--rounds 15]``.
A folder of IRs, as ``dev/benchmarks/networks.py --ir FOLDER`` leaves it, is run beside OpenVINO.

Both sides run in turns in this one process, on the same inputs, with their own defaults; figures are ratios
of medians. ``--cpu`` takes the processor time of sessions of one thread in the place of the clock's, for a
machine that is not quiet.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import splitops
from dev.benchmarks.timing import interleaved

SILENT = 4
RUN = (1.05, 20e-6)
"""What a run may take beside the runtime: a factor, and seconds that are added."""


@dataclass(frozen=True)
class Measured:
    """One model, seconds by who ran it."""

    name: str
    nodes: int
    splits: int
    same: bool
    run: tuple[float, float]
    """Session, runtime."""
    make: tuple[float, float]
    path: tuple[float, float]

    @property
    def library(self) -> str:
        return self.name.partition("_")[0]


@dataclass
class Clock:
    """What is read, and the options of sessions that go with it."""

    read: Callable[[], float] = time.perf_counter
    options: dict[str, Any] = field(default_factory=dict)


CLOCK = Clock()


Feeds = dict[str, Any]


def plain(path: Path) -> Callable[[Feeds], Sequence[Any]]:
    """The runtime itself, ready to run a file."""
    if path.suffix == ".xml":
        import openvino

        compiled = openvino.Core().compile_model(path, "CPU", engine_options(path)["config"])
        return lambda feeds: list(compiled(feeds).values())
    options = onnxruntime.SessionOptions()
    for name, value in CLOCK.options.items():
        setattr(options, name, value)
    options.log_severity_level = SILENT
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: session.run(names, feeds)


def inputs_of(session: splitops.Session) -> Feeds:
    """Random inputs of the declared shapes; open sizes are 2."""
    random = np.random.default_rng(0)
    feeds = {}
    for item in session.inputs:
        assert item.element_type is not None
        assert item.shape is not None
        dtype, shape = item.element_type.numpy, [size if isinstance(size, int) else 2 for size in item.shape]
        values = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        feeds[item.name] = values.astype(dtype)
    return feeds


def equal(ours: dict[str, Any], theirs: Sequence[Any]) -> bool:
    pairs = zip(ours.values(), theirs, strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in pairs)


def seconds(call: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        gc.collect()
        begin = CLOCK.read()
        made = call()
        times.append(CLOCK.read() - begin)
        del made
    return statistics.median(times)


def in_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The medians of what candidates take."""
    if CLOCK.read is time.perf_counter:
        return {name: times.median for name, times in interleaved(candidates, rounds, 0.02).items()}
    found: dict[str, list[float]] = {name: [] for name in candidates}
    counts = {name: max(1, int(0.02 / max(seconds(call, 2), 1e-5))) for name, call in candidates.items()}
    for _ in range(rounds):
        for name, call in candidates.items():
            begin = CLOCK.read()
            for _ in range(counts[name]):
                call()
            found[name].append((CLOCK.read() - begin) / counts[name])
    return {name: statistics.median(times) for name, times in found.items()}


def engine_options(path: Path) -> dict[str, Any]:
    """How a session is asked to run a file as the runtime itself does."""
    if path.suffix == ".xml":
        threads = {"INFERENCE_NUM_THREADS": 1} if CLOCK.options else {}
        # Both compute float32 as float32, as sessions do unless they are told otherwise.
        return {"engine": "openvino", "config": {"INFERENCE_PRECISION_HINT": "f32", **threads}}
    return {"engine": "onnxruntime", "session_options": CLOCK.options}


def ready(path: Path) -> splitops.Session:
    return splitops.session(path, **engine_options(path))


def measured(path: Path, rounds: int) -> Measured:
    theirs, ours = plain(path), ready(path)
    feeds = inputs_of(ours)
    same = equal(ours.run(feeds), theirs(feeds))
    candidates: dict[str, Callable[[], object]] = {
        "session": lambda: ours.run(feeds),
        "runtime": lambda: theirs(feeds),
    }
    times = in_turns(candidates, rounds)
    few = max(3, rounds // 4)
    make = seconds(lambda: ready(path), few), seconds(lambda: plain(path), few)
    whole = (
        seconds(lambda: splitops.run(path, feeds, **engine_options(path)), few),
        seconds(lambda: plain(path)(feeds), few),
    )
    return Measured(
        path.stem,
        nodes_of(path),
        len(ours.splits),
        same,
        (times["session"], times["runtime"]),
        make,
        whole,
    )


def bits(paths: Sequence[Path]) -> str:
    """How many models give onnxruntime's own bits, and how many splits they have."""
    same = splits = 0
    for path in paths:
        theirs, ours = plain(path), ready(path)
        feeds = inputs_of(ours)
        same += equal(ours.run(feeds), theirs(feeds))
        splits += len(ours.splits)
    return f"{same} of {len(paths)} models with {splits} splits give the same bits"


def nodes_of(path: Path) -> int:
    if path.suffix == ".xml":
        return path.read_text(encoding="utf-8").count("<layer ")
    return len(onnx.load(path, load_external_data=False).graph.node)


def ratios(pairs: Sequence[tuple[float, float]], aim: tuple[float, float] | None = None) -> str:
    """Median and worst ratio, and how many are within an aim: a factor, and seconds that are added to it."""
    found = sorted(ours / theirs for ours, theirs in pairs)
    if not found:
        return ""
    cell = f"{statistics.median(found):.2f} ({found[-1]:.2f})"
    if aim is None:
        return cell
    return f"{cell}; {sum(ours <= aim[0] * theirs + aim[1] for ours, theirs in pairs)} of {len(pairs)}"


def table(rows: Sequence[Measured]) -> str:
    """One line a library, and one of all."""
    groups = {"all": list(rows)}
    for row in rows:
        groups.setdefault(row.library, []).append(row)
    lines = [
        "| models of | number | splits | same bits | run | making, added ms a node | run of a path |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, group in sorted(groups.items(), key=lambda item: item[0] == "all"):
        added = sorted((row.make[0] - row.make[1]) * 1e3 / row.nodes for row in group)
        cells = [
            name,
            str(len(group)),
            str(sum(row.splits for row in group)),
            str(sum(row.same for row in group)),
            ratios([row.run for row in group], RUN),
            f"{statistics.median(added):.2f} ({added[-1]:.2f})",
            ratios([row.path for row in group]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--only", nargs="*", default=[], help="models whose names have one of these words")
    parser.add_argument("--every", type=int, default=1, help="only each n-th model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bits", action="store_true", help="compare the bits alone")
    parser.add_argument("--cpu", action="store_true", help="processor time of one thread")
    chosen = parser.parse_args()
    paths = [
        path
        for path in sorted((*chosen.folder.glob("*.onnx"), *chosen.folder.glob("*.xml")))
        if not chosen.only or any(word in path.stem for word in chosen.only)
    ][:: chosen.every]
    if chosen.bits:
        print(bits(paths))
        return
    if chosen.cpu:
        CLOCK.read, CLOCK.options = time.process_time, {"intra_op_num_threads": 1}
    rows = []
    for path in paths:
        try:
            row = measured(path, chosen.rounds)
        except Exception as error:
            print(f"{path.stem}: {str(error)[:200]}", flush=True)
            continue
        rows.append(row)
        print(
            f"{row.name}: {row.nodes} nodes, {row.splits} splits, "
            f"{'same' if row.same else 'OTHER BITS'}; "
            f"run {row.run[0] * 1e3:.3f} / {row.run[1] * 1e3:.3f} ms; "
            f"make {row.make[0] * 1e3:.1f} / {row.make[1] * 1e3:.1f}; "
            f"path {row.path[0] * 1e3:.1f} / {row.path[1] * 1e3:.1f}",
            flush=True,
        )
    made = table(rows)
    print(made)
    if chosen.write is not None:
        page = chosen.write.read_text(encoding="utf-8")
        marked = re.compile(r"(<!-- sessions -->\n).*?(<!-- /sessions -->)", re.DOTALL)
        chosen.write.write_text(marked.sub(lambda m: f"{m[1]}\n{made}\n\n{m[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
