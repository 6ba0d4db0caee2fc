"""Adds to the site: the pages of splitops-compare, two large pages, narrow pictures and search ranks."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file outside its package
from dev.pages import compare, sizes  # noqa: E402

_SESSION: Final = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_TO_COMPARE: Final = re.compile(r"\]\(\.\./((?:\.\./)*compare/docs/)")
_TO_DOCS: Final = re.compile(r"\]\(((?:\.\./)+)docs/")
_PICTURE: Final = re.compile(r'<img [^>]*src="((?:\.\./)*)(pictures/[\w-]+)\.svg"[^>]*>')
_INTERNAL: Final = ("compare/docs/*/*.md", "coverage.md", "fuzzing.md", "mutants.md", "soak.md")
_SEARCH: Final[Mapping[str, Mapping[str, Any]]] = {
    **{pattern: {"exclude": True} for pattern in _INTERNAL},
    "api/*.md": {"boost": 0.2},
    "errors.md": {"boost": 1.5},
    "runtime-errors.md": {"boost": 0.8},
}
"""What the search makes of pages, by their files. It skips those for who works on splitops or on a runtime.
Names and messages repeat the words of the field, so they rank below a guide that has them in its title."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of splitops-compare, and those that are too large for the repository."""
    for path in sorted((ROOT / "compare" / "docs").rglob("*.*")):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
    files.append(File.generated(config, "compare/docs/page.html", content=compare.whole()))
    files.append(File.generated(config, "explain.html", content=sizes.interactive()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rank a page for the search, mark sessions, whose output is not copied, and adapt links.

    In the repository, pages of splitops link to ``../compare/docs`` and those of splitops-compare to
    ``docs``. The root of the site is ``docs``.
    """
    rank = next((rank for pattern, rank in _SEARCH.items() if fnmatchcase(page.file.src_uri, pattern)), None)
    if rank is not None:
        page.meta["search"] = rank
    if page.file.src_uri.startswith("compare/"):
        markdown = _TO_DOCS.sub(r"](\1", markdown)
    else:
        markdown = _TO_COMPARE.sub(r"](\1", markdown)
    return _SESSION.sub("```pycon\n", markdown)


def on_page_content(html: str, *, page: Page, files: Files, **_: Any) -> str:
    """Show the narrow variant of a picture on a phone, where there is one."""

    def widened(found: re.Match[str]) -> str:
        narrow = f"{found[2]}.narrow.svg"
        folder = posixpath.dirname(page.file.src_uri)
        if files.get_file_from_path(posixpath.normpath(posixpath.join(folder, found[1] + narrow))) is None:
            return found[0]
        return f'<picture><source media="(max-width: 600px)" srcset="{found[1]}{narrow}">{found[0]}</picture>'

    return _PICTURE.sub(widened, html)
