"""``python -m dev.soak.races FOLDER SEED ROUNDS``: processes that write to one folder at the same time.

In each round two or three processes split a file into files of the same names, with other sizes each, into a
new folder or over existing files. Then the folder has all files of one of them, and nothing else.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

import splitops

_ROWS: Final = 12
_FILES: Final = 8
_ALLOWED: Final = ("another run is writing to", "already exists", "done")


def race(rng: Random, folder: Path) -> Counter[str]:
    """Run one round, and return how often which of the allowed outcomes came.

    Raises:
        AssertionError: a file is lost or is of another run, something is left, or no run succeeded.
    """
    folder.mkdir()
    array = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (_ROWS, rng.randint(1, 40)), np.uint8)
    np.save(folder / "x.npy", array)
    sizes = [_draw_sizes(rng) for _ in range(rng.choice((2, 3)))]
    existing = rng.random() < 0.5
    if existing:
        _run(folder, [_ROWS] + [0] * (_FILES - 1))
    waiting, start = os.pipe()
    children = []
    for number, lengths in enumerate(sizes):
        overwrite, resume, late = existing or rng.random() < 0.5, rng.random() < 0.2, rng.random() * 0.01
        child = os.fork()
        if child == 0:
            try:
                os.read(waiting, 1)  # until all are there
                time.sleep(late)
                said = _run(folder, lengths, overwrite=overwrite, resume=resume)
                (folder / f"said{number}").write_text(said, encoding="utf-8")
            finally:
                os._exit(0)
        children.append(child)
    os.write(start, bytes(len(children)))
    for child in children:
        os.waitpid(child, 0)
    os.close(waiting)
    os.close(start)
    said = [(folder / f"said{number}").read_text(encoding="utf-8") for number in range(len(sizes))]
    outcomes = Counter(next((word for word in _ALLOWED if word in message), message) for message in said)
    assert outcomes.keys() <= {*_ALLOWED}, said
    assert outcomes["done"], said
    names = {path.name for path in (folder / "parts").iterdir()}
    assert names == {f"x.{number}.npy" for number in range(_FILES)}, (sorted(names), said)
    parts = [np.load(folder / "parts" / f"x.{number}.npy") for number in range(_FILES)]
    assert [len(part) for part in parts] in sizes, ([len(part) for part in parts], sizes, said)
    np.testing.assert_array_equal(np.concatenate(parts), array)
    left = {path.name for path in folder.iterdir() if not path.name.startswith("said")}
    assert left == {"x.npy", "parts"}, (left, said)
    shutil.rmtree(folder)
    return outcomes


def _run(folder: Path, lengths: list[int], **options: bool) -> str:
    """Split the file, and return an error or that it is done."""
    try:
        splitops.files.split(folder / "x.npy", folder / "parts", axis=0, split=lengths, sync=False, **options)  # type: ignore[arg-type]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _draw_sizes(rng: Random) -> list[int]:
    ends = sorted(rng.choices(range(_ROWS + 1), k=_FILES - 1))
    return [high - low for low, high in pairwise([0, *ends, _ROWS])]


def main(arguments: Sequence[str]) -> None:
    """Run rounds, and print how often which outcome came."""
    folder, seed, rounds = arguments
    outcomes: Counter[str] = Counter()
    for number in range(int(rounds)):
        outcomes += race(Random(f"{seed}:{number}"), Path(folder, f"round{number}"))
    print(f"{rounds} rounds: {dict(outcomes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
