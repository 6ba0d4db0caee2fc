"""Reports for other programs, what changed, what was expected."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import report

from splitops.errors import Rule
from splitops.spec import SCHEMAS, SizeRule
from splitops_compare import CompareError, ComparisonReport
from splitops_compare.data import FINDING_KINDS, State, Verdict, VerdictKind
from splitops_compare.protocol import check_document, load_schema
from splitops_compare.reports.report_diff import (
    Expectation,
    compare_reports,
    find_unexpected,
    make_expectations,
    read_expectations,
    read_report,
)
from splitops_compare.reports.sarif import to_sarif
from splitops_compare.reports.verdicts import MEANINGS, RULES, SOURCES, count_groups

EMPTY = ComparisonReport(environment={}, implementations=(), cases=())


def with_verdict(made: ComparisonReport, index: int, verdict: Verdict) -> ComparisonReport:
    """The report with another verdict of the first peer of a case."""
    entries = list(made.cases)
    name = made.implementations[0].name
    entries[index] = replace(entries[index], verdicts={**entries[index].verdicts, name: verdict})
    return replace(made, cases=tuple(entries))


def agreeing(cases: int = 4, peers: int = 2) -> ComparisonReport:
    made = report(cases, peers)
    agrees = {peer.name: Verdict(kind=VerdictKind.AGREES) for peer in made.implementations}
    return replace(made, cases=tuple(replace(entry, verdicts=agrees) for entry in made.cases))


CRASH = Verdict(kind=VerdictKind.CRASH, signal="SIGSEGV", confirmed=2)
ABORT = Verdict(kind=VerdictKind.CRASH, signal="SIGABRT", confirmed=2)
ONCE = Verdict(kind=VerdictKind.CRASH, signal="SIGSEGV", confirmed=0)


def test_the_synthetic_report_is_one_and_has_every_word() -> None:
    made = report(200, 12)
    check_document(made.to_json(), "report")
    words = {verdict.kind for entry in made.cases for verdict in entry.verdicts.values()}
    assert words == set(VerdictKind)


def test_every_rule_and_word_has_a_text() -> None:
    assert set(RULES) == {*map(str, Rule), *(rule.value for rule in SizeRule)}
    assert set(MEANINGS) == set(VerdictKind)


def test_every_version_has_its_source() -> None:
    assert {f"{row.domain}:{row}" if row.domain else str(row): row.source for row in SCHEMAS} == SOURCES
    assert SOURCES["Split-18"] == "https://github.com/onnx/onnx/blob/main/docs/Changelog.md#Split-18"


def test_counts_are_of_each_peer() -> None:
    made = with_verdict(with_verdict(agreeing(3, 2), 1, CRASH), 2, ONCE)
    assert list(count_groups(made).values()) == [
        {VerdictKind.AGREES: 1, VerdictKind.CRASH: 1, "unconfirmed": 1},
        {VerdictKind.AGREES: 3},
    ]


# SARIF


def test_sarif_has_each_finding_with_its_rule() -> None:
    made = report(100, 8)
    log = to_sarif(made, "1.2.3")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(made.findings) > 20
    for result, (entry, peer, verdict) in zip(run["results"], made.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == entry.rule
        assert result["properties"]["implementation"] == peer.name
        assert str(verdict.kind) in result["message"]["text"]
        assert not re.search(
            r"[\s<>\"]", result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        )
    known = [result for result in run["results"] if "workItemUris" in result]
    assert known
    json.dumps(log)


def test_sarif_of_what_did_not_repeat_is_empty() -> None:
    assert to_sarif(with_verdict(agreeing(), 0, ONCE), "1")["runs"][0]["results"] == []


def test_sarif_links_web_addresses_alone() -> None:
    made = with_verdict(agreeing(1, 1), 0, replace(CRASH, known="javascript:alert(1)"))
    assert "workItemUris" not in to_sarif(made, "1")["runs"][0]["results"][0]


# What changed


def changes(old: ComparisonReport, new: ComparisonReport) -> dict[str, list[str]]:
    found = compare_reports(old, new)
    return {
        name: [line.partition(": ")[2] for line in found[name]] for name in ("new", "resolved", "changed")
    }


def test_new_fixed_and_changed() -> None:
    fine, dead = agreeing(), Verdict(kind=VerdictKind.NO_RESULT)
    crashed = with_verdict(fine, 1, CRASH)
    assert changes(fine, crashed) == {"new": ["agrees -> crash SIGSEGV"], "resolved": [], "changed": []}
    assert changes(crashed, fine) == {"new": [], "resolved": ["crash SIGSEGV -> agrees"], "changed": []}
    assert changes(crashed, with_verdict(fine, 1, ABORT))["changed"] == ["crash SIGSEGV -> crash SIGABRT"]
    assert changes(crashed, crashed) == {"new": [], "resolved": [], "changed": []}
    assert changes(fine, with_verdict(fine, 1, ONCE)) == {"new": [], "resolved": [], "changed": []}
    assert changes(crashed, with_verdict(fine, 1, dead))["resolved"] == []


def test_what_was_not_asked_is_not_fixed() -> None:
    crashed = with_verdict(agreeing(), 1, CRASH)
    fewer = replace(crashed, cases=crashed.cases[:1])
    assert changes(crashed, fewer) == {"new": [], "resolved": [], "changed": []}
    assert changes(fewer, crashed)["new"] == ["did not run -> crash SIGSEGV"]


def test_releases_that_changed_are_named() -> None:
    old = agreeing(1, 2)
    new = replace(
        old,
        implementations=(
            replace(old.implementations[0], versions={"onnxruntime": "9"}),
            old.implementations[1],
        ),
    )
    found = compare_reports(old, new)
    assert found["releases"] == ["onnxruntime: onnxruntime 0.4.1, numpy 2.4.6 -> onnxruntime 9"]


# What was expected


def test_a_report_expects_itself() -> None:
    made = report(60, 6)
    assert len(made.findings) > 10
    assert find_unexpected(made, make_expectations(made)).exit_code == 0
    assert find_unexpected(EMPTY, []).exit_code == 0


def test_a_disagreement_that_nobody_expects() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    judged = find_unexpected(made, [])
    assert judged.exit_code == 1
    assert judged.new == (f"{made.cases[1].id} {made.implementations[0].name}: crash SIGSEGV",)


def test_an_expected_disagreement_that_is_gone_is_no_success() -> None:
    made = agreeing()
    expected = Expectation(made.cases[1].id, made.implementations[0].name, VerdictKind.CRASH)
    judged = find_unexpected(made, [expected])
    assert (judged.exit_code, judged.resolved, judged.new) == (1, (expected,), ())
    other = find_unexpected(with_verdict(made, 1, Verdict(kind=VerdictKind.HANG, confirmed=2)), [expected])
    assert (other.exit_code, len(other.resolved), len(other.new)) == (1, 1, 1)


def test_patterns_of_cases_and_peers() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    assert find_unexpected(made, [Expectation("split-18/*", "onnxr*", VerdictKind.CRASH)]).exit_code == 0
    one = replace(made.implementations[0], name="a[threads=1]")
    entries = tuple(
        replace(entry, verdicts={"a[threads=1]": entry.verdicts[made.implementations[0].name]})
        for entry in made.cases
    )
    bracketed = replace(made, implementations=(one,), cases=entries)
    assert find_unexpected(bracketed, [Expectation("*", "a[threads=1]", VerdictKind.CRASH)]).exit_code == 0


def test_of_what_was_not_asked_nothing_is_said() -> None:
    made = agreeing()
    elsewhere = Expectation("split-1/elsewhere", made.implementations[0].name, VerdictKind.CRASH)
    assert find_unexpected(made, [elsewhere], cases=["split-1/elsewhere"]).exit_code == 0
    assert find_unexpected(made, [Expectation(made.cases[0].id, "nobody", VerdictKind.CRASH)]).exit_code == 0


def test_a_stale_expectation_names_its_case() -> None:
    with pytest.raises(CompareError, match=r"stale expectation: there is no case 'split-19/\*'"):
        find_unexpected(agreeing(), [Expectation("split-19/*", "a", VerdictKind.CRASH)])


def test_a_peer_that_did_not_start_goes_before_all() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    made = replace(
        made, implementations=(made.implementations[0], replace(made.implementations[1], state=State.FAILED))
    )
    assert find_unexpected(made, []).exit_code == 3


def test_expectations_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text('[[expected]]\ncase = "a/*"\nimplementation = "b"\nverdict = "crash"\nreason = "why"\n')
    assert read_expectations(path) == (Expectation("a/*", "b", VerdictKind.CRASH, "why"),)


def test_expectations_in_an_old_report(tmp_path: Path) -> None:
    made = report(20, 4)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(made.to_json()))
    assert read_expectations(path) == make_expectations(made)
    assert read_report(path).to_json() == made.to_json()


ROW = '[[expected]]\ncase = "a"\nimplementation = "b"\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.toml", "[[expected]\n", "is not TOML: "),
        ("x.toml", b"\xff\xfe", "is not TOML: "),
        ("x.toml", "", "it lacks 'expected'"),
        ("x.toml", "expected = 3\n", "it is 3, not an array at expected"),
        ("x.toml", f'{ROW}verdict = "crash"\n[more]\n', "it has the unknown key 'more': use expected"),
        ("x.toml", ROW, r"it lacks 'verdict' at expected\[0\]"),
        (
            "x.toml",
            f"{ROW}verdict = 3\n",
            r"it is 3, not one of differs, .* at expected\[0\].verdict",
        ),
        ("x.toml", f'{ROW}verdict = "agrees"\n', r"it is 'agrees', not one of differs, "),
        ("x.toml", f'{ROW}verdict = "crash"\nwhen = "now"\n', r"it has the unknown key 'when': use case, "),
        ("x.toml", "expected = [3]\n", r"it is 3, not an object at expected\[0\]"),
        ("x.json", "{", "is not a report of a comparison"),
        ("x.json", "[" * 100_000, "is not a report of a comparison"),
        ("x.json", '{"version": 2}', "is not a report of a comparison"),
    ],
)
def test_files_that_are_no_expectations(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CompareError, match=message) as caught:
        read_expectations(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_expected_is_a_finding() -> None:
    assert (
        set(load_schema("expected")["$defs"]["expectation"]["properties"]["verdict"]["enum"]) == FINDING_KINDS
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CompareError, match=r"cannot open '.*nowhere\.json': no such file"):
        read_report(tmp_path / "nowhere.json")


def test_a_file_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.setattr("splitops_compare.reports.report_diff._MAX_BYTES", 1)
    with pytest.raises(CompareError, match=r"x\.json' has 2 bytes, more than the limit of 1 "):
        read_report(tmp_path / "x.json")


def test_changes_are_found_by_the_helper_of_these_tests() -> None:
    assert changes(agreeing(), with_verdict(agreeing(), 1, CRASH)) != changes(agreeing(), agreeing())
