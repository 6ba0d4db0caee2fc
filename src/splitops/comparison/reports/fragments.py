"""Pieces of HTML: text that no report can abuse, addresses inside the page, marks of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from splitops.comparison.records import FINDINGS, Verdict, Word


def text(value: object) -> str:
    """Escape a text for HTML; what cannot be printed is shown as Python escapes it."""
    return escape("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(value)))


def anchor(case: str, peer: str | None = None) -> str:
    """Return the name of a case's or a finding's place, which its permalink ends with.

    Places of the page itself begin with a colon, which no case has unquoted.
    """
    place = quote(case, safe="/+=,", errors="surrogatepass")  # JSON states lone surrogates
    return place if peer is None else f"{place}:{quote(peer, safe='=,', errors='surrogatepass')}"


def class_of(word: Word) -> str:
    """Return the class that has the colour and the shape of a verdict."""
    return "na" if word is Word.NOT_APPLICABLE else word.value


def mark(word: Word, words: str) -> str:
    """Write a verdict with its colour and shape."""
    return f'<span class="mark {class_of(word)}">{text(words)}</span>'


def unconfirmed(verdict: Verdict) -> bool:
    """Whether a verdict would be a finding, had it been seen again."""
    return verdict.word in FINDINGS and not verdict.counts


def link(address: str, words: str) -> str:
    """Write a link to a page elsewhere; what is no web address stays text."""
    if not address.startswith(("https://", "http://")):
        return text(words)
    return f'<a href="{text(address)}" rel="noreferrer">{text(words)}</a>'


def terms(pairs: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Write names and values as a list of terms."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(_plain(value))}</dd>" for name, value in items)
    return f"<dl>{rows}</dl>"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value)
