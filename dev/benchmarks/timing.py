"""Timing by interleaved rounds: every candidate runs once a round, so that all see the same machine."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

PAUSE = 0.01
"""Seconds before each turn: the threads of the candidate before stop spinning for more work."""

_UNRELATED = np.ones(64 << 20, np.uint8).view(np.int64)

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds a call, over the rounds."""

    median: float
    minimum: float


def calls_per_round(call: Call, seconds: float) -> int:
    """How often `call` is repeated within a round, so that a round takes about `seconds`."""
    call()
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        taken = time.perf_counter() - start
        if taken >= seconds or count >= 1 << 20:
            return count
        count = max(count * 2, int(count * seconds / max(taken, 1e-9) * 0.8))


def clean_caches() -> None:
    """Fills the caches with clean lines, so that no candidate pays for writing back another's output."""
    _UNRELATED.sum()


def interleaved(
    candidates: Mapping[str, Call],
    rounds: int,
    seconds: float,
    *,
    clean: bool = False,
    before: Mapping[str, Call] | None = None,
) -> dict[str, Times]:
    """Times all candidates in turn, `rounds` times.

    A result is dropped within the time of its call: freeing is part of what fresh outputs cost.

    Args:
        candidates: the calls by name.
        rounds: how many turns each has.
        seconds: how long a turn takes; 0 is one call.
        clean: whether each turn begins with caches that hold nothing of the turn before.
        before: what is done before each turn of a candidate, and is not timed.
    """
    counts = {name: calls_per_round(call, seconds) for name, call in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in candidates.items():
                count = counts[name]
                time.sleep(PAUSE)
                if before is not None and name in before:
                    before[name]()
                if clean:
                    clean_caches()
                start = time.perf_counter()
                for _ in range(count):
                    call()
                samples[name].append((time.perf_counter() - start) / count)
    finally:
        if enabled:
            gc.enable()
    return {name: Times(statistics.median(times), min(times)) for name, times in samples.items()}


def statement(source: str, names: Mapping[str, object]) -> Call:
    """A call that runs `source` a hundred times, without a Python call around each.

    Its time is that of a hundred forms; nothing else is fair to slices written by hand.
    """
    body = f"def run():\n    for _ in range(100):\n        {source}\n"
    namespace = dict(names)
    exec(compile(body, "<benchmark>", "exec"), namespace)
    run = namespace["run"]
    if not callable(run):
        raise TypeError(source)
    return run
