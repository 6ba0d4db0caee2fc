"""A real browser for the tests of pages: Debian's Chromium, or ``$CHROMIUM``, driven by playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no Chromium at {CHROMIUM}")

_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-quic"),
]
CONTRAST = """(elements) => elements.map((element) => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    let behind = element;
    const seen = (e) => getComputedStyle(e).backgroundColor;
    while (behind && channels(seen(behind))[3] === 0) behind = behind.parentElement;
    const [a, b] = [light(getComputedStyle(element).color), light(seen(behind))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.className, element.textContent.slice(0, 20)];
})"""
"""The contrast of the text of elements, as WCAG 2 defines it."""


@contextmanager
def launched() -> Iterator[Any]:
    """A browser."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        yield browser
        browser.close()
