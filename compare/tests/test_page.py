"""The page of a report as text: what it holds, what it escapes, what it allows itself."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from synthetic import report

from splitops_compare import ComparisonReport
from splitops_compare.cli import command
from splitops_compare.data import CaseSpec, ImplementationInfo, State, Verdict, VerdictKind
from splitops_compare.reports.diagrams import DiagramCache, find_plan
from splitops_compare.reports.html import to_html
from splitops_compare.reports.verdicts import GROUPS, NO_RESULT, count_groups, format_label

HOSTILE = (
    "</style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\x1b[2J\u202e\ud800$policy"
)


class Page(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def hostile(made: ComparisonReport) -> ComparisonReport:
    """A report in which every text is hostile."""
    peer = replace(
        made.implementations[0],
        name=HOSTILE,
        kind=HOSTILE,
        versions={HOSTILE: HOSTILE},
        setting={HOSTILE: HOSTILE},
    )
    record = CaseSpec(operator=HOSTILE, version=18, outputs=(HOSTILE,), attributes={HOSTILE: HOSTILE})
    part = {"dtype": HOSTILE, "shape": [HOSTILE], "sample": [HOSTILE]}
    verdict = Verdict(
        kind=VerdictKind.DIFFERS,
        detail=HOSTILE,
        stage=HOSTILE,
        got=(part, {"sequence": [part]}, {"inferred": [HOSTILE]}),
        confirmed=2,
        shrunk=record,
        limit=HOSTILE,
        known=f"javascript:{HOSTILE}",
    )
    entry = replace(
        made.cases[0],
        id=HOSTILE,
        operator=HOSTILE,
        rule=HOSTILE,
        title=HOSTILE,
        spec=record,
        expected=(part,),
        baseline=HOSTILE,
        verdicts={HOSTILE: verdict},
    )
    return ComparisonReport(
        environment={HOSTILE: {HOSTILE: [HOSTILE]}}, implementations=(peer,), cases=(entry,)
    )


def test_the_command_that_reproduces_a_finding_is_one_of_ours() -> None:
    found = [text for text in Page(to_html(report(20, 4), "1")).texts if text.startswith("splitops-compare ")]
    assert found
    for words in map(shlex.split, found):
        context = command.make_context("splitops-compare", words[1:])
        assert len(context.params["implementations"]) == 1
        assert context.params["repro"]


def test_what_a_hostile_report_says_is_text() -> None:
    page, plain = Page(to_html(hostile(report(1, 1)), HOSTILE)), Page(to_html(report(1, 1), "1"))
    assert len(page.all("script")) == len(plain.all("script")) == 1
    assert page.all("img") == []
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    for _, attributes in page.elements:
        assert not (attributes.get("href") or "").startswith("javascript:")
    text = "".join(page.texts)
    assert "<img src=x onerror=alert(1)>" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)


def test_the_policy_allows_what_is_in_the_page_alone() -> None:
    text = to_html(hostile(report(1, 1)), "1")
    page = Page(text)
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_nothing_of_the_page_is_elsewhere() -> None:
    page = Page(to_html(report(40, 6), "1"))
    sources = [attributes["src"] for _, attributes in page.elements if "src" in attributes]
    links = [attributes["href"] for tag, attributes in page.elements if tag == "link"]
    assert (sources, links) == ([], ["data:,"])
    style = re.findall(r"url\((.*?)\)", to_html(report(40, 6), "1"))
    assert style
    assert all(address.startswith('"data:image/svg+xml,') for address in style)


def test_every_link_inside_leads_somewhere() -> None:
    made = report(40, 6)
    ids = {entry.id for entry in made.cases}
    entries = tuple(replace(e, baseline=None if e.baseline not in ids else e.baseline) for e in made.cases)
    page = Page(to_html(replace(made, cases=entries), "1"))
    places = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(places) == len(set(places))
    inside = {href[1:] for one in page.all("a") if (href := one.get("href") or "").startswith("#")}
    assert {place for place in inside if not place.startswith("?")} <= set(places)
    assert len(inside) > 40 + len(made.findings)


def test_every_finding_has_a_permalink_and_a_reproduction() -> None:
    made = report(40, 6)
    text = to_html(made, "1")
    assert len(re.findall('<section class="card finding"', text)) == len(made.findings) > 10
    assert text.count("<code>splitops-compare ") == len(made.findings)
    for entry, _, _ in made.findings:
        assert f'id="{entry.id}"' in text


def test_every_cell_has_the_label_of_its_colour() -> None:
    text = to_html(report(200, 12), "1")
    cells = re.findall(r"<td class=([\w-]+)>(?:<a[^>]*>)?([\w -]+)", text)
    assert len(cells) == 200 * 12
    labels = {(group, format_label(group)) for group in GROUPS}
    faults_of_adapters = {(NO_RESULT, "protocol"), (NO_RESULT, "adapter error")}
    assert set(cells) == labels | faults_of_adapters


def test_there_is_one_count_of_each_group() -> None:
    made = report(200, 12)
    text = to_html(made, "1")
    counts = count_groups(made)
    assert all(counted.total() == len(made.cases) for counted in counts.values())
    for group in GROUPS:
        cells = text.count(f"<td class={group}>")
        assert cells == sum(counted[group] for counted in counts.values()), group
        assert f'name="verdict" value="{group}"' in text
    rows = re.findall(
        r'<tr><th scope=row><a href="#\?implementation=(.*?)</svg>(.*?)(?=<tr>|</tbody>)', text, re.DOTALL
    )
    assert len(rows) == len(made.implementations)
    for info, (_, columns) in zip(made.implementations, rows, strict=True):
        shown = [int(number) for number in re.findall(r'<td class="n[^>]*>(\d+)', columns)]
        assert shown == [counts[info.name][group] for group in GROUPS]


def test_findings_come_before_what_is_unconfirmed() -> None:
    text = to_html(report(200, 12), "1")
    headings = re.findall(r"<h2[^>]*>([^<]+)", text)
    assert headings[:3] == ["Findings", "Unconfirmed", "The implementations"]


def test_what_did_not_repeat_is_no_finding() -> None:
    made = report(1, 1)
    once = Verdict(kind=VerdictKind.CRASH, signal="SIGSEGV", confirmed=1)
    entry = replace(made.cases[0], verdicts={made.implementations[0].name: once})
    text = to_html(replace(made, cases=(entry,)), "1")
    assert "card finding" not in text
    assert "onnxruntime (crash SIGSEGV)" in text
    assert "<td class=unconfirmed><a href=" in text


@pytest.mark.parametrize(
    "made", [ComparisonReport(environment={}, implementations=(), cases=()), report(1, 1), report(3, 1)]
)
def test_small_reports(made: ComparisonReport) -> None:
    page = Page(to_html(made, "1"))
    assert len(page.all("article")) == len(made.cases)


def test_cases_that_did_not_run_have_no_result() -> None:
    made = report(1, 2)
    gone = replace(made.implementations[1], state=State.FAILED, detail="no response in 2 s")
    entry = replace(made.cases[0], verdicts={made.implementations[0].name: Verdict(kind=VerdictKind.AGREES)})
    text = to_html(replace(made, implementations=(made.implementations[0], gone), cases=(entry,)), "1")
    assert "failed: no response in 2 s" in text
    assert text.count("<td class=no-result>no result") == 1


def test_a_report_without_a_record_has_no_picture() -> None:
    made = report(1, 1)
    entry = replace(made.cases[0], spec=None)
    assert '<div class="picture' not in to_html(replace(made, cases=(entry,)), "1")
    assert '<div class="picture' in to_html(made, "1")


# DiagramCache

THREE = {"num_splits": 3}


@pytest.mark.parametrize(
    ("record", "sizes"),
    [
        (CaseSpec(operator="Split", version=18, shape=(5,), attributes={"num_outputs": 4}), (2, 2, 1, 0)),
        (CaseSpec(operator="Split", version=13, shape=(2, 6), axis=1, outputs=("a", "b", "c")), (2, 2, 2)),
        (CaseSpec(operator="Split", version=2, shape=(6,), attributes={"split": [2, 4]}), (2, 4)),
        (CaseSpec(operator="Split", version=13, shape=(6,), lengths=[1, 5], outputs=("a", "b")), (1, 5)),
        (CaseSpec(operator="SplitToSequence", version=11, shape=(5,), lengths=2), (2, 2, 1)),
        (
            CaseSpec(operator="VariadicSplit", version=1, shape=(6,), axis=0, lengths=[-1, 4], format="ir"),
            (2, 4),
        ),
        (CaseSpec(operator="Split", version=1, shape=(6,), axis=0, attributes=THREE, format="ir"), (2, 2, 2)),
        (CaseSpec(operator="Split", version=18, shape=(5,), lengths=[1, 1]), None),
        (CaseSpec(operator="Split", version=18, shape=(5,), special="merged"), None),
        (CaseSpec(operator="Split", version=18, shape=(5,), attributes={"parts": 2}), None),
    ],
)
def test_the_plan_of_a_record(record: CaseSpec, sizes: tuple[int, ...] | None) -> None:
    found = find_plan(record)
    assert (None if found is None else found.sizes) == sizes


def test_equal_splits_share_a_picture() -> None:
    pictures = DiagramCache()
    record = CaseSpec(operator="Split", version=18, shape=(5,), attributes={"num_outputs": 4})
    first, again = pictures.find_diagram(record), pictures.find_diagram(replace(record, dynamic=True))
    assert first is not None
    assert first == again
    assert first[1] == "Data [5] split along axis 0 into parts of 2, 2, 1, 0"
    assert pictures.make_style().count("data:image/svg+xml") == 2  # for a laptop and a phone


def test_a_peer_without_anything_has_a_bar() -> None:
    made = ComparisonReport(
        environment={}, implementations=(ImplementationInfo(name="a", adapter="a"),), cases=()
    )
    assert 'viewBox="0 0 1 1"' in to_html(made, "1")
