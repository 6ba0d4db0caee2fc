"""A report as one HTML file that asks nobody for anything."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

from splitops.comparison.records import CompareError, Entry, Report, Word
from splitops.comparison.reports.pictures import Pictures
from splitops.comparison.reports.verdicts import (
    DISAGREEMENTS,
    MEANINGS,
    RULES,
    SOURCES,
    UNCONFIRMED,
    counts,
    described,
    releases,
    spoken,
    stated,
    without_result,
    written,
)
from splitops.errors import count_of
from splitops.explain.pages import make_policy, read_page_file


def require_jinja() -> None:
    """Check that pages can be written, before any implementation is asked."""
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise CompareError("a page of a comparison needs Jinja2: pip install 'splitops[compare]'") from error


def to_html(report: Report, version: str, home: str | None = None) -> str:
    """Write a report as one HTML file.

    It has its style, its script and its pictures in it, and allows no others by its content security policy.
    It is complete without JavaScript, and shows the report's texts as text. ``home`` is the site around it.
    """
    require_jinja()
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    pictures = Pictures()
    pictured = {
        id(entry): pictures.of(entry.record) for entry in report.entries if entry.valid and entry.record
    }
    style = f":root {{ --peers: {len(report.peers)} }}\n{_file('page.css')}{pictures.style()}"
    script = _file("page.js")
    page = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    broken = {sign: Markup(f"{sign}<wbr>") for sign in "_-"}  # noqa: S704 - ours
    page.filters |= {
        "class": _class_of,
        "count": count_of,
        "described": described,
        "in_lines": lambda name: escape(_printable(name)).replace("_", broken["_"]).replace("-", broken["-"]),
        "loose": _loose,
        "plain": _plain,
        "query": lambda peer: urlencode({"peer": peer.name}, errors="surrogatepass"),
        "releases": releases,
        "rule_text": lambda rule: RULES.get(rule, ""),
        "spoken": spoken,
        "saying": lambda entry, word: [name for name, one in entry.verdicts.items() if one.word is word],
        "stated": lambda record: json.dumps(stated(record)),
        "written": written,
    }
    page.tests["agreed"] = _agreed
    page.globals |= {
        "anchor": anchor,
        "command": _command,
        "picture_of": lambda entry: pictured.get(id(entry)),
        "sources": SOURCES,
    }
    return page.get_template("page.html").render(
        _facts(report),
        policy=Markup(make_policy(style, script=script)),  # noqa: S704 - ours
        style=Markup(style),  # noqa: S704 - ours, and pictures as addresses of data
        script=Markup(script),  # noqa: S704 - ours
        version=version,
        home=home,
    )


def _facts(report: Report) -> dict[str, Any]:
    """Return what the page shows of a report, besides the report."""
    told = [(entry, peer.name, verdict.word) for entry, peer, verdict in report.findings]
    found = [word for _, _, word in told]
    numbers = counts(report)
    used = Counter(verdict.word for entry in report.entries for verdict in entry.verdicts.values())
    return {
        "report": report,
        "peers": {peer.name: peer for peer in report.peers},
        "found": len({entry.id for entry, _, _ in told}),
        "tiles": {
            "answers that agree": used[Word.AGREES],
            "disagreements": len(found),
            "of them wrong values": found.count(Word.DIFFERS),
            "of them crashes": found.count(Word.CRASH),
        },
        "summaries": [(peer, numbers[peer.name]) for peer in report.peers],
        "columns": (Word.AGREES, *DISAGREEMENTS, UNCONFIRMED),
        "without_result": without_result,
        "operators": dict.fromkeys(entry.operator for entry in report.entries),
        "words": [word for word in MEANINGS if used[word]],
        "groups": [(key, list(rows)) for key, rows in groupby(report.entries, lambda one: one.operator)],
        "meanings": MEANINGS,
        "worst": [
            (peer, word, entries)
            for word in (Word.DIFFERS, Word.CRASH)
            for peer in report.peers
            if (entries := [entry for entry, *said in told if said == [peer.name, word]])
        ],
        "quiet": (Word.AGREES, Word.NO_RESULT, Word.NOT_APPLICABLE),
    }


def _printable(value: object) -> object:
    """Return a text as it can be shown: what cannot be printed as Python escapes it."""
    if hasattr(value, "__html__"):
        return value
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(value))


def anchor(case: str, peer: str | None = None) -> str:
    """Return the name of a case's or a finding's place, which its permalink ends with.

    Places of the page itself begin with a colon, which no case has unquoted.
    """
    place = quote(case, safe="/+=,", errors="surrogatepass")  # JSON declares lone surrogates
    return place if peer is None else f"{place}:{quote(peer, safe='=,', errors='surrogatepass')}"


def _class_of(word: str) -> str:
    """Return the class that has the colour and the shape of a verdict."""
    return "na" if word == Word.NOT_APPLICABLE else str(word)


def _command(case: str, peer: str) -> str:
    return f"splitops compare {shlex.quote(peer)} --repro {shlex.quote(case)} -o reproduction"


def _agreed(entry: Entry) -> bool:
    """Whether no implementation disagrees about a case."""
    return not any(verdict.counts for verdict in entry.verdicts.values())


def _loose(entry: Entry) -> list[str]:
    """Return who did something that was not confirmed, and what."""
    return [
        f"{name} ({one.unstable or described(one)}{'' if one.is_asked_again else ', not asked again'})"
        for name, one in entry.verdicts.items()
        if one.unstable or one.is_unsure
    ]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value)


def _file(name: str) -> str:
    return read_page_file("splitops.comparison.reports", name)
