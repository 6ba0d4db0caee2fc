"""What a comparison costs: of the driver for each case, of a fresh process, and of whole peers.

    python -m dev.benchmarks.compare [--cases 150] [--all] [--peer onnxruntime ...] [--python opencv=PATH ...]

The driver is timed on an implementation that answers at once: what is left is its own. The aims are 2 ms
a case, and three minutes for all cases on the light implementations of `splitops[compare]` with two cores
(`--all`). Where the time goes is shown by peer: asking every case, confirming findings in fresh
processes, looking for smaller cases.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import splitops
from splitops.comparison.cases import cases, listed
from splitops.comparison.driver.asking import Asker, Launch
from splitops.comparison.driver.finding import columns
from splitops.comparison.driver.process import Allowance, Nursery
from splitops.comparison.driver.run import Run
from splitops.comparison.reports.verdicts import counts

FAKE = Path(__file__).parents[2] / "tests/compare/fakes.py"


def driver(number: int) -> None:
    """Time questions to an implementation that knows its answer."""
    command = shlex.split(f"{shlex.quote(sys.executable)} -S -E {shlex.quote(str(FAKE))} right")
    asked = cases(list(listed())[:number])
    with Asker(Launch("fake", command), Allowance()) as asker:
        asker.start()
        seconds = []
        for case in asked:
            before = time.perf_counter()
            assert asker.after() is None
            assert asker.ask(case).kind == "ok"
            seconds.append(time.perf_counter() - before)
    middle = sorted(seconds)[len(seconds) // 2]
    print(f"driver: {1e3 * middle:.2f} ms a case (median of {len(seconds)}; the aim is 2 ms)")


def fresh(peer: str) -> None:
    """Time a case in a fresh process of a peer: one that is started, and one that is forked."""
    [column], _ = columns(Allowance(), [peer])
    [case] = cases(["split-18/ceil/6-into-2/float32/static"])
    nursery = Nursery(column.launch.command, Allowance(), column.launch.variables)
    medians = []
    for own in (None, nursery):
        seconds = []
        for _ in range(6):
            before = time.perf_counter()
            with Asker(column.launch, Allowance(), 85, own) as asker:
                asker.ask(case)
                asker.finish()
            seconds.append(time.perf_counter() - before)
        medians.append(sorted(seconds[1:])[2])
    nursery.stop()
    print(f"a fresh process of {peer}: {medians[0]:.2f} s started, {medians[1]:.2f} s forked (median of 5)")


class _Spent:
    """Seconds of what a comparison does, by peer; shrinking is a part of confirming."""

    def __init__(self) -> None:
        self.seconds: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def on(self, peer: str, what: str) -> Iterator[None]:
        """Count the seconds of a block."""
        before = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[peer, what] += time.perf_counter() - before


SPENT = _Spent()


class _Timed(Run):
    def _ask_all(self, column: Any) -> None:
        with SPENT.on(column.peer.name, "asking"):
            super()._ask_all(column)

    def _confirm(self, column: Any, *more: Any) -> None:
        with SPENT.on(column.peer.name, "confirming"):
            super()._confirm(column, *more)

    def _shrunk(self, column: Any, *more: Any) -> Any:
        with SPENT.on(column.peer.name, "shrinking"):
            return super()._shrunk(column, *more)


def whole(number: int | None, peers: Sequence[str] | None, pythons: Sequence[tuple[str, str]]) -> None:
    """Time a comparison, with what it found."""
    names = list(listed())
    chosen = names if number is None else names[:: max(1, len(names) // number)][:number]
    before = time.perf_counter()
    with mock.patch("splitops.comparison.driver.comparing.Run", _Timed):
        report = splitops.compare(peers, pythons=pythons, cases=chosen, tell=print)
    seconds = time.perf_counter() - before
    for name, words in counts(report).items():
        print(f"  {name}: {', '.join(f'{count} {word}' for word, count in words.items())}")
    for name in dict.fromkeys(name for name, _ in SPENT.seconds):
        asking, confirming, shrinking = (
            SPENT.seconds[name, what] for what in ("asking", "confirming", "shrinking")
        )
        others = f"{confirming - shrinking:.1f} s confirming, {shrinking:.1f} s shrinking"
        print(f"  {name}: {asking:.1f} s asking, {others}")
    asked, found = len(report.entries), len(report.findings)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(one.ru_utime + one.ru_stime for one in used)
    print(
        f"{asked} cases with their controls, {found} confirmed findings: {seconds:.1f} s, "
        f"of which a processor had {processor:.1f} s"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks.compare", description=__doc__)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument(
        "--all", action="store_true", help="all cases and all implementations that are installed"
    )
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--python", action="append", default=[])
    chosen = parser.parse_args()
    driver(chosen.cases)
    pythons = [(name, path) for name, _, path in (text.partition("=") for text in chosen.python)]
    peers = chosen.peer or ["onnx_reference", "onnxruntime"]
    for peer in peers:
        fresh(peer)
    whole(None if chosen.all else chosen.cases, None if chosen.all else peers, pythons)


if __name__ == "__main__":
    main()
