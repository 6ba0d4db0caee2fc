"""What the site does to pages before they are made: sessions are highlighted as sessions."""

from __future__ import annotations

import re
from typing import Any, Final

_SESSION: Final = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name the language of examples with prompts, whose output then is not a code, and is not copied."""
    return _SESSION.sub("```pycon\n", markdown)
