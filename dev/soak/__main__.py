"""``python -m dev.soak [MINUTES] [ACTION ...]``: checked mixed calls in several threads, memory watched.

In rounds: every thread makes so many random calls, then all rest and what the process holds is measured.
Whatever grows from round to round, by more than ``soak.level`` allows, fails the soak, as does a call that
does not give what it should. Names of actions choose some of them, which finds the one that grows.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import splitops
from dev.soak.actions import ACTIONS, Room, all_libraries, all_sessions, leak
from dev.soak.level import LIMITS, Trend, trend

_THREADS: Final = 4
_CALLS: Final = 250
_NAMES: Final = {action.__name__: action for action in (*ACTIONS, leak)}

_NO_HUGE_PAGES: Final = 41
_HEAPS: Final = -8

Sample = dict[str, int]


class _Allocator(ctypes.Structure):
    """What glibc's ``mallinfo2`` tells."""

    _names = (
        "arena",
        "ordblks",
        "smblks",
        "hblks",
        "hblkhd",
        "usmblks",
        "fsmblks",
        "uordblks",
        "fordblks",
        "top",
    )
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


_LIBRARY: Final = ctypes.CDLL(None)
_LIBRARY.mallinfo2.restype = _Allocator


def forget_names() -> None:
    """Empty the memo in which Dask keeps the names of its last 100,000 tasks: it takes hours to fill."""
    if "dask" in sys.modules:
        from dask.utils import key_split

        key_split.cache_clear()


def measured() -> Sample:
    """Return what the process holds while it rests: each measure of ``LIMITS``."""
    forget_names()
    gc.collect()
    splitops.release_pool()
    _LIBRARY.malloc_trim(0)  # what is free, but scattered, is not a growth
    allocator = _LIBRARY.mallinfo2()
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (resident,) = (int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))
    tasks = Path("/proc/self/task")
    return {
        "resident bytes": resident,
        "allocated bytes": allocator.uordblks + allocator.hblkhd,
        "objects": sys.getallocatedblocks(),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir(tasks)),
        "processes": sum(len((task / "children").read_text().split()) for task in tasks.iterdir()),
    }


def called(actions: Sequence[Callable[..., None]], room: Room, calls: int, seed: str) -> Counter[str]:
    """Make random calls and return how many of each action.

    Raises:
        AssertionError: one does not give what it should; the seed gives the same call again.
    """
    rng = Random(seed)
    weights = [ACTIONS.get(action, 1.0) for action in actions]
    done: Counter[str] = Counter()
    for number in range(calls):
        (action,) = rng.choices(actions, weights)
        try:
            action(Random(f"{seed}:{number}"), room)
        except Exception as error:
            raise AssertionError(f"{action.__name__}(Random('{seed}:{number}'), room) fails") from error
        done[action.__name__] += 1
    return done


def rounds(options: argparse.Namespace) -> Iterator[int]:
    """Yield the numbers of the rounds, until there are enough or the time is over."""
    end = time.monotonic() + 60 * options.minutes
    number = 0
    while number < options.rounds if options.rounds else time.monotonic() < end:
        yield number
        number += 1


def soak(options: argparse.Namespace, room: Room) -> tuple[list[Sample], Counter[str]]:
    """Return what was measured after each round, and how often each action was done."""
    actions = [_NAMES[name] for name in options.actions]
    samples: list[Sample] = []
    done: Counter[str] = Counter()
    with ThreadPoolExecutor(_THREADS) as pool:
        for number in rounds(options):
            work = [
                pool.submit(called, actions, room, options.calls, f"{options.seed}:{number}:{thread}")
                for thread in range(_THREADS)
            ]
            for each in work:
                done += each.result()
            samples.append(measured())
            if sys.stderr.isatty() or number % 20 == 0:
                print(f"round {number}: {samples[-1]}", file=sys.stderr, flush=True)
    return samples, done


def verdict(samples: Sequence[Sample]) -> tuple[dict[str, Trend], list[str]]:
    """Return the trend of each measure, and a sentence for each one that grows."""
    trends = {name: trend([sample[name] for sample in samples]) for name in LIMITS}
    grown = [
        f"{name} grow by {found.growth:.2%} of {found.first:,.0f}, more than {LIMITS[name]:.0%}"
        for name, found in trends.items()
        if found.growth > LIMITS[name]
    ]
    return trends, grown


def report(options: argparse.Namespace, samples: Sequence[Sample], done: Mapping[str, int]) -> dict[str, Any]:
    """Return what was found as the file of a soak has it."""
    trends, _ = verdict(samples)
    return {
        "calls": dict(done),
        "rounds": len(samples),
        "threads": _THREADS,
        "measures": {
            name: {
                "first": found.first,
                "last": found.last,
                "a call": found.slope / (_THREADS * options.calls),
                "growth": found.growth,
                "limit": LIMITS[name],
            }
            for name, found in trends.items()
        },
    }


def main() -> int:
    """Soak, and return the exit status: 1 where a call fails or something grows."""
    parser = argparse.ArgumentParser(prog="python -m dev.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("minutes", nargs="?", type=float, default=5.0)
    parser.add_argument("actions", nargs="*", metavar="ACTION", choices=[[], *_NAMES], help=", ".join(_NAMES))
    parser.add_argument("--rounds", type=int, help="so many, instead of minutes")
    parser.add_argument("--calls", type=int, default=_CALLS, help="of each thread in a round")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--json", type=Path, help="write what was found here")
    options = parser.parse_args()
    options.actions = options.actions or [action.__name__ for action in ACTIONS]
    # With huge pages, and a heap for each thread, what is resident but free would grow and shrink at random.
    _LIBRARY.prctl(_NO_HUGE_PAGES, 1, 0, 0, 0)
    _LIBRARY.mallopt(_HEAPS, 1)
    warnings.filterwarnings("ignore", "os.fork|This process .* is multi-threaded")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="splitops-soak-") as folder:
        room = Room(
            Path(folder),
            all_sessions() if "sessions" in options.actions else {},
            all_libraries() if "libraries" in options.actions else {},
        )
        try:
            samples, done = soak(options, room)
        except AssertionError:
            traceback.print_exc()
            return 1
        finally:
            for session in room.sessions.values():
                session.close()
    found = report(options, samples, done) | {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "date": time.strftime("%Y-%m-%d"),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))
    grown = verdict(samples)[1]
    print(*(grown or ["all is level"]), sep="\n")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
