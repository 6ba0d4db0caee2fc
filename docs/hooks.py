"""What the site adds to its pages: two pages of one file each, and narrow pictures on phones."""

from __future__ import annotations

import re
from typing import Any, Final

import generate_compare
import generate_sizes
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_SESSION: Final = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_PICTURE: Final = re.compile(r'<img [^>]*src="((?:\.\./)*)(pictures/[\w-]+)\.svg"[^>]*>')


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make the pages that are too large for the repository."""
    files.append(File.generated(config, "compare/page.html", content=generate_compare.whole()))
    files.append(File.generated(config, "explain.html", content=generate_sizes.interactive()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name the language of examples with prompts, whose output then is not a code, and is not copied."""
    return _SESSION.sub("```pycon\n", markdown)


def on_page_content(html: str, *, files: Files, **_: Any) -> str:
    """Show the narrow variant of a picture on a phone, where there is one."""

    def widened(found: re.Match[str]) -> str:
        narrow = f"{found[2]}.narrow.svg"
        if files.get_file_from_path(narrow) is None:
            return found[0]
        return f'<picture><source media="(max-width: 600px)" srcset="{found[1]}{narrow}">{found[0]}</picture>'

    return _PICTURE.sub(widened, html)
