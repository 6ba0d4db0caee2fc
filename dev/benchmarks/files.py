"""Splitting and merging files beside `cp` and libraries: ``tasks.py bench files [OPTION ...]``.

Every turn is a process of its own, in turns; the file systems are synced before each. A line of the table
is the medians of the seconds and of the processor's seconds, as ratios to those of ``cp`` of the same
bytes, and the largest resident memory of the process, with Python and the library. Rows that sync are
compared with ``cp`` and a sync of its file. The source is in the page cache, as after a download; the
checksum is always taken. Implementations make four parts along the last axis; those that are not
installed are named. Ctrl-C shows what has been measured until then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import splitops
from dev.benchmarks.file_actions import BY_SIZE, PEERS

WIDTH = 16384
FILES = 4096
TENSORS = 100_000
LAYERS = 300
ACTIONS = Path(__file__).with_name("file_actions.py")


@dataclass(frozen=True)
class Case:
    """What is timed: its arguments for ``file_actions``, and the case that it is compared with."""

    name: str
    arguments: dict[str, Any]
    beside: str = "cp"
    python: str = sys.executable


@dataclass(frozen=True)
class Turn:
    """Seconds, seconds of the processor, and the peak of resident memory in MiB."""

    seconds: float
    processor: float
    peak: float


@dataclass
class Measured:
    """The turns of a case, or why there are none."""

    turns: list[Turn] = field(default_factory=list)
    problem: str = ""

    def median(self, name: str) -> float:
        """The median of one of the figures."""
        return statistics.median(getattr(turn, name) for turn in self.turns)


def take_turn(case: Case, out: Path, actions: Path = ACTIONS) -> Turn | str:
    """Run a case in a process of its own; return its figures, or the last line of its error."""
    put_away(out)
    out.mkdir()
    done = subprocess.run(
        [case.python, actions, json.dumps(case.arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["killed"])[-1]
    return Turn(**json.loads(done.stdout))


def put_away(out: Path) -> None:
    """Empty the files of a turn, to be removed in the end: ext4 makes no files where it removed many."""
    if not out.exists():
        return
    for path in out.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    away = out.with_name("away")
    away.mkdir(exist_ok=True)
    out.rename(away / str(len(list(away.iterdir()))))


# The sources --------------------------------------------------------------------------------------------


def make_sources(folder: Path, mebibytes: int) -> None:
    """Write the same random bytes as an array in several formats, in parts, and as many tensors."""
    x = folder / "x.npy"
    rows = mebibytes * (1 << 20) // (4 * WIDTH)
    array = np.lib.format.open_memmap(x, "w+", np.float32, (rows, WIDTH))
    generator = np.random.default_rng(0)
    for at in range(0, rows, 1024):
        array[at : at + 1024] = generator.standard_normal(array[at : at + 1024].shape, np.float32)
    array.flush()
    to = splitops.files.get_format("safetensors")
    made = splitops.files.plan_split(x, folder, num_outputs=1, to=to).run()
    made.files[0][0].rename(folder / "x.safetensors")
    narrow = np.lib.format.open_memmap(folder / "narrow.npy", "w+", np.uint16, (array.size // 32, 64))
    narrow[...] = array.view(np.uint16).reshape(narrow.shape)
    narrow.flush()
    for axis in (0, 1):
        splitops.files.split(x, folder / f"parts{axis}", axis=axis, num_outputs=4)
    splitops.files.split(x, folder / f"parts{FILES}", axis=1, num_outputs=FILES)
    make_tensors(folder / "tensors.safetensors", mebibytes)
    make_tensors(folder / "layers.safetensors", mebibytes, LAYERS)
    splitops.files.plan_one_file(folder / "layers.safetensors", folder / "layers.gguf").run()
    for name in ("layers.safetensors", "layers.gguf", "tensors.safetensors"):
        splitops.files.plan_by_size(folder / name, folder / f"sized-{name}", mebibytes << 17).run()
    try:
        import zarr
    except ImportError:
        return
    for name, version in (("x.zarr", 3), ("x2.zarr", 2)):
        chunked = zarr.create_array(
            folder / name,
            shape=array.shape,
            chunks=(256, WIDTH // 4),
            dtype="f4",
            compressors=None,
            zarr_format=version,
        )
        chunked[...] = array


def make_tensors(path: Path, mebibytes: int, count: int = TENSORS) -> None:
    """Write a file of many tensors."""
    size = max(16, (mebibytes << 20) // count // 16 * 16)
    header = {
        f"layer.{index}.weight": {
            "dtype": "F32",
            "shape": [4, size // 16],
            "data_offsets": [index * size, index * size + size],
        }
        for index in range(count)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(100):
            file.write(os.urandom(size * count // 100))


# The cases ----------------------------------------------------------------------------------------------


def cases(folder: Path, out: Path, pythons: dict[str, str], mebibytes: int) -> Iterator[Case]:
    """What is compared, in the order of the turns."""

    def cp(*names: str, **arguments: Any) -> dict[str, Any]:
        sources = [str(folder / name) for name in names]
        return {"do": "cp", "sources": sources, "out": str(out), **arguments}

    def split(name: str, axis: int, parts: int, **arguments: Any) -> dict[str, Any]:
        paths = {"source": str(folder / name), "out": str(out / "parts")}  # new, as that of cp
        return {"do": "split", **paths, "axis": axis, "num_outputs": parts, "sync": False, **arguments}

    def merge(name: str, axis: int) -> dict[str, Any]:
        return {"do": "merge", "folder": str(folder / name), "out": str(out), "axis": axis, "sync": False}

    yield Case("cp", cp("x.npy"))
    yield Case("cp, synced", cp("x.npy", sync=True))
    for kind in ("npy", "safetensors"):
        for axis, parts in ((0, 4), (1, 4), (1, 64)):
            yield Case(f"{kind}, axis {axis} into {parts}", split(f"x.{kind}", axis, parts))
    for axis in (0, 1):
        yield Case(f"npy, merge of 4 along axis {axis}", merge(f"parts{axis}", axis))
    for axis in (0, 1):
        arguments = split("x.npy", axis, 4, sync=True)
        yield Case(f"npy, axis {axis} into 4, synced", arguments, "cp, synced")
    yield Case("npy, runs of 2 bytes, into 64", split("narrow.npy", 1, 64))
    many = f"cp of {FILES} files"
    yield Case(many, cp(f"parts{FILES}"))
    yield Case(f"npy, axis 1 into {FILES}, beside cp of one file", split("x.npy", 1, FILES))
    yield Case(f"npy, axis 1 into {FILES}, beside {many}", split("x.npy", 1, FILES), many)
    yield Case(f"npy, merge of {FILES}, beside {many}", merge(f"parts{FILES}", 1), many)
    twice = f"cp of {TENSORS:,} tensors, twice"
    yield Case(twice, cp("tensors.safetensors", times=2))
    kept = {"tensor": "layer.7.weight", "keep_other_tensors": True}
    name = f"safetensors, one of {TENSORS:,} tensors into 2, all kept"
    yield Case(name, split("tensors.safetensors", 0, 2, **kept), twice)
    peer = "safetensors_of_many"
    arguments = {"do": peer, "source": str(folder / "tensors.safetensors"), "tensor": kept["tensor"]}
    name = f"*safetensors slices, one of {TENSORS:,} tensors into 2, all kept*"
    yield Case(name, {**arguments, "out": str(out)}, twice, pythons.get(peer, sys.executable))
    for file, count in (
        ("layers.safetensors", LAYERS),
        ("layers.gguf", LAYERS),
        ("tensors.safetensors", TENSORS),
    ):
        kind, one = file.split(".")[1], f"cp of {count:,} tensors"
        if kind == "safetensors":
            yield Case(one, cp(file))
        sized = {"source": str(folder / file), "out": str(out), "size": mebibytes << 17}
        name = f"{kind}, {count:,} tensors by size into 9 files"
        yield Case(name, {"do": "by_size", **sized, "sync": False}, one)
        back = {"folder": str(folder / f"sized-{file}"), "out": str(out), "name": file}
        name = f"{kind}, {count:,} tensors of 9 files into one"
        yield Case(name, {"do": "one_file", **back, "sync": False}, one)
        peer = {"safetensors": "transformers_save_pretrained", "gguf": "gguf_py"}[kind]
        label = f"*{peer.replace('_', ' ')}, {count:,} tensors by size*"
        yield Case(label, {"do": peer, **sized}, one, pythons.get(peer, sys.executable))
    if (folder / "x.zarr").exists():
        yield Case("zarr, axis 1 into 4, along its chunks", split("x.zarr", 1, 4))
        yield Case("zarr, axis 1 into 3, through its chunks", split("x.zarr", 1, 3))
    for name in PEERS:
        arguments = {"do": name, "folder": str(folder), "out": str(out)}
        label = name.replace("_", " ") + ", axis 1 into 4"
        yield Case(f"*{label}*", arguments, python=pythons.get(name, sys.executable))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="tasks.py bench files", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the files are written; /tmp without")
    parser.add_argument("--mib", type=int, default=1024, help="of the source (1024)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each case (5)")
    parser.add_argument("--quick", action="store_true", help="32 MiB, one round: does it run at all")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="cases whose names match, and what they need"
    )
    parser.add_argument("--minima", action="store_true", help="minima, for a busy machine")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="runs an implementation with another Python",
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit, too
    pythons = dict(peer.split("=", 1) for peer in chosen.peer)
    if set(pythons) - set(PEERS) - set(BY_SIZE):
        parser.error(f"implementations are {', '.join([*PEERS, *BY_SIZE])}")
    mebibytes, rounds = (32, 1) if chosen.quick else (chosen.mib, chosen.rounds)
    folder = Path(tempfile.mkdtemp(dir=chosen.folder))
    try:
        make_sources(folder, mebibytes)
        compared = list(cases(folder, folder / "out", pythons, mebibytes))
        wanted = {case.name for case in compared if re.search(chosen.only, case.name)}
        for _ in range(2):  # what a case is beside may be beside another one
            wanted |= {case.beside for case in compared if case.name in wanted}
        compared = [case for case in compared if case.name in wanted]
        measured = {case.name: Measured() for case in compared}
        with contextlib.suppress(KeyboardInterrupt):
            order = random.Random(0)  # what ran before a case is not always the same
            for case in [each for _ in range(rounds) for each in order.sample(compared, len(compared))]:
                if not measured[case.name].problem:
                    turn = take_turn(case, folder / "out")
                    if isinstance(turn, str):
                        measured[case.name].problem = turn
                    else:
                        measured[case.name].turns.append(turn)
                time.sleep(0.1)
        show(compared, measured, mebibytes, rounds, minima=chosen.minima)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(
    compared: list[Case], measured: dict[str, Measured], mebibytes: int, rounds: int, *, minima: bool
) -> None:
    """Print the table, as the documentation has it, and what could not be measured."""
    kind = "minima" if minima else "medians"

    def figure(name: str, figure: str) -> float:
        found = measured[name]
        return min(getattr(turn, figure) for turn in found.turns) if minima else found.median(figure)

    print(f"{mebibytes} MiB, {kind} of at most {rounds} turns\n")
    print("| case | seconds | x `cp` | processor x `cp` | resident MiB |\n|---|---|---|---|---|")
    for case in compared:
        if not (measured[case.name].turns and measured[case.beside].turns):
            continue
        seconds, processor = figure(case.name, "seconds"), figure(case.name, "processor")
        ratios = seconds / figure(case.beside, "seconds"), processor / figure(case.beside, "processor")
        peak = max(turn.peak for turn in measured[case.name].turns)
        print(f"| {case.name} | {seconds:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {peak:.0f} |")
    failed = [(name, found.problem) for name, found in measured.items() if found.problem]
    if failed:
        print("\nNot measured:")
    for name, problem in failed:
        print(f"- {name.strip('*')}: {problem}")


if __name__ == "__main__":
    main()
