"""Prints the table: ``python -m dev.benchmarks [--quick] [SECTION ...]``.

A figure is how many times as fast as the implementation splitops is, by the medians (or minima) of
interleaved rounds in this one process. "memcpy" is a memcpy of the same bytes between warm buffers on two
threads. A goal that is missed is marked with "<" and the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dev.benchmarks import peers
from dev.benchmarks.cases import OURS, SECTIONS, Options, Row
from splitops import native


def duration(seconds: float) -> str:
    """A time with its unit."""
    for unit, factor in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def shown(row: Row) -> str:
    """One line of the table."""
    per = 100 if "(4, 8)" in row.name else 1  # these forms are timed a hundred at a time
    cells = []
    for peer in row.times:
        if peer == OURS:
            continue
        ratio, goal = row.ratio(peer), row.goals.get(peer)
        cells.append(
            f"{peer} {ratio:.2f}" + (f" (< {goal:.2f})" if goal is not None and ratio < goal else "")
        )
    return f"  {row.name:34} {duration(row.seconds(OURS) / per):>8}   " + ", ".join(cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the sections and prints their rows as they come."""
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all without"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small arrays and few rounds: does it run at all"
    )
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (15)")
    parser.add_argument("--minima", action="store_true", help="ratios of the minima, for a busy machine")
    parser.add_argument("--json", type=Path, help="also write the seconds to this file")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    options = Options(rounds=3, scale=16, sweep_mib=16) if chosen.quick else Options(rounds=chosen.rounds)

    core = "compiled" if native.available else "NumPy only"
    found = ", ".join(f"{name} {version}" for name, version in peers.versions().items())
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}; {found}")
    print(f"splitops core: {core}, {native.get_num_threads()} threads")
    rows: list[Row] = []
    for name in chosen.sections or SECTIONS:
        section = ""
        for measured in SECTIONS[name](options):
            row = replace(measured, minimum=chosen.minima)
            if row.section != section:
                section = row.section
                print(f"\n{section}: times as fast as")
            print(shown(row), flush=True)
            rows.append(row)

    sweep = [row for row in rows if row.section == "sweep"]
    if sweep:
        worst = min(sweep, key=lambda row: row.ratio("memcpy"))
        print(f"\nworst of the sweep: {worst.name}, {worst.ratio('memcpy'):.2f} of memcpy")
    goals = [(row, peer, goal) for row in rows for peer, goal in row.goals.items() if peer in row.times]
    missed = [(row, peer, goal) for row, peer, goal in goals if row.ratio(peer) < goal]
    print(f"\n{len(goals) - len(missed)} of {len(goals)} goals hold")
    for row, peer, goal in missed:
        print(f"  missed: {row.section}, {row.name}: {row.ratio(peer):.2f} of {peer}, goal {goal:.2f}")
    if chosen.json is not None:
        seconds = [
            {
                "section": row.section,
                "case": row.name,
                "median": {name: times.median for name, times in row.times.items()},
                "minimum": {name: times.minimum for name, times in row.times.items()},
            }
            for row in rows
        ]
        chosen.json.write_text(json.dumps(seconds, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
