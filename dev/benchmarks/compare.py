"""What a comparison costs: of the driver for each case, and of whole peers with every finding confirmed.

    python -m dev.benchmarks.compare [--cases 150] [--peer onnxruntime ...] [--python opencv=PATH ...]

The driver is timed on a peer that answers at once: what is left is its own. The aims are 2 ms a case, and
60 s for 150 cases on onnx, onnxruntime, OpenCV and onnxslim with two cores.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import splitops
from splitops.comparison.cases import cases, listed
from splitops.comparison.driver.asking import Asker, Source
from splitops.comparison.driver.process import Limits
from splitops.comparison.reports.verdicts import counts

FAKE = Path(__file__).parents[2] / "tests/compare/fakes.py"


def driver(number: int) -> None:
    """Time questions to a peer that knows its answer."""
    command = shlex.split(f"{shlex.quote(sys.executable)} -S -E {shlex.quote(str(FAKE))} right")
    asked = cases(list(listed())[:number])
    with Asker(Source("fake", command), Limits()) as asker:
        asker.start()
        seconds = []
        for case in asked:
            before = time.perf_counter()
            assert asker.after() is None
            assert asker.ask(case).kind == "ok"
            seconds.append(time.perf_counter() - before)
    middle = sorted(seconds)[len(seconds) // 2]
    print(f"driver: {1e3 * middle:.2f} ms a case (median of {len(seconds)}; the aim is 2 ms)")


def whole(number: int, peers: Sequence[str], pythons: Sequence[tuple[str, str]]) -> None:
    """Time a comparison, with what it found."""
    names = list(listed())
    chosen = names[:: max(1, len(names) // number)][:number]
    before = time.perf_counter()
    report = splitops.compare(peers, pythons=pythons, cases=chosen, shrink_seconds=0)
    seconds = time.perf_counter() - before
    for name, words in counts(report).items():
        print(f"  {name}: {', '.join(f'{count} {word}' for word, count in words.items())}")
    asked, found = len(report.entries), len(report.findings)
    print(f"{asked} cases with their controls, {found} confirmed findings: {seconds:.1f} s")


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks.compare", description=__doc__)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--python", action="append", default=[])
    chosen = parser.parse_args()
    driver(chosen.cases)
    pythons = [(name, path) for name, _, path in (text.partition("=") for text in chosen.python)]
    whole(chosen.cases, chosen.peer or ["onnx_reference", "onnxruntime"], pythons)


if __name__ == "__main__":
    main()
