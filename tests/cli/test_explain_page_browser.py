"""The interactive page of ``splitops explain`` in a real browser, without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import CONTRAST, launched, needs_chromium
from scripts import script

pytestmark = needs_chromium

TEXTS = f"""(all) => ({CONTRAST})(all.filter((element) => element.getClientRects().length
    && !['SCRIPT', 'OPTION'].includes(element.tagName) && !element.closest('svg')
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())))"""
"""The contrast of every text that is seen."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture
def address(invoke, tmp_path: Path) -> str:
    path = tmp_path / "page.html"
    assert invoke("explain", "--shape", "2,7,4", "--axis", 1, "--parts", 4, "--html", path).exit_code == 0
    return path.as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, open; it has asked for nothing and complained of nothing."""
    context = browser.new_context(offline=True)
    opened, said = context.new_page(), []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: said.append(request.url))
    opened.goto(address)
    yield opened
    context.close()
    assert said[0] == address  # the file itself
    assert [text for text in said[1:] if not text.startswith("data:")] == []


def sizes(page: Any) -> list[str]:
    return [cell.inner_text() for cell in page.locator("tbody tr td:nth-of-type(2)").all()]


def test_it_begins_with_the_split_that_was_asked_for(page):
    assert sizes(page) == ["2", "2", "2", "1"]
    assert page.locator("#code dd").all_inner_texts() == [
        "splitops.onnx.split(x, num_outputs=4, axis=1, opset=18)",
        "np.split(x, [2, 4, 6], axis=1)",
        "torch.split(x, [2, 2, 2, 1], dim=1)",
        "p0, p1, p2, p3 = Split<axis = 1, num_outputs = 4>(x)",
        "ov.opset1.variadic_split(x, 1, [2, 2, 2, 1])",
    ]


def test_all_of_it_follows_the_keys(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "operator"
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "numbers"
    page.keyboard.press("Control+A")
    page.keyboard.type("5")
    assert sizes(page) == ["2", "2", "2", "1", "0"]
    assert "empty" in page.locator("tbody tr").last.inner_text()


def test_a_broken_rule_is_said(page):
    page.select_option("[name=operator]", "Split-13")
    assert page.get_by_role("alert").inner_text().startswith("Split-13 [parts.divisible]")
    page.fill("[name=shape]", "2, x")
    assert page.get_by_role("alert").inner_text() == "x is not an integer"
    page.fill("[name=shape]", "2, 8")
    assert sizes(page) == ["2"] * 4


@pytest.mark.parametrize(
    ("button", "wanted"),
    [
        ("7 into 4", ["2", "2", "2", "1"]),
        ("3 into 5", ["1", "1", "1", "0", "0"]),
        ("1, -1, 2", ["1", "3", "2"]),
    ],
)
def test_the_edge_cases_are_one_click_away(page, button, wanted):
    page.get_by_role("button", name=button, exact=True).click()
    assert sizes(page) == wanted


def test_what_is_seen_has_an_address(browser, page):
    page.select_option("[name=operator]", "SplitToSequence-24")
    page.select_option("[name=way]", "ones")
    page.get_by_label("keepdims").uncheck()
    again = page.context.new_page()
    again.goto(page.url)
    assert again.locator("[name=operator]").input_value() == "SplitToSequence-24"
    assert sizes(again) == ["1"] * 7
    assert again.locator("tbody td:nth-of-type(3)").first.inner_text() == "(2, 4)"


def test_very_many_parts_are_shown_together(page):
    page.fill("[name=shape]", "16777216")
    page.fill("[name=axis]", "0")
    page.fill("[name=numbers]", "16777216")
    assert page.locator("tbody tr").count() == 1
    assert "16,777,216 parts" in page.locator("#said").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(browser, address, scheme, width):
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratios = page.locator("body *").evaluate_all(TEXTS)
    assert len(ratios) > 40
    assert [one for one in ratios if one[0] < 4.5] == []
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, button')]"
        ".filter((control) => !control.labels?.length && !control.innerText).length"
    )
    assert unnamed == 0
    context.close()


def test_without_javascript_the_picture_is_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".still svg").is_visible()
    assert not page.locator("form").is_visible()
    context.close()


def test_the_policy_lets_nothing_else_run(page):
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    one = "'sha256-[^' ]+'"  # the page's own style, and that of its picture
    assert re.search(f"default-src 'none'; style-src {one} {one}; script-src {one};", policy)


def test_on_a_phone_the_result_stands_above_its_inputs(browser, address):
    for width, above in ((390, True), (1280, False)):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
        page = context.new_page()
        page.goto(address)
        places = [page.locator(place).bounding_box()["y"] for place in ("#said", "#axis", "form", "table")]
        assert (places[0] < places[1] < places[2]) is above
        assert places[3] > places[2]
        assert not above or places[1] < 500  # seen without scrolling
        page.fill("[name=numbers]", "0")
        assert (
            page.locator("#problem").bounding_box()["y"] < page.locator("form").bounding_box()["y"]
        ) is above
        context.close()


def test_the_label_of_the_numbers_says_what_they_are(page):
    assert page.get_by_role("textbox", name="Number of parts").input_value() == "4"
    page.select_option("[name=way]", "sizes")
    assert page.get_by_role("textbox", name="Size of each part").is_visible()
    page.select_option("[name=operator]", "SplitToSequence-24")
    page.select_option("[name=way]", "chunk")
    assert page.get_by_role("textbox", name="Size of a chunk").is_visible()


def test_one_dimension_has_no_picture_of_its_memory(page):
    assert page.locator("#memory").is_visible()
    page.fill("[name=axis]", "0")
    page.fill("[name=shape]", "7")
    assert not page.locator("#memory").is_visible()
    assert sizes(page) == ["2", "2", "2", "1"]


def test_the_page_of_the_site_has_a_way_home(browser):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content(script("dev/pages/sizes").interactive())
    assert page.get_by_role("link", name="splitops").get_attribute("href") == "index.html"
    context.close()
