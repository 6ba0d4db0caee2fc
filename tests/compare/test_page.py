"""The page of a report as text: what it holds, what it escapes, what it allows itself."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from synthetic import report

from splitops.cli.compare import command
from splitops.comparison import CompareError, Report
from splitops.comparison.records import Peer, Record, State, Verdict, Word
from splitops.comparison.reports.html import to_html
from splitops.comparison.reports.pictures import Pictures, planned
from splitops.comparison.reports.verdicts import MEANINGS, spoken

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


def hostile(made: Report) -> Report:
    """A report in which every text is hostile."""
    peer = replace(
        made.peers[0], name=HOSTILE, kind=HOSTILE, versions={HOSTILE: HOSTILE}, setting={HOSTILE: HOSTILE}
    )
    record = Record(operator=HOSTILE, version=18, outputs=(HOSTILE,), attributes={HOSTILE: HOSTILE})
    part = {"dtype": HOSTILE, "shape": [HOSTILE], "sample": [HOSTILE]}
    verdict = Verdict(
        word=Word.DIFFERS,
        detail=HOSTILE,
        stage=HOSTILE,
        got=(part, {"sequence": [part]}, {"inferred": [HOSTILE]}),
        confirmed=2,
        shrunk=record,
        limit=HOSTILE,
        known=f"javascript:{HOSTILE}",
    )
    entry = replace(
        made.entries[0],
        id=HOSTILE,
        operator=HOSTILE,
        rule=HOSTILE,
        title=HOSTILE,
        record=record,
        expected=(part,),
        baseline=HOSTILE,
        verdicts={HOSTILE: verdict},
    )
    return Report(environment={HOSTILE: {HOSTILE: [HOSTILE]}}, peers=(peer,), entries=(entry,))


def test_pages_need_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(CompareError, match=r"needs Jinja2: pip install 'splitops\[compare\]'"):
        to_html(report(1, 1), "1")


def test_the_command_that_reproduces_a_finding_is_one_of_ours() -> None:
    found = [text for text in Page(to_html(report(20, 4), "1")).texts if text.startswith("splitops compare ")]
    assert found
    for words in map(shlex.split, found):
        context = command.make_context("compare", words[2:])
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
    ids = {entry.id for entry in made.entries}
    entries = tuple(replace(e, baseline=None if e.baseline not in ids else e.baseline) for e in made.entries)
    page = Page(to_html(replace(made, entries=entries), "1"))
    places = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(places) == len(set(places))
    inside = {href[1:] for one in page.all("a") if (href := one.get("href") or "").startswith("#")}
    assert {place for place in inside if not place.startswith("?")} <= set(places)
    assert len(inside) > 40 + len(made.findings)


def test_every_finding_has_a_permalink_and_a_reproduction() -> None:
    made = report(40, 6)
    text = to_html(made, "1")
    assert len(re.findall('<section class="card finding"', text)) == len(made.findings) > 10
    assert text.count("<code>splitops compare ") == len(made.findings)
    for entry, _, _ in made.findings:
        assert f'id="{entry.id}"' in text


def test_the_words_stand_beside_the_colours() -> None:
    made = report(200, 12)
    text = to_html(made, "1")
    cells = re.findall(r"<td class=([\w-]+)>(?:<a[^>]*>)?([\w/ -]+)", text)
    assert len(cells) == 200 * 12
    named = {word: word.value if word is not Word.NOT_APPLICABLE else "na" for word in MEANINGS}
    assert {(named[word], spoken(word)) for word in MEANINGS} <= set(cells)
    assert ("na", "unconfirmed") in cells


def test_what_did_not_repeat_is_no_finding() -> None:
    made = report(1, 1)
    once = Verdict(word=Word.CRASH, signal="SIGSEGV", confirmed=1)
    entry = replace(made.entries[0], verdicts={made.peers[0].name: once})
    text = to_html(replace(made, entries=(entry,)), "1")
    assert "card finding" not in text
    assert "onnxruntime (crash SIGSEGV)" in text


@pytest.mark.parametrize("made", [Report(environment={}, peers=(), entries=()), report(1, 1), report(3, 1)])
def test_small_reports(made: Report) -> None:
    page = Page(to_html(made, "1"))
    assert len(page.all("article")) == len(made.entries)


def test_what_was_not_asked_and_who_did_not_start_is_said() -> None:
    made = report(1, 2)
    gone = replace(made.peers[1], state=State.FAILED, detail="no answer in 2 s")
    entry = replace(made.entries[0], verdicts={made.peers[0].name: Verdict(word=Word.AGREES)})
    text = to_html(replace(made, peers=(made.peers[0], gone), entries=(entry,)), "1")
    assert "failed: no answer in 2 s" in text
    assert text.count("<td class=na>not asked") == 1


def test_a_report_without_a_record_has_no_picture() -> None:
    made = report(1, 1)
    entry = replace(made.entries[0], record=None)
    assert '<div class="picture' not in to_html(replace(made, entries=(entry,)), "1")
    assert '<div class="picture' in to_html(made, "1")


# Pictures

THREE = {"num_splits": 3}


@pytest.mark.parametrize(
    ("record", "sizes"),
    [
        (Record(operator="Split", version=18, shape=(5,), attributes={"num_outputs": 4}), (2, 2, 1, 0)),
        (Record(operator="Split", version=13, shape=(2, 6), axis=1, outputs=("a", "b", "c")), (2, 2, 2)),
        (Record(operator="Split", version=2, shape=(6,), attributes={"split": [2, 4]}), (2, 4)),
        (Record(operator="Split", version=13, shape=(6,), lengths=[1, 5], outputs=("a", "b")), (1, 5)),
        (Record(operator="SplitToSequence", version=11, shape=(5,), lengths=2), (2, 2, 1)),
        (
            Record(operator="VariadicSplit", version=1, shape=(6,), axis=0, lengths=[-1, 4], format="ir"),
            (2, 4),
        ),
        (Record(operator="Split", version=1, shape=(6,), axis=0, attributes=THREE, format="ir"), (2, 2, 2)),
        (Record(operator="Split", version=18, shape=(5,), lengths=[1, 1]), None),
        (Record(operator="Split", version=18, shape=(5,), special="merged"), None),
        (Record(operator="Split", version=18, shape=(5,), attributes={"parts": 2}), None),
    ],
)
def test_the_plan_of_a_record(record: Record, sizes: tuple[int, ...] | None) -> None:
    found = planned(record)
    assert (None if found is None else found.sizes) == sizes


def test_equal_splits_share_a_picture() -> None:
    pictures = Pictures()
    record = Record(operator="Split", version=18, shape=(5,), attributes={"num_outputs": 4})
    first, again = pictures.of(record), pictures.of(replace(record, dynamic=True))
    assert first is not None
    assert first == again
    assert first[1] == "Data [5] split along axis 0 into parts of 2, 2, 1, 0"
    assert pictures.style().count("data:image/svg+xml") == 2  # for a laptop and a phone


def test_a_peer_without_anything_has_a_bar() -> None:
    made = Report(environment={}, peers=(Peer(name="a", adapter="a"),), entries=())
    assert 'viewBox="0 0 1 1"' in to_html(made, "1")
