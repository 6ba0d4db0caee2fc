"""Reports for other programs, what changed, what was expected."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import report

from splitops.comparison import CompareError, Report
from splitops.comparison.protocol import schema, validate
from splitops.comparison.records import FINDINGS, State, Verdict, Word
from splitops.comparison.reports.earlier import (
    Expectation,
    differences,
    expectations,
    read_expectations,
    read_report,
    unexpected,
)
from splitops.comparison.reports.sarif import to_sarif
from splitops.comparison.reports.verdicts import MEANINGS, RULES, SOURCES, counts
from splitops.errors import Rule
from splitops.spec import SCHEMAS, SizeRule

EMPTY = Report(environment={}, peers=(), entries=())


def with_verdict(made: Report, index: int, verdict: Verdict) -> Report:
    """The report with another verdict of the first peer of a case."""
    entries = list(made.entries)
    name = made.peers[0].name
    entries[index] = replace(entries[index], verdicts={**entries[index].verdicts, name: verdict})
    return replace(made, entries=tuple(entries))


def agreeing(cases: int = 4, peers: int = 2) -> Report:
    made = report(cases, peers)
    agrees = {peer.name: Verdict(word=Word.AGREES) for peer in made.peers}
    return replace(made, entries=tuple(replace(entry, verdicts=agrees) for entry in made.entries))


CRASH = Verdict(word=Word.CRASH, signal="SIGSEGV", confirmed=2)
ABORT = Verdict(word=Word.CRASH, signal="SIGABRT", confirmed=2)
ONCE = Verdict(word=Word.CRASH, signal="SIGSEGV", confirmed=0)


def test_the_synthetic_report_is_one_and_has_every_word() -> None:
    made = report(200, 12)
    validate(made.to_json(), "report")
    words = {verdict.word for entry in made.entries for verdict in entry.verdicts.values()}
    assert words == set(Word)


def test_every_rule_and_word_has_a_text() -> None:
    assert set(RULES) == {*map(str, Rule), *(rule.value for rule in SizeRule)}
    assert set(MEANINGS) == set(Word)


def test_every_version_has_its_source() -> None:
    assert {f"{row.domain}:{row}" if row.domain else str(row): row.source for row in SCHEMAS} == SOURCES
    assert SOURCES["Split-18"] == "https://github.com/onnx/onnx/blob/main/docs/Changelog.md#Split-18"


def test_counts_are_of_each_peer() -> None:
    made = with_verdict(with_verdict(agreeing(3, 2), 1, CRASH), 2, ONCE)
    assert list(counts(made).values()) == [
        {Word.AGREES: 1, Word.CRASH: 1, "unconfirmed": 1},
        {Word.AGREES: 3},
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
        assert str(verdict.word) in result["message"]["text"]
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


def changes(old: Report, new: Report) -> dict[str, list[str]]:
    found = differences(old, new)
    return {name: [line.partition(": ")[2] for line in found[name]] for name in ("new", "fixed", "changed")}


def test_new_fixed_and_changed() -> None:
    fine, dead = agreeing(), Verdict(word=Word.NO_RESULT)
    crashed = with_verdict(fine, 1, CRASH)
    assert changes(fine, crashed) == {"new": ["agrees -> crash SIGSEGV"], "fixed": [], "changed": []}
    assert changes(crashed, fine) == {"new": [], "fixed": ["crash SIGSEGV -> agrees"], "changed": []}
    assert changes(crashed, with_verdict(fine, 1, ABORT))["changed"] == ["crash SIGSEGV -> crash SIGABRT"]
    assert changes(crashed, crashed) == {"new": [], "fixed": [], "changed": []}
    assert changes(fine, with_verdict(fine, 1, ONCE)) == {"new": [], "fixed": [], "changed": []}
    assert changes(crashed, with_verdict(fine, 1, dead))["fixed"] == []


def test_what_was_not_asked_is_not_fixed() -> None:
    crashed = with_verdict(agreeing(), 1, CRASH)
    fewer = replace(crashed, entries=crashed.entries[:1])
    assert changes(crashed, fewer) == {"new": [], "fixed": [], "changed": []}
    assert changes(fewer, crashed)["new"] == ["not asked -> crash SIGSEGV"]


def test_releases_that_changed_are_named() -> None:
    old = agreeing(1, 2)
    new = replace(old, peers=(replace(old.peers[0], versions={"onnxruntime": "9"}), old.peers[1]))
    found = differences(old, new)
    assert found["releases"] == ["onnxruntime: onnxruntime 0.4.1, numpy 2.4.6 -> onnxruntime 9"]


# What was expected


def test_a_report_expects_itself() -> None:
    made = report(60, 6)
    assert len(made.findings) > 10
    assert unexpected(made, expectations(made)).exit_code == 0
    assert unexpected(EMPTY, []).exit_code == 0


def test_a_disagreement_that_nobody_expects() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    judged = unexpected(made, [])
    assert judged.exit_code == 1
    assert judged.new == (f"{made.entries[1].id} {made.peers[0].name}: crash SIGSEGV",)


def test_an_expected_disagreement_that_is_gone_is_no_success() -> None:
    made = agreeing()
    expected = Expectation(made.entries[1].id, made.peers[0].name, Word.CRASH)
    judged = unexpected(made, [expected])
    assert (judged.exit_code, judged.gone, judged.new) == (1, (expected,), ())
    other = unexpected(with_verdict(made, 1, Verdict(word=Word.HANG, confirmed=2)), [expected])
    assert (other.exit_code, len(other.gone), len(other.new)) == (1, 1, 1)


def test_patterns_of_cases_and_peers() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    assert unexpected(made, [Expectation("split-18/*", "onnxr*", Word.CRASH)]).exit_code == 0
    one = replace(made.peers[0], name="a[threads=1]")
    entries = tuple(
        replace(entry, verdicts={"a[threads=1]": entry.verdicts[made.peers[0].name]})
        for entry in made.entries
    )
    bracketed = replace(made, peers=(one,), entries=entries)
    assert unexpected(bracketed, [Expectation("*", "a[threads=1]", Word.CRASH)]).exit_code == 0


def test_of_what_was_not_asked_nothing_is_said() -> None:
    made = agreeing()
    elsewhere = Expectation("split-1/elsewhere", made.peers[0].name, Word.CRASH)
    assert unexpected(made, [elsewhere], cases=["split-1/elsewhere"]).exit_code == 0
    assert unexpected(made, [Expectation(made.entries[0].id, "nobody", Word.CRASH)]).exit_code == 0


def test_a_stale_expectation_names_its_case() -> None:
    with pytest.raises(CompareError, match=r"stale expectation: there is no case 'split-19/\*'"):
        unexpected(agreeing(), [Expectation("split-19/*", "a", Word.CRASH)])


def test_a_peer_that_did_not_start_goes_before_all() -> None:
    made = with_verdict(agreeing(), 1, CRASH)
    made = replace(made, peers=(made.peers[0], replace(made.peers[1], state=State.FAILED)))
    assert unexpected(made, []).exit_code == 3


def test_expectations_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text('[[expected]]\ncase = "a/*"\nimplementation = "b"\nverdict = "crash"\nreason = "why"\n')
    assert read_expectations(path) == (Expectation("a/*", "b", Word.CRASH, "why"),)


def test_expectations_in_an_old_report(tmp_path: Path) -> None:
    made = report(20, 4)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(made.to_json()))
    assert read_expectations(path) == expectations(made)
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
    assert set(schema("expected")["$defs"]["row"]["properties"]["verdict"]["enum"]) == FINDINGS


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CompareError, match=r"cannot open '.*nowhere\.json': no such file"):
        read_report(tmp_path / "nowhere.json")


def test_a_file_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.setattr("splitops.comparison.reports.earlier._MAX_BYTES", 1)
    with pytest.raises(CompareError, match=r"x\.json' has 2 bytes, more than the 1 "):
        read_report(tmp_path / "x.json")


def test_changes_are_found_by_the_helper_of_these_tests() -> None:
    assert changes(agreeing(), with_verdict(agreeing(), 1, CRASH)) != changes(agreeing(), agreeing())
