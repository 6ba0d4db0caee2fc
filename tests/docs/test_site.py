"""Every link in the site leads somewhere, every image has a text, and nothing is asked of another host."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


class Page(HTMLParser):
    """What a page has to link to, and what it links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.undescribed: list[str] = []
        self.feed(text)

    def has(self, fragment: str) -> bool:
        """Whether a browser finds it; a script reads what begins with a question mark."""
        return fragment[:1] in ("", "?") or not self.anchors.isdisjoint((fragment, unquote(fragment)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors.update(attributes[name] for name in ("id", "name") if name in attributes)
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        if tag == "link" and attributes.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.add(attributes["href"])
        if "src" in attributes:
            self.loaded.add(attributes["src"])
        if tag == "img" and not attributes.get("alt"):
            self.undescribed.append(attributes["src"])


def broken(site: Path) -> list[str]:
    """Return what leads nowhere in a folder of pages: links, anchors, images without a text."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    root = site.resolve()
    return [f"{path.relative_to(root)}: {fault}" for path in pages for fault in _faults(root, path, pages)]


def _faults(root: Path, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page = pages[path]
    yield from (f"no text beside {name}" for name in page.undescribed)
    for link in sorted(page.links | page.loaded):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in page.loaded and parts.scheme != "data":
                yield f"loads {link} from elsewhere"
            continue
        folder = root if parts.path.startswith("/") else path.parent
        target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            yield f"{link} does not exist"
        elif target in pages and not pages[target].has(parts.fragment):
            yield f"{link} is no anchor there"


def test_every_link_leads_somewhere(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert broken(site) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('<a href="other.html">', "other.html does not exist"),
        ('<a href="#there">', "#there is no anchor there"),
        ('<a href="page.html#there">', "page.html#there is no anchor there"),
        ('<img src="page.html">', "no text beside page.html"),
        ('<img src="picture.svg" alt="A picture">', "picture.svg does not exist"),
        ('<script src="https://example.org/x.js">', "loads https://example.org/x.js from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "loads //example.org/x.css from elsewhere"),
    ],
)
def test_a_broken_page_is_seen(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "page.html").write_text(f'<h1 id="here"></h1><a href="#here"></a>{line}')
    assert broken(tmp_path) == [f"page.html: {fault}"]
