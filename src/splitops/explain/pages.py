"""HTML pages in a single file that load nothing, with a content security policy."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template
from typing import Final

_POLICY: Final = (
    "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'"
)


def read_page_file(package: str, name: str) -> str:
    """Read a file from the folder ``page`` of a package."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def fill(template: str, *, style: str, script: str, pictures: str = "", **texts: str) -> str:
    """Fill a template, with the content security policy of :func:`make_policy`.

    The template has the placeholders ``$policy``, ``$style``, ``$script`` and the names of ``texts``. The
    ``texts`` are HTML: the caller must escape untrusted text in them. ``pictures`` is the style of the SVG
    diagrams that they contain.
    """
    allowed = make_policy(*filter(None, (style, pictures)), script=script)
    return Template(template).substitute(texts, policy=allowed, style=style, script=script)


def make_policy(*styles: str, script: str) -> str:
    """Return a content security policy that allows only these styles, this script and ``data:`` images."""
    return _POLICY.format(" ".join(map(_hash, styles)), _hash(script))


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
