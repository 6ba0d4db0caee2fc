"""Splitting and merging files beside `cp`: ``python -m benchmarks.files [--mib 1024] [--rounds 5] [FOLDER]``.

Every candidate runs in a process of its own, in turns; the file systems are synced before each turn. A line
is the median of the seconds, as a ratio to those of ``cp`` of the same bytes, the processor's seconds as a
ratio to those of ``cp``, and the peak of the resident memory. Candidates that sync are compared with ``cp``
and a sync of its file. The source is in the page cache, as after a download; the checksum is always taken.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import splitops

WIDTH = 16384
Action = Callable[[], object]


@dataclass(frozen=True)
class Candidate:
    """What is timed, and the candidate that it is compared with."""

    name: str
    run: Action
    beside: str = "cp"


@dataclass(frozen=True)
class Sample:
    """One turn: seconds, seconds of the processor, and the peak of resident memory in MiB."""

    seconds: float
    processor: float
    peak: float


def turn(run: Action, out: Path) -> Sample:
    """Run a candidate in a process of its own."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    os.sync()
    time.sleep(0.2)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            start = time.perf_counter()
            run()
            os.write(writing, str(time.perf_counter() - start).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        seconds = pipe.read()
    _, status, used = os.wait4(child, 0)
    if status or not seconds:
        raise RuntimeError("a candidate failed")
    return Sample(float(seconds), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def make_source(path: Path, mebibytes: int) -> np.ndarray:
    """Write random rows, so that nothing on the way can be compressed or left out."""
    rows = mebibytes * (1 << 20) // (4 * WIDTH)
    array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, WIDTH))
    generator = np.random.default_rng(0)
    for at in range(0, rows, 1024):
        array[at : at + 1024] = generator.standard_normal(array[at : at + 1024].shape, np.float32)
    array.flush()
    return array


def candidates(folder: Path, out: Path) -> list[Candidate]:
    """What is compared, in the order of the turns."""
    source, tensors = folder / "x.npy", folder / "x.safetensors"

    def copy(sync: bool) -> Action:
        def run() -> None:
            subprocess.run(["cp", source, out / "copy"], check=True)
            if sync:
                subprocess.run(["sync", out / "copy"], check=True)

        return run

    def split(path: Path, axis: int, parts: int, sync: bool = False) -> Action:
        return lambda: splitops.files.split(path, out, axis=axis, num_outputs=parts, sync=sync)

    def merge(axis: int) -> Action:
        parts = sorted((folder / f"parts{axis}").iterdir())
        return lambda: splitops.files.merge(parts, out / "y.npy", axis=axis, sync=False)

    found = [Candidate("cp", copy(False)), Candidate("cp, synced", copy(True))]
    for kind, path in (("npy", source), ("safetensors", tensors)):
        for axis, parts in ((0, 4), (1, 4), (1, 64)):
            found.append(Candidate(f"{kind}, axis {axis} into {parts}", split(path, axis, parts)))
    found.append(Candidate("npy, axis 1 into 4096", split(source, 1, 4096)))
    found += [Candidate(f"npy, merge of 4 along axis {axis}", merge(axis)) for axis in (0, 1)]
    for axis in (0, 1):
        found.append(
            Candidate(f"npy, axis {axis} into 4, synced", split(source, axis, 4, True), "cp, synced")
        )

    def memmap() -> None:
        for index, part in enumerate(np.split(np.load(source, mmap_mode="r"), 4, 1)):
            np.save(out / f"{index}.npy", part)

    found.append(Candidate("numpy memmap, axis 1 into 4", memmap))
    if find_spec("safetensors"):

        def slices() -> None:
            from safetensors import safe_open
            from safetensors.numpy import save_file

            with safe_open(tensors, "numpy") as file:
                view = file.get_slice("data")
                width = WIDTH // 4
                for index in range(4):
                    part = view[:, index * width : (index + 1) * width]
                    save_file({"data": part}, out / f"{index}.safetensors")

        found.append(Candidate("safetensors slices, axis 1 into 4", slices))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the files are written; /tmp without")
    parser.add_argument("--mib", type=int, default=1024, help="of the source (1024)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each candidate (5)")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=chosen.folder))
    out = folder / "out"
    try:
        array = make_source(folder / "x.npy", chosen.mib)
        del array
        # One safetensors file of the same bytes, by our own conversion.
        to = splitops.files.format_named("safetensors")
        made = splitops.files.plan_split(folder / "x.npy", folder, num_outputs=1, to=to).run()
        made.files[0][0].rename(folder / "x.safetensors")
        for axis in (0, 1):
            splitops.files.split(folder / "x.npy", folder / f"parts{axis}", axis=axis, num_outputs=4)
        measured: dict[str, list[Sample]] = {}
        compared = candidates(folder, out)
        for _ in range(chosen.rounds):
            for candidate in compared:
                measured.setdefault(candidate.name, []).append(turn(candidate.run, out))
        show(compared, measured, chosen.mib)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(compared: list[Candidate], measured: dict[str, list[Sample]], mebibytes: int) -> None:
    """Print a line for each candidate."""

    def median(name: str, field: str) -> float:
        return statistics.median(getattr(sample, field) for sample in measured[name])

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{mebibytes} MiB; the process itself, before it begins, has about {base:.0f} MiB", file=sys.stderr)
    print(f"{'':36} {'seconds':>8} {'x cp':>6} {'processor x cp':>15} {'MiB':>6}")
    for candidate in compared:
        name, beside = candidate.name, candidate.beside
        seconds, processor = median(name, "seconds"), median(name, "processor")
        ratios = seconds / median(beside, "seconds"), processor / median(beside, "processor")
        print(f"{name:36} {seconds:8.2f} {ratios[0]:6.2f} {ratios[1]:15.2f} {median(name, 'peak'):6.0f}")


if __name__ == "__main__":
    main()
