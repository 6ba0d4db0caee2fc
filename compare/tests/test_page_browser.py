"""The page in a real browser, offline: filters, permalinks, keys, contrast, names, no error, no request.

They need Chromium (``/usr/bin/chromium``, or ``$CHROMIUM``) and playwright, and are skipped without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import report

from browsing import CONTRAST, launched, needs_chromium
from splitops_compare.data import VerdictKind
from splitops_compare.reports.html import make_anchor, to_html
from splitops_compare.reports.verdicts import DISAGREEMENTS, get_group

pytestmark = needs_chromium

MADE = report(40, 12)
VISIBLE = "tr[data-case]:not([hidden])"
DISAGREED = [
    entry for entry in MADE.cases if any(get_group(one) in DISAGREEMENTS for one in entry.verdicts.values())
]
"""The cases that the page shows at first."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(to_html(MADE, "1"))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Any]:
    """Opens the page with options of a context; at the end nothing was asked for and nothing complained."""
    contexts, complaints, requests = [], [], []

    def open_page(fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(
            offline=True, **({"viewport": {"width": 1440, "height": 900}} | options)
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{file.as_uri()}{fragment}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith(file.as_uri()) for url in requests)


def shown(page: Any) -> int:
    return int(page.locator(VISIBLE).count())


def cases_with(group: str) -> int:
    return sum(
        any(get_group(verdict) == group for verdict in entry.verdicts.values()) for entry in MADE.cases
    )


def test_filters(opened: Any) -> None:
    page = opened()
    assert page.get_by_label("Only findings").is_checked()
    assert shown(page) == len(DISAGREED) < 40
    page.get_by_role("checkbox", name="crash").check()
    assert shown(page) == cases_with(VerdictKind.CRASH) < 40
    assert page.get_by_role("status").inner_text() == f"{shown(page)} of 40 cases, 12 of 12 implementations"
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("document.querySelector('.status').textContent.startsWith('40 of')")
    page.get_by_label("Operator").select_option("Split-13")
    assert shown(page) == sum(entry.operator == "Split-13" for entry in MADE.cases)
    page.get_by_label("Search cases").fill("LENGTHS.sum static")
    assert 0 < shown(page) == sum("lengths.sum" in e.id and e.operator == "Split-13" for e in MADE.cases)


def test_only_the_disagreements_of_one_peer(opened: Any) -> None:
    page = opened()
    page.locator(".filters summary").click()
    page.get_by_role("checkbox", name="tract").check()
    wanted = sum(get_group(entry.verdicts["tract"]) in DISAGREEMENTS for entry in MADE.cases)
    assert 0 < shown(page) == wanted
    assert page.locator(".matrix thead th:visible").all_inner_texts() == ["Case", "tract"]
    table, head = (page.locator(f".matrix{part}").first.bounding_box() for part in ("", " thead tr"))
    assert abs(table["width"] - head["width"]) < 3, "no empty columns are left of the hidden ones"
    assert page.url.endswith("#?implementation=tract&only=1")


def test_the_filter_for_unconfirmed_results(opened: Any) -> None:
    page = opened()
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("checkbox", name="unconfirmed").check()
    assert 0 < shown(page) == cases_with("unconfirmed") < 40


def test_a_link_to_what_is_seen(opened: Any) -> None:
    page = opened("#?implementation=tract&only=1")
    assert shown(page) == sum(get_group(entry.verdicts["tract"]) in DISAGREEMENTS for entry in MADE.cases)
    assert page.get_by_label("Only findings").is_checked()


def test_a_permalink_opens_its_case_even_where_it_is_filtered_out(opened: Any) -> None:
    entry, peer, _ = MADE.findings[-1]
    page = opened(f"#{make_anchor(entry.id, peer.name)}")
    card = page.locator(".finding:target")
    assert card.get_by_role("heading").inner_text() == peer.name
    assert card.is_visible()
    hidden = next(e for e in MADE.cases if not any(v.kind is VerdictKind.CRASH for v in e.verdicts.values()))
    page.get_by_role("checkbox", name="crash").check()
    page.evaluate("(place) => { location.hash = place }", make_anchor(hidden.id))
    page.locator(".case:target").wait_for()
    assert page.locator(".case:target").get_attribute("id") == make_anchor(hidden.id)


def test_keys(opened: Any) -> None:
    page = opened()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.locator(f"{VISIBLE} a").first.focus()
    page.keyboard.press("ArrowDown")
    place = page.evaluate("document.activeElement.closest('tr').dataset.case")
    assert place == make_anchor(DISAGREED[1].id)
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.case:target')")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.closest('tr').dataset.case") == place


def test_a_case_is_drawn_once_it_is_opened(opened: Any) -> None:
    page = opened()
    assert page.locator(".case").count() == 0
    height = page.evaluate("document.documentElement.scrollHeight")
    page.locator(f"{VISIBLE} a.id").nth(2).click()
    assert page.locator(".case:visible").count() == 1
    assert page.locator(".case:visible").get_attribute("id") == make_anchor(DISAGREED[2].id)
    assert page.evaluate("document.documentElement.scrollHeight") > height


def test_wrong_results_and_crashes_come_first_in_sentences(opened: Any) -> None:
    page = opened()
    assert page.locator("main h2").first.inner_text() == "Findings"
    told = [(peer.name, verdict.kind) for _, peer, verdict in MADE.findings]
    wanted = [
        (name, word, told.count((name, word)))
        for word in (VerdictKind.DIFFERS, VerdictKind.CRASH)
        for name in (peer.name for peer in MADE.implementations)
        if (name, word) in told
    ]
    said = page.locator(".findings").first.locator("li").all_inner_texts()
    assert len(said) > len(wanted) > 1
    for text, (name, word, number) in zip(said, wanted, strict=False):
        does = "crashes" if word is VerdictKind.CRASH else "returns a wrong result"
        assert f"{name} {does} in {number} case" in " ".join(text.split())
    page.locator(".findings a").first.click()
    assert page.locator(".finding:target").is_visible()


def test_the_page_of_a_site_has_a_way_home(opened: Any) -> None:
    assert opened().locator(".brand a").count() == 0
    assert '<a href="../index.html">splitops-compare</a>' in to_html(MADE, "1", home="../index.html")


def test_a_copied_reproduction(opened: Any) -> None:
    entry, peer, _ = MADE.findings[0]
    place = make_anchor(entry.id, peer.name)
    page = opened(f"#{place}", permissions=["clipboard-read", "clipboard-write"])
    first = page.locator(".finding:target .copy")
    first.get_by_role("button").click()
    first.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == first.locator("code").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened: Any, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    places = "h1, h2, .lead, .matrix td, .matrix th a, .implementations td, .mark, .card p, .parts li, .faint"
    places += ", .legend dd"
    ratios = page.locator(places).evaluate_all(CONTRAST)
    assert len(ratios) > 500
    assert [one for one in ratios if one[0] < 4.5] == []


def test_the_measure_of_contrast_finds_grey_on_white(browser: Any) -> None:
    page = browser.new_page()
    page.set_content('<body style="background: rgb(255, 255, 255)"><p style="color: #aaa">faint')
    assert 2 < page.locator("p").evaluate_all(CONTRAST)[0][0] < 3
    page.close()


def test_names_of_the_accessibility_tree(opened: Any) -> None:
    page = opened(f"#{make_anchor(DISAGREED[0].id)}")
    for role, name in (
        ("heading", "12 implementations and 40 splits"),
        ("region", "The matrix of cases and implementations"),
        ("table", "The result of each implementation for each case"),
        ("rowheader", "ceil/3-into-2/"),
        ("columnheader", "onnxruntime[threads=1]"),
        ("searchbox", "Search cases"),
        ("combobox", "Operator"),
        ("group", "Verdicts"),
        ("img", "Data [3] split along axis 0 into parts of 2, 1"),
    ):
        assert page.get_by_role(role, name=name).count(), (role, name)
    nameless = "[...document.querySelectorAll('a, button')].filter((e) => !e.textContent.trim()).length"
    assert page.evaluate(nameless) == 0


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_is_never_wider_than_the_window(opened: Any, width: int) -> None:
    page = opened(viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator(".frame").evaluate("(frame) => frame.scrollTo(500, 300)")
    box, frame = page.locator(".matrix thead th").first.bounding_box(), page.locator(".frame").bounding_box()
    assert abs(box["x"] - frame["x"]) < 3
    assert abs(box["y"] - frame["y"]) < 3


def test_what_is_shown_has_an_address_also_where_all_is(opened: Any) -> None:
    page = opened()
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("location.hash === '#?all'")
    assert shown(page) == shown(opened("#?all")) == 40


def test_without_javascript(opened: Any) -> None:
    page = opened(java_script_enabled=False)
    assert page.locator(".case").count() == 40
    assert not page.locator(".filters").is_visible()
    assert page.locator(".copy code").first.is_visible()
    assert not page.locator(".copy button").first.is_visible()


def test_print_shows_everything(opened: Any) -> None:
    page = opened()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator(".case:visible").count() == 40
    assert not page.locator(".filters").is_visible()
    assert page.locator(".frame").evaluate("(frame) => frame.scrollHeight <= frame.clientHeight")
