"""The search of the site, with the theme's own code under Node.js: it finds what a person means first."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from splitops.models.check.messages import list_messages

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
PAGES = {
    "tensor parallel": "sharding.html",
    "tensor-parallel": "sharding.html",
    "split sizes": "sizes.html",
    "mypy": "install.html",
    "lengths.sum": "errors.html",
    "ceil-negative-part": "runtime-errors.html",
    "SplitToSequence TensorRT": "runtime-errors.html",
    "checkpoint": "sharding.html",
    "variadic_split": "api/operators.html",
}
"""What a person types, and the page that comes first."""
INTERNAL = ("compare/docs/implementations/", "compare/docs/reports/")
INTERNAL += ("coverage.html", "fuzzing.html", "mutants.html", "soak.html")


def search(site: Path, queries: list[str]) -> list[list[list[str]]]:
    """Return the places that are found, page by page, for each query."""
    assert NODE is not None
    script = Path(__file__).with_name("search.mjs")
    done = subprocess.run(
        [NODE, str(script), str(site)], input=json.dumps(queries), capture_output=True, text=True, check=True
    )
    found: list[list[list[str]]] = json.loads(done.stdout)
    return found


def test_the_page_that_a_person_means_comes_first(site: Path) -> None:
    found = dict(zip(PAGES, search(site, list(PAGES)), strict=True))
    assert {query: pages[0][0].partition("#")[0] for query, pages in found.items()} == PAGES


def test_each_message_finds_the_page_of_messages_first(site: Path) -> None:
    texts = [message.text for message in list_messages()]
    found = dict(zip(texts, search(site, texts), strict=True))
    first = {text: pages[0][0] if pages else "" for text, pages in found.items()}
    assert {text: place for text, place in first.items() if not place.startswith("runtime-errors.html")} == {}


def test_the_page_has_each_message_word_for_word(site: Path) -> None:
    page = (site / "runtime-errors.html").read_text()
    assert {message.anchor for message in list_messages() if f'id="{message.anchor}"' not in page} == set()
    index = json.loads((site / "search/search_index.json").read_text())
    titles = {one["location"]: one["title"] for one in index["docs"]}
    for message in list_messages():
        title = re.sub("</?code>", "", titles[f"runtime-errors.html#{message.anchor}"])
        assert "".join(title.split()) == "".join(escaped(message.text).split())


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_pages_for_who_works_on_splitops_are_not_found(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    places = [one["location"] for one in index["docs"]]
    assert len(places) > 300
    assert [place for place in places if place.startswith(INTERNAL)] == []
