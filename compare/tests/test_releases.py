"""The limits of ``check`` against the verdicts of every release that was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts import script
from splitops.models.check import Target
from splitops_compare import ComparisonReport
from splitops_compare.data import CaseResult, ImplementationInfo, Verdict, VerdictKind

releases = script("dev/tools/releases")
ASKED = sorted(path.stem for path in releases.TABLES.glob("*.json"))


@pytest.mark.parametrize("name", ASKED)
def test_the_releases_of_each_limit_are_those_of_the_table(name: str) -> None:
    table, target = releases.read_table(name), Target.load(name)
    assert [text for limit in target.limits for text in releases.contradictions(limit, table)] == []
    assert list(target.releases) == table["releases"]
    cases = table["cases"]
    proved = [limit for limit in target.limits if set(cases.get(limit.evidence, "")) - {releases.NONE}]
    assert len(proved) > 0.8 * len(target.limits)
    assert all(len(row) == len(table["releases"]) for row in table["cases"].values())


def test_the_oldest_allowed_releases_were_asked() -> None:
    assert "onnxruntime" in ASKED
    assert {"1.24.1", "1.32.0"} <= set(releases.read_table("onnxruntime")["releases"])


def test_a_limit_of_other_releases_is_named() -> None:
    table = releases.read_table("onnxruntime")
    limits = {limit.code: limit for limit in Target.load("onnxruntime").limits}
    wrong = replace(limits["onnxruntime.empty-name"], until="1.30.0")
    assert list(releases.contradictions(wrong, table)) == [
        "onnxruntime.empty-name: seen in 1.31.0",
        "onnxruntime.empty-name: seen in 1.31.1",
    ]
    early = replace(limits["onnxruntime.sliced-negative-part"], since=None)
    assert len(list(releases.contradictions(early, table))) == 4


def report(release: str, **words: VerdictKind) -> ComparisonReport:
    peer = ImplementationInfo(name="one", adapter="onnxruntime", versions={"onnxruntime": release})
    verdicts = {
        case: Verdict(kind=word, confirmed=0 if word is VerdictKind.AGREES else 2)
        for case, word in words.items()
    }
    entries: Any = (
        CaseResult(
            id=case,
            operator="Split-18",
            format="onnx",
            rule="ceil",
            title="",
            valid=True,
            spec=None,
            expected=(),
            baseline=None,
            verdicts={"one": verdict},
        )
        for case, verdict in verdicts.items()
    )
    return ComparisonReport(environment={}, implementations=(peer,), cases=tuple(entries))


def test_a_table_is_made_of_reports_in_any_order() -> None:
    table: dict[str, Any] = {"releases": [], "cases": {}}
    for made in (
        report("1.32.0", a=VerdictKind.AGREES, b=VerdictKind.NO_RESULT),
        report("1.9.1", a=VerdictKind.REJECTS, b=VerdictKind.DIFFERS),
        report("1.10.0", a=VerdictKind.CRASH, c=VerdictKind.AGREES),
    ):
        for release, verdicts in releases.verdicts_of(made, "onnxruntime").items():
            releases.add(table, release, verdicts)
    assert table == {"releases": ["1.9.1", "1.10.0", "1.32.0"], "cases": {"a": "rca", "b": "d--", "c": "-a-"}}
    assert releases.history(table) == {("1.10.0", "r", "c"): ["a"], ("1.32.0", "c", "a"): ["a"]}
    before = dict(table["cases"])
    releases.add(table, "1.10.0", {"a": "a"})
    assert table["cases"] == before, "a release is asked once"


def test_it_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(_: Any, release: str) -> ComparisonReport:
        asked.append(release)
        return report(release, a=VerdictKind.AGREES)

    monkeypatch.setattr(releases, "TABLES", tmp_path / "releases")
    monkeypatch.setattr(releases, "ask", ask)
    assert releases.main(["onnxruntime", "1.25.0", "1.24.1"]) == 1, "its file has more releases"
    assert releases.main(["onnxruntime", "1.24.1", "1.26.0"]) == 1
    assert asked == ["1.25.0", "1.24.1", "1.26.0"]
    assert releases.read_table("onnxruntime")["releases"] == ["1.24.1", "1.25.0", "1.26.0"]
    assert releases.main(["abacus"]) == 2
