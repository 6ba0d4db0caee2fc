"""What the site adds to its pages: two large pages, narrow pictures on phones, and ranks for the search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import generate_compare
import generate_sizes
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_SESSION: Final = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_PICTURE: Final = re.compile(r'<img [^>]*src="((?:\.\./)*)(pictures/[\w-]+)\.svg"[^>]*>')
_INTERNAL: Final = ("compare/*.md", "reports/*.md", "coverage.md", "fuzzing.md", "mutants.md", "soak.md")
_SEARCH: Final[Mapping[str, Mapping[str, Any]]] = {
    **{pattern: {"exclude": True} for pattern in _INTERNAL},
    "api/*.md": {"boost": 0.2},
    "errors.md": {"boost": 1.5},
    "runtime-errors.md": {"boost": 0.8},
}
"""What the search makes of pages, by their files. It skips those for who works on splitops or on a runtime.
Names and messages repeat the words of the field, so they rank below a guide that has them in its title."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make the pages that are too large for the repository."""
    files.append(File.generated(config, "compare/page.html", content=generate_compare.whole()))
    files.append(File.generated(config, "explain.html", content=generate_sizes.interactive()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rank a page for the search, and name the language of sessions, whose output then is not copied."""
    rank = next((rank for pattern, rank in _SEARCH.items() if fnmatchcase(page.file.src_uri, pattern)), None)
    if rank is not None:
        page.meta["search"] = rank
    return _SESSION.sub("```pycon\n", markdown)


def on_page_content(html: str, *, files: Files, **_: Any) -> str:
    """Show the narrow variant of a picture on a phone, where there is one."""

    def widened(found: re.Match[str]) -> str:
        narrow = f"{found[2]}.narrow.svg"
        if files.get_file_from_path(narrow) is None:
            return found[0]
        return f'<picture><source media="(max-width: 600px)" srcset="{found[1]}{narrow}">{found[0]}</picture>'

    return _PICTURE.sub(widened, html)
