"""Every page in a real browser, on a laptop and a phone, light and dark: it fits, asks nobody, is legible."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")

from browsing import launched, needs_chromium  # noqa: E402
from splitops.models.check import LIMITS  # noqa: E402
from splitops.models.check.codes import get_page, list_codes  # noqa: E402
from splitops.models.check.explanations import explain  # noqa: E402

pytestmark = needs_chromium
LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PATIENCE = 300_000
"""Milliseconds: a busy machine is slow, and that is not a fault of a page."""
WIDER = """() => {
    const room = document.documentElement.clientWidth;
    const scrolls = (e) => e && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
    return document.documentElement.scrollWidth > room
        ? [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > room + 1
            && !scrolls(e.parentElement)).slice(0, 3).map((e) => e.outerHTML.slice(0, 120))
        : null;
}"""
LINES = "(tabs) => new Set(tabs.map((tab) => Math.round(tab.getBoundingClientRect().top))).size"
HIDDEN_TABS = "(tabs) => tabs.filter((tab) => tab.getBoundingClientRect().right > innerWidth).length"
TEXTS = """(least) => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const solid = (element) => (channels(getComputedStyle(element).backgroundColor)[3] ?? 1) > 0.5;
    const found = new Map();
    for (const element of document.querySelectorAll('body *')) {
        const key = `${element.tagName}.${element.className} in ${element.parentElement.className}`;
        const seen = element.checkVisibility({opacityProperty: true, visibilityProperty: true});
        if (found.has(key) || !seen) continue;
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
        let behind = element;
        while (behind.parentElement && !solid(behind)) behind = behind.parentElement;
        const pair = [element, behind].map((e, i) => getComputedStyle(e)[i ? 'backgroundColor' : 'color']);
        const [a, b] = pair.map(light).sort((x, y) => y - x);
        found.set(key, [(a + 0.05) / (b + 0.05), key, element.textContent.trim().slice(0, 30), ...pair]);
    }
    return [...found.values()];
}"""
"""The contrast of each kind of text, as WCAG 2 defines it, with what it is."""
KINDS = ("index.html", "terminal.html", "api/memory.html")
RULES = ("image-alt", "link-name", "button-name", "label", "heading-order", "list", "color-contrast")
"""What is asked of axe-core, of a page of each kind: it takes seconds a page."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as one:
        yield one


