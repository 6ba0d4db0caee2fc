"""The documentation of comparisons and the data of the repository: current, and true to each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from synthetic import report

from scripts import ROOT, script
from splitops_compare.data import Verdict, VerdictKind
from splitops_compare.reports.html import to_html

COMPARE_DOCS = ROOT / "compare/docs"
VERDICTS = COMPARE_DOCS / "data/verdicts"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return script("dev/pages/compare")


def test_the_page_on_comparisons_is_current(made: ModuleType) -> None:
    for name, content in made.files(made.shown()).items():
        assert (COMPARE_DOCS / name).read_text() == content, "run dev/pages/compare.py"


def test_the_page_shows_ten_peers_and_confirmed_disagreements_alone(made: ModuleType) -> None:
    shown = made.shown()
    assert len({peer.adapter for peer in shown.implementations if peer.state == "ok"}) >= 10
    page = made.whole()
    assert page.count('class="card finding"') == len(shown.findings) > 0
    assert page.count('<article class="case"') == len(shown.cases)


def test_the_page_of_an_implementation_says_first_what_is_wrong(made: ModuleType) -> None:
    shown = report(40, 4)
    for peer in shown.implementations:
        page = made.page_of(shown, peer)
        found = [(entry, verdict) for entry, one, verdict in shown.findings if one is peer]
        agrees, judged = made.agreeing(shown, peer)
        assert agrees < judged < 40
        loose = [entry.verdicts[peer.name] for entry in shown.cases if peer.name in entry.verdicts]
        loose = [verdict for verdict in loose if verdict.is_unconfirmed]
        score = f"{agrees} of {judged} cases{f', {len(loose)} unconfirmed' if loose else ''}"
        assert score in page
        assert f">{score}<" in made.badge(shown, peer)
        sentences = [line for line in page.splitlines() if line.startswith("- ")]
        told = [verdict.kind for _, verdict in found]
        order = [word for word in made.SENTENCES if word in told]
        assert len(sentences) == len(order)
        for sentence, word in zip(sentences, order, strict=True):
            assert sentence.startswith(f"- {made.SENTENCES[word]} in {told.count(word)} case")
        rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `")]
        assert sum(int(row[3]) for row in rows) == sum(one.kind in made.SENTENCES for _, one in found)


def test_what_was_not_confirmed_is_named_everywhere(made: ModuleType) -> None:
    """Three cases: one as specified, one crash that was not run again, and one without a result."""
    shown = report(3, 1)
    peer = shown.implementations[0]
    words = (VerdictKind.AGREES, VerdictKind.CRASH, VerdictKind.NO_RESULT)
    entries = tuple(
        replace(entry, verdicts={peer.name: Verdict(kind=word)})
        for entry, word in zip(shown.cases, words, strict=True)
    )
    shown = replace(shown, cases=entries)
    page = made.page_of(shown, peer)
    assert "1 of 2 cases, 1 unconfirmed: 1 crash." in page
    assert ">1 of 2 cases, 1 unconfirmed<" in made.badge(shown, peer)
    heading, _, row = made.implementations_table(shown).splitlines()
    cells = dict(zip(heading.split(" | "), row.split(" | "), strict=True))
    assert (cells["unconfirmed"], cells["no result |"]) == ("1", "1 |")
    html = to_html(shown, "1")
    numbers = re.search(r"<tr><th scope=row>.*?</tbody>", html, re.DOTALL)
    assert numbers is not None
    found = re.findall(r'<td class="n[^"]*">(\d+)', numbers[0])
    assert found == ["1", "0", "0", "0", "0", "0", "0", "1", "1"]


@pytest.mark.parametrize("cases", [40])
def test_the_page_and_the_text_count_the_same(made: ModuleType, cases: int) -> None:
    shown = report(cases, 6)
    rows = [row.strip("| ").split(" | ") for row in made.implementations_table(shown).splitlines()[2:]]
    html = to_html(shown, "1").partition('class="implementations"')[2].partition("</table>")[0]
    for cells, part in zip(rows, html.split("<tr><th scope=row>")[1:], strict=True):
        assert [int(cell or 0) for cell in cells[2:]] == [
            int(found) for found in re.findall(r'<td class="n[^"]*">(\d+)', part)
        ]
        assert sum(int(cell or 0) for cell in cells[2:]) == cases


def schema() -> Draft202012Validator:
    return Draft202012Validator(json.loads((VERDICTS / "schema.json").read_text()))


def operators() -> list[Path]:
    return [path for path in sorted(VERDICTS.glob("*.json")) if path.name != "schema.json"]


def test_the_data_of_every_operator_fit_the_schema() -> None:
    assert len(operators()) == 9
    for path in operators():
        schema().validate(json.loads(path.read_text()))


@pytest.mark.parametrize("wrong", [{"a": {"b": {"1": "breaks"}}}, {"a": {"b": {}}}, {"a": "agrees"}])
def test_the_schema_rejects_what_is_no_verdict(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        schema().validate(wrong)


def test_the_files_are_as_they_are_written(made: ModuleType) -> None:
    for path in operators():
        assert path.read_text() == made.written(made.merged(made.read_verdicts(path), [], ()))


def test_what_is_shown_is_in_the_data(made: ModuleType) -> None:
    for entry, peer, verdict in made.shown().findings:
        row = made.read_verdicts(made.file_of(entry.operator))[entry.id]
        assert row[peer.name.partition("@")[0]][made.release(peer)] == made.word(verdict)


def test_a_newer_word_on_a_release_counts_and_other_releases_stay(made: ModuleType) -> None:
    shown = report(1, 1)
    peer, entry = shown.implementations[0], shown.cases[0]
    entry = replace(
        entry, verdicts={peer.name: Verdict(kind=VerdictKind.CRASH, signal="SIGSEGV", confirmed=2)}
    )
    old = {entry.id: {peer.name: {"0.1": "hang", "0.4.1": "agrees"}}, "other": {"b": {"1": "agrees"}}}
    new = made.merged(old, [entry], shown.implementations)
    assert new[entry.id] == {peer.name: {"0.1": "hang", "0.4.1": "crash SIGSEGV"}}
    assert new["other"] == old["other"]
    once = replace(entry, verdicts={peer.name: Verdict(kind=VerdictKind.CRASH)})
    assert made.merged({}, [once], shown.implementations)[entry.id][peer.name] == {"0.4.1": "unconfirmed"}


def test_reports_of_different_peers_are_one(made: ModuleType) -> None:
    whole = report(8, 4)
    halves = [
        replace(
            whole,
            implementations=peers,
            cases=tuple(
                replace(entry, verdicts={peer.name: entry.verdicts[peer.name] for peer in peers})
                for entry in whole.cases
            ),
        )
        for peers in (whole.implementations[:2], whole.implementations[2:])
    ]
    assert made.together(halves).to_json() == whole.to_json()


def test_links_to_reports_upstream(made: ModuleType) -> None:
    shown = report(40, 4)
    entry, peer, verdict = next(one for one in shown.findings if one[2].known is None)
    known = [
        {
            "case": f"{entry.id[:12]}*",
            "implementation": peer.name,
            "verdict": str(verdict.kind),
            "url": "https://a.b",
        }
    ]
    linked = {(e.id, p.name): v.known for e, p, v in made.with_known(shown, known).findings}
    assert linked[entry.id, peer.name] == "https://a.b"
    assert None in linked.values()
    for one in made.read_known():
        assert one["url"].startswith("https://")
        assert (
            {"case", "implementation", "url"}
            <= one.keys()
            <= {"case", "implementation", "url", "verdict", "title"}
        )
