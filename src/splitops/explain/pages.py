"""Pages of one file, which ask nobody for anything and let nothing else run."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template
from typing import Final

_POLICY: Final = (
    "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'"
)


def page_file(package: str, name: str) -> str:
    """Return a file of the folder ``page`` of a package."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def fill(template: str, *, style: str, script: str, pictures: str = "", **texts: str) -> str:
    """Fill a template whose content security policy allows its own styles and script alone.

    The template has the placeholders ``$policy``, ``$style``, ``$script`` and the names of the texts,
    which are HTML: whatever comes from outside is escaped already. ``pictures`` is the style that
    pictures in them bring along.
    """
    allowed = policy(*filter(None, (style, pictures)), script=script)
    return Template(template).substitute(texts, policy=allowed, style=style, script=script)


def policy(*styles: str, script: str) -> str:
    """Return the content security policy that allows these styles and this script alone."""
    return _POLICY.format(" ".join(map(_hash, styles)), _hash(script))


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