def opened(browser: Any, **options: Any) -> Any:
    """Open a page in a context of its own."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE)
    return page


def faults(browser: Any, size: dict[str, int], scheme: str, address: str, names: list[str]) -> dict[str, Any]:
    """Visit pages; return by page what it asks of others, complains of, and what is too wide or faint."""
    page = opened(browser, viewport=size, color_scheme=scheme)
    found: list[Any] = []
    page.on("request", lambda one: one.url.startswith((address, "data:", "blob:")) or found.append(one.url))
    page.on("console", lambda one: one.type in ("error", "warning") and found.append(one.text))
    page.on("pageerror", lambda one: found.append(str(one)))
    seen = {}
    for name in names:
        page.goto(address + name, wait_until="load")
        wider = page.evaluate(WIDER)
        found += [] if wider is None else [f"wider than the window: {wider}"]
        found += [one for one in page.evaluate(TEXTS) if one[0] < 4.5]
        seen[name] = [*found]
        found.clear()
    page.close()
    return {name: faulty for name, faulty in seen.items() if faulty}


def names(site: Path) -> list[str]:
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"])
def test_every_page_fits_can_be_read_and_asks_nobody(
    site: Path, address: str, browser: Any, size: dict[str, int], scheme: str
) -> None:
    assert len(names(site)) > 30
    assert faults(browser, size, scheme, address, names(site)) == {}


PICTURES = """(images) => images.map((image) => {
    const box = image.getBoundingClientRect();
    return [image.currentSrc, box.left, box.width];
})"""
_SIZE = re.compile(r'font-size(?:="|: )([\d.]+)')


def smallest(picture: str, width: float) -> float:
    """Return the size of the smallest text of an SVG that is shown at a width, in pixels."""
    _, _, own, _ = re.search(r'viewBox="([^"]+)"', picture)[1].split()  # type: ignore[index]
    return min(map(float, _SIZE.findall(picture))) * width / float(own)


def test_pictures_can_be_read_on_a_phone_and_are_whole(site: Path, address: str, browser: Any) -> None:
    page = opened(browser, viewport=PHONE)
    seen, faulty = set(), []
    for name in sorted(str(path.relative_to(site)) for path in site.rglob("*.html")):
        if "pictures/" not in (site / name).read_text():
            continue
        page.goto(address + name, wait_until="load")
        for source, left, width in page.locator("img[src*=pictures]").evaluate_all(PICTURES):
            file = unquote(source.removeprefix(address))
            size = smallest((site / file).read_text(), width)
            seen.add(file)
            if size < 11 or left < 0 or left + width > PHONE["width"]:
                faulty.append((name, file, size, left, width))
    page.close()
    assert len(seen) > 20
    assert faulty == []


def test_a_small_text_of_a_picture_is_seen() -> None:
    assert smallest('<svg viewBox="0 0 720 9"><text font-size="12"/><text font-size="20"/></svg>', 360) == 6
    assert smallest('<svg viewBox="0 0 720 9"><style>a { font-size: 30px }</style></svg>', 360) == 15


def test_the_navigation_is_one_line_on_a_laptop(address: str, browser: Any) -> None:
    page = opened(browser, viewport=LAPTOP)
    page.goto(address)
    tabs = page.locator(".md-tabs__link")
    assert tabs.count() > 4
    assert tabs.evaluate_all(LINES) == 1
    assert tabs.evaluate_all(HIDDEN_TABS) == 0
    page.close()


def test_light_and_dark_can_be_chosen(address: str, browser: Any) -> None:
    page = opened(browser, viewport=LAPTOP, color_scheme="dark")
    page.goto(address)
    scheme = page.locator("body")
    assert scheme.get_attribute("data-md-color-scheme") == "slate"
    page.locator("label.md-header__button:visible[for^=__palette]").click()
    assert scheme.get_attribute("data-md-color-scheme") == "default"
    page.reload()
    assert scheme.get_attribute("data-md-color-scheme") == "default"
    page.close()


def test_the_search_finds_without_a_server(address: str, browser: Any) -> None:
    page = opened(browser, viewport=LAPTOP)
    page.goto(address)
    search(page, "variadic_split")
    assert "variadic_split" in page.locator(".md-search-result__item").first.inner_text()
    page.close()


SEARCHES = {
    "num_outputs not supported": "runtime-errors.html",
    "SplitToSequence TensorRT": "runtime-errors.html#tensorrt-sequence",
    "ceil-negative-part": "runtime-errors.html#onnxruntime-ceil-negative-part",
    "chunk last part smaller": "errors.html#chunk-positive",
    "lengths.sum": "errors.html#lengths-sum",
    "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code "
    "returned while running Split node. Name:'heads/Split_4' Status Message: Invalid num_outputs value of 8. "
    "Split sizes would produce a negative final split.": "runtime-errors.html#onnxruntime-ceil-negative-part",
}
"""What a person types who has a message, and the place that the search must find."""


def first_lines() -> dict[str, set[str]]:
    """Return what runtimes print about their limits, each with the codes that it can be about."""
    found: dict[str, set[str]] = {}
    for limit in LIMITS:
        for message in explain(limit.code).messages:
            if re.match(r"[\w.]*(error|exception|fail|notimplemented|invalidgraph)\b", message.text.lower()):
                found.setdefault(message.text, set()).add(get_page(limit.code))
    return found


def search(page: Any, query: str) -> None:
    """Type into the search, which reads its text when a key is released."""
    page.locator(".md-search__input").fill(query)
    page.keyboard.press("End")


def results(page: Any, address: str, query: str) -> list[str]:
    """Search, and return the addresses that are found, the best ones first."""
    page.goto(address)
    search(page, query)
    found = page.locator(".md-search-result__link")
    found.first.wait_for(state="attached")
    links: list[str] = found.evaluate_all("(links) => links.map((link) => link.href)")
    return [unquote(link.partition("?")[0].removeprefix(address) + hash_of(link)) for link in links]


def hash_of(link: str) -> str:
    _, mark, rest = link.partition("#")
    return mark + rest


@pytest.mark.parametrize("query", SEARCHES)
def test_the_search_finds_what_an_error_is_about(address: str, browser: Any, query: str) -> None:
    page = opened(browser, viewport=LAPTOP)
    found = results(page, address, query)
    page.close()
    assert any(link.startswith(SEARCHES[query]) for link in found[:10]), found[:10]


def test_the_search_finds_the_message_of_each_runtime(address: str, browser: Any) -> None:
    """The first line is pasted as it was printed."""
    page = opened(browser, viewport=LAPTOP)
    found = {text: results(page, address, text)[:10] for text in first_lines()}
    page.close()
    assert len(found) > 25
    assert {text: found[text] for text, places in first_lines().items() if not places & {*found[text]}} == {}


def test_each_place_that_a_check_prints_is_in_the_site(site: Path) -> None:
    for code in list_codes():
        file, _, anchor = get_page(code).partition("#")
        assert f'id="{anchor}"' in (site / file).read_text(), code


def test_what_is_copied_of_a_session_is_what_was_typed(address: str, browser: Any) -> None:
    page = opened(browser, viewport=LAPTOP, permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{address}arrays.html")
    block = page.locator(".language-pycon").first
    block.hover()
    block.locator("[data-clipboard-target], .md-code__button[title*=opy]").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import numpy as np\nimport splitops\n")
    assert ">>>" not in copied
    assert "array(" not in copied
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_minds_nothing(address: str, browser: Any, scheme: str) -> None:
    page = opened(browser, viewport=LAPTOP, color_scheme=scheme)
    found = {}
    for name in KINDS:
        page.goto(address + name, wait_until="load")
        found[name] = violations(page)
    page.close()
    assert {name: one for name, one in found.items() if one} == {}


def violations(page: Any) -> list[str]:
    """Return what axe-core minds, with the first element of each."""
    options = {"runOnly": list(RULES), "resultTypes": ["violations"]}
    found = axe.Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]} ({len(one['nodes'])} times)" for one in found]


FAULTS = {
    '<p style="width: 3000px">wide</p>': "wider than the window",
    '<p style="color: #999">faint</p>': "2.8",
    '<img src="http://127.0.0.1:9/picture.png" alt="A picture">': "http://127.0.0.1:9/picture.png",
    "<script>console.error('no')</script>": "no",
    "<script>throw new Error('thrown')</script>": "thrown",
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_faulty_page_is_seen(browser: Any, tmp_path: Path, line: str) -> None:
    text = "<!doctype html><body style='background: #fff'><main><p>{}</p></main>"
    (tmp_path / "faulty.html").write_text(text.format(line))
    (tmp_path / "plain.html").write_text(text.format("plain"))
    found = faults(browser, PHONE, "light", f"{tmp_path.as_uri()}/", ["faulty.html", "plain.html"])
    assert set(found) == {"faulty.html"}
    assert any(FAULTS[line] in str(one) for one in found["faulty.html"]), found


def test_axe_minds_a_picture_without_words(browser: Any) -> None:
    page = browser.new_page()
    page.set_content('<img src="data:,">')
    assert violations(page)[0].startswith("image-alt: ")
    page.close()
