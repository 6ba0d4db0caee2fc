"""Asks each release of a runtime all listed cases: ``releases.py RUNTIME [RELEASE | REPORT.json ...]``.

The verdicts go to ``compare/docs/data/releases/RUNTIME.json``, one letter for each case and release. A
release that is there already is not asked again. A report of ``splitops-compare --json`` counts as asked. At
the end, the fields of ``src/splitops/models/check/targets/RUNTIME.toml`` that the verdicts contradict are
named, and the exit code is 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from splitops.models.check import Limit, Outcome, Target
from splitops.models.check.limits import parse_release
from splitops_compare import ComparisonReport
from splitops_compare.data import Verdict, VerdictKind
from splitops_compare.reports.report_diff import read_report

ROOT: Final = Path(__file__).resolve().parents[2]
TABLES: Final = ROOT / "compare" / "docs" / "data" / "releases"
NONE: Final = "-"
LETTERS: Final = {
    VerdictKind.AGREES: "a",
    VerdictKind.DIFFERS: "d",
    VerdictKind.REJECTS: "r",
    VerdictKind.WRONGLY_ACCEPTS: "w",
    VerdictKind.CRASH: "c",
    VerdictKind.HANG: "h",
    VerdictKind.MEMORY: "m",
}
"""The letters of verdicts; all others, and a finding that was not confirmed, say nothing."""
FINDING_KINDS: Final = frozenset(LETTERS.values()) - {"a"}


class Runtime(NamedTuple):
    """The package of a runtime, its adapter, and the oldest release that is asked."""

    package: str
    adapter: str
    floor: str


RUNTIMES: Final = {
    "onnxruntime": Runtime("onnxruntime", "onnxruntime", "1.24"),
    "openvino": Runtime("openvino", "openvino", "2025.4"),
    "onnx": Runtime("onnx", "onnx_inference", "1.19"),
    "opencv": Runtime("opencv-python-headless", "opencv", "4.9"),
}


def main(arguments: Sequence[str]) -> int:
    """Ask, write the table after each release, and say what it contradicts."""
    if not arguments or arguments[0] not in RUNTIMES:
        print(__doc__, file=sys.stderr)
        return 2
    name, *asked = arguments
    runtime, table = RUNTIMES[name], read_table(name)
    for word in asked or offered(runtime):
        if word not in table["releases"]:
            report = read_report(Path(word)) if word.endswith(".json") else ask(runtime, word)
            for release, verdicts in verdicts_of(report, name).items():
                add(table, release, verdicts)
                write_table(name, table)
                print(f"{name} {release}: {len(verdicts)} cases", flush=True)
    target = Target.load(name)
    wrong = [text for limit in target.limits for text in contradictions(limit, table)]
    if list(target.releases) != table["releases"]:
        wrong.append(f"releases = {json.dumps(table['releases'])}")
    for text in wrong:
        print(f"to change: {text}")
    return int(bool(wrong))


def offered(runtime: Runtime) -> list[str]:
    """Return the releases that the package index offers, from the oldest one that is asked on."""
    command = [sys.executable, "-m", "pip", "index", "versions", runtime.package]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    listed = re.search(r"Available versions: (.*)", done.stdout)
    releases = listed[1].split(", ") if listed else []
    floor = parse_release(runtime.floor)
    return [release for release in reversed(releases) if parse_release(release) >= floor]


def ask(runtime: Runtime, release: str) -> ComparisonReport:
    """Ask one release all listed cases, in an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="splitops-release-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "numpy", "ml_dtypes"]
        subprocess.run([*map(str, install), f"{runtime.package}=={release}"], check=True)
        words = [
            "compare",
            runtime.adapter,
            "--python",
            f"{runtime.adapter}={python}",
            "--no-shrink",
            "--json",
        ]
        command = [sys.executable, "-m", "splitops", *words]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        report = Path(folder) / "report.json"
        report.write_text(found.stdout)
        return read_report(report)


def verdicts_of(report: ComparisonReport, name: str) -> dict[str, dict[str, str]]:
    """Return the letter of each case, by the release of the runtime."""
    adapter = RUNTIMES[name].adapter
    peers = {peer.name: peer.versions[name] for peer in report.implementations if peer.adapter == adapter}
    return {
        release: {entry.id: letter(entry.verdicts[peer]) for entry in report.cases if peer in entry.verdicts}
        for peer, release in peers.items()
    }


def letter(verdict: Verdict) -> str:
    """Return the letter of a verdict."""
    told = verdict.is_confirmed or verdict.kind is VerdictKind.AGREES
    return LETTERS.get(verdict.kind, NONE) if told else NONE


def read_table(name: str) -> dict[str, Any]:
    """Return what was asked so far: the releases in order, and for each case a letter for each of them."""
    path = TABLES / f"{name}.json"
    empty: dict[str, Any] = {"releases": [], "cases": {}}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def write_table(name: str, table: Mapping[str, Any]) -> None:
    """Write a table, one line for each case."""
    cases = [f" {json.dumps(case)}: {json.dumps(row)}" for case, row in sorted(table["cases"].items())]
    TABLES.mkdir(exist_ok=True)
    text = f'{{"releases": {json.dumps(table["releases"])},\n"cases": {{\n' + ",\n".join(cases) + "\n}}\n"
    (TABLES / f"{name}.json").write_text(text, encoding="utf-8")


def add(table: dict[str, Any], release: str, verdicts: Mapping[str, str]) -> None:
    """Put a release in its place in a table."""
    if release in table["releases"]:
        return
    releases = sorted([*table["releases"], release], key=parse_release)
    at = releases.index(release)
    for case in table["cases"].keys() | verdicts.keys():
        row = table["cases"].get(case, NONE * len(table["releases"]))
        table["cases"][case] = row[:at] + verdicts.get(case, NONE) + row[at:]
    table["releases"] = releases


def contradictions(limit: Limit, table: Mapping[str, Any]) -> Iterator[str]:
    """Say in which releases a limit was seen, or not, where its file says something else."""
    row = table["cases"].get(limit.evidence, "")
    for release, found in zip(table["releases"], row, strict=False):
        # What ends the process in one release may be rejected or wrong in another: that is another limit.
        milder = (
            (LETTERS[VerdictKind.REJECTS], LETTERS[VerdictKind.DIFFERS])
            if limit.outcome is Outcome.CRASH
            else ()
        )
        seen = found in FINDING_KINDS and found not in milder
        if found != NONE and seen is not limit.holds_in(release):
            yield f"{limit.code}: {'seen in' if seen else 'not in'} {release}"


def history(table: Mapping[str, Any]) -> dict[tuple[str, str, str], list[str]]:
    """Return the cases whose verdict changes with a release, by the release and both letters."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for case, row in sorted(table["cases"].items()):
        told = [pair for pair in zip(table["releases"], row, strict=True) if pair[1] != NONE]
        for (_, before), (release, after) in pairwise(told):
            if before != after:
                found.setdefault((release, before, after), []).append(case)
    return dict(sorted(found.items(), key=lambda item: (parse_release(item[0][0]), item[0])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
