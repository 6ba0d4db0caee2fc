"""Run all tests under coverage, Python and C++, and write ``docs/coverage.md``.

``python dev/tools/covered.py [ARGUMENT ...]`` runs where the native core counts (``SPLITOPS_COVERAGE``).
Arguments go to pytest; with ``--only-report`` the page is made from what was counted before.
``tests/uncovered.toml`` groups what no test reaches by the reason why; an empty group is an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/coverage.md"
BUILD = ROOT / "build/coverage"
REASONS = ROOT / "tests/uncovered.toml"
PACKAGE = "src/splitops/"
CORE = f"{PACKAGE}native/core/"
COMPARE = "compare/src/splitops_compare/"

INTRODUCTION = """\
# What the tests cover

`python3.11 tasks.py coverage` runs all tests, including those of the array libraries, and counts the
lines and branches that they execute. It uses [coverage.py](https://coverage.readthedocs.io) for Python,
including the processes that tests start, and gcov for the native core. This page is its output of {date}.
A covered line is not a tested one: [mutants](mutants.md) show whether a test would notice a change.
"""


@dataclass
class Count:
    """What was counted of a file or a package."""

    lines: int = 0
    covered: int = 0
    branches: int = 0
    taken: int = 0
    missing: set[int] = field(default_factory=set)

    def __iadd__(self, other: Count) -> Count:
        self.lines += other.lines
        self.covered += other.covered
        self.branches += other.branches
        self.taken += other.taken
        return self


NOT_COUNTED = (
    "tests/native/test_native_threads.py::test_another_interpreter_is_rejected_or_right",
    "tests/check/test_messages.py::test_a_long_text_is_answered_soon",
    "tests/convert/test_frontend_process.py::test_a_comparison_opens_no_socket_and_starts_no_process_but_ours",
)
"""Tests that coverage.py itself breaks: it does not start in another interpreter, takes time, and looks up
the name of the machine.
"""

Counts = dict[str, Count]
"""By the path of the file below the root."""


def collect(arguments: Iterable[str]) -> None:
    """Run the tests; what was counted before is forgotten."""
    for old in (*ROOT.glob(".coverage*"), *BUILD.rglob("*.gcda")):
        old.unlink()
    os.environ.setdefault("HYPOTHESIS_PROFILE", "brief")  # a line is as much covered by few examples
    tests = ("-m", "pytest", "-q", "-n", "2", *(f"--deselect={test}" for test in NOT_COUNTED))
    _call("-m", "coverage", "run", *tests, *arguments)
    _call("-m", "coverage", "combine", "--quiet")


def python_counts() -> Counts:
    """Return what was counted of the Python files."""
    report = BUILD / "python.json"
    _call("-m", "coverage", "json", "--quiet", "-o", str(report))
    counts = {}
    for path, file in json.loads(report.read_text("utf-8"))["files"].items():
        total = file["summary"]
        counts[path] = Count(
            total["num_statements"],
            total["covered_lines"],
            total["num_branches"],
            total["covered_branches"],
            set(file["missing_lines"]),
        )
    return counts


def native_counts() -> Counts:
    """Return what was counted of the C++ files; the branches of exceptions are the compiler's own."""
    report = BUILD / "native.json"
    options = ("--exclude-throw-branches", "--exclude-unreachable-branches")
    # The headers of nanobind are gone with the environment that has built the core.
    options += ("--gcov-ignore-errors=source_not_found",)
    options += ("--merge-mode-functions=merge-use-line-0", "--json", str(report))
    _call("-m", "gcovr", "--root", ".", "--filter", CORE, *options, str(BUILD))
    counts = {}
    for file in json.loads(report.read_text("utf-8"))["files"]:
        lines: dict[int, int] = defaultdict(int)
        branches: dict[tuple[int, int], int] = defaultdict(int)
        for line in file["lines"]:
            if line.get("gcovr/excluded"):
                continue
            number = line["line_number"]
            lines[number] += line["count"]
            for index, branch in enumerate(line["branches"]):
                branches[number, index] += branch["count"]
        covered, taken = (sum(map(bool, found.values())) for found in (lines, branches))
        missing = {number for number, count in lines.items() if not count}
        counts[file["file"]] = Count(len(lines), covered, len(branches), taken, missing)
    return counts


def _call(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def by_package(counts: Counts) -> Counts:
    """Sum the files of each package of splitops, its own modules, and all of splitops-compare."""
    packages: Counts = {}
    for path, count in counts.items():
        package, below, _ = path.removeprefix(PACKAGE).partition("/")
        name = f"splitops.{package}" if below else "splitops"
        if path.startswith(COMPARE):
            name = "splitops_compare"
        packages.setdefault(name, Count())
        packages[name] += count
    return packages


def table(first: str, counts: Mapping[str, Count]) -> list[str]:
    """Return a table of counts, with their sum."""
    total = Count()
    rows = []
    for name in sorted(counts):
        rows.append(_row(f"`{name}`", counts[name]))
        total += counts[name]
    head = [f"| {first} | lines | covered | branches | taken |", "| --- | ---: | ---: | ---: | ---: |"]
    return [*head, *rows, _row("all", total), ""]


def _row(name: str, count: Count) -> str:
    return (
        f"| {name} | {count.lines} | {_share(count.covered, count.lines)} "
        f"| {count.branches} | {_share(count.taken, count.branches)} |"
    )


def _share(part: int, whole: int) -> str:
    # Rounded down, so that nothing is whole that is not.
    return f"{part * 1000 // whole / 10} %" if whole else ""


@dataclass
class Reason:
    """The reason why lines are not covered: those in ``files`` that match the regex ``text``.

    A reason that depends on the machine ``may_be_empty``.
    """

    why: str
    files: list[str]
    text: str = ""
    may_be_empty: bool = False
    found: dict[str, set[int]] = field(default_factory=dict)

    def take(self, path: str, missing: set[int], source: list[str]) -> set[int]:
        """Take the lines that it explains, and return the others."""
        if not any(fnmatch(path, pattern) for pattern in self.files):
            return missing
        mine = {number for number in missing if re.search(self.text, source[number - 1])}
        if mine:
            self.found[path] = mine
        return missing - mine


def explain(counts: Counts, reasons: list[Reason]) -> dict[str, set[int]]:
    """Share the lines that are not covered among the reasons; return those that none explains."""
    rest = {}
    for path, count in sorted(counts.items()):
        source = (ROOT / path).read_text("utf-8").splitlines()
        missing = count.missing
        for reason in reasons:
            missing = reason.take(path, missing, source)
        if missing:
            rest[path] = missing
    return rest


def read_reasons() -> list[Reason]:
    """Return the reasons of ``tests/uncovered.toml``."""
    return [Reason(**entry) for entry in tomllib.loads(REASONS.read_text("utf-8"))["group"]]


def spans(numbers: Iterable[int]) -> str:
    """Write line numbers as ranges."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0]):
        found = [number for _, number in run]
        runs.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ", ".join(runs)


def page(python: Counts, native: Counts, reasons: list[Reason], rest: dict[str, set[int]]) -> str:
    """Return the page of the documentation."""
    lines = [
        INTRODUCTION.format(date=date.today()),
        "## Python",
        "",
        *table("package", by_package(python)),
        "## The native core",
        "",
        "Branches that only an exception takes are not counted.",
        "",
        *table("file", {path.removeprefix(CORE): count for path, count in native.items()}),
        "## What is not covered",
        "",
        "| lines | why | where |",
        "| ---: | --- | --- |",
    ]
    for reason in reasons:
        places = ", ".join(f"`{_short(path)}`" for path in reason.found)
        lines.append(f"| {sum(map(len, reason.found.values()))} | {reason.why} | {places} |")
    lines += ["", f"Of {sum(map(len, rest.values()))} lines nobody has said why no test takes them:", ""]
    lines += [f"- `{_short(path)}`: {spans(missing)}" for path, missing in rest.items()]
    return "\n".join(lines).rstrip() + "\n"


def _short(path: str) -> str:
    return path.removeprefix(PACKAGE)


def main(arguments: list[str]) -> int:
    """Count and write the page."""
    if arguments != ["--only-report"]:
        collect(arguments)
    python, native, reasons = python_counts(), native_counts(), read_reasons()
    rest = explain(python | native, reasons)
    PAGE.write_text(page(python, native, reasons, rest), "utf-8")
    empty = [reason.why for reason in reasons if not (reason.found or reason.may_be_empty)]
    for why in empty:
        print(f"tests/uncovered.toml: nothing is left of: {why}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
