"""The cases of the page: for each the rule, the picture, what is expected, and what each peer gives."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from splitops.comparison.records import Entry, Peer, Record, Report, Verdict, Word
from splitops.comparison.reports.fragments import anchor, link, mark, text, unconfirmed
from splitops.comparison.reports.pictures import Pictures
from splitops.comparison.reports.rule_texts import rule_text, source_of
from splitops.comparison.reports.verdicts import MEANINGS, described, releases, stated, written

_QUIET: Final = (Word.AGREES, Word.DEAD, Word.NOT_APPLICABLE)


def sections(report: Report, pictures: Pictures) -> str:
    """Return a section for each case; the pictures that they need are drawn."""
    peers = {peer.name: peer for peer in report.peers}
    return "".join(_section(entry, peers, pictures) for entry in report.entries)


def _section(entry: Entry, peers: Mapping[str, Peer], pictures: Pictures) -> str:
    place = anchor(entry.id)
    cards = [_expected(entry)]
    cards += [
        _finding(entry, peers[name], verdict)
        for name, verdict in entry.verdicts.items()
        if verdict.counts and name in peers
    ]
    return (
        f'<article class="case" id="{place}"><h3><a href="#{place}">{text(entry.title)}</a></h3>'
        f'<p class="faint"><code>{text(entry.id)}</code></p>{_rule(entry)}{_picture(entry, pictures)}'
        f'<div class="cards">{"".join(cards)}</div>{_quiet(entry)}{_record("The case as data", entry.record)}'
        "</article>\n"
    )


def _rule(entry: Entry) -> str:
    source = source_of(entry.operator)
    where = f" ({link(source, f'{entry.operator} in its specification')})" if source else ""
    what = "valid" if entry.valid else "invalid"
    rule = f"<b>{text(entry.rule)}</b>: {text(rule_text(entry.rule))}"
    return f"<p>{text(entry.operator)}, {what}. Rule {rule}{where}</p>"


def _picture(entry: Entry, pictures: Pictures) -> str:
    found = pictures.of(entry.record) if entry.valid and entry.record is not None else None
    return (
        ""
        if found is None
        else f'<div class="picture {found[0]}" role="img" aria-label="{text(found[1])}"></div>'
    )


def _expected(entry: Entry) -> str:
    if isinstance(entry.expected, str):
        body = f"<p>An error: <b>{text(entry.expected)}</b>. {text(rule_text(entry.expected))}</p>"
    else:
        body = _parts(entry.expected)
    control = ""
    if entry.control is not None:
        control = (
            f'<p class="faint">Control: <a href="#{anchor(entry.control)}">{text(entry.control)}</a></p>'
        )
    return f'<div class="card"><header><h4>Expected</h4></header>{body}{control}</div>'


def _finding(entry: Entry, peer: Peer, verdict: Verdict) -> str:
    place = anchor(entry.id, peer.name)
    versions = [releases(peer), *(f"{name} = {value}" for name, value in peer.setting.items())]
    stage = f"{verdict.stage}: " if verdict.stage else ""
    lines = [
        f"<p>{text(stage + (verdict.detail or MEANINGS[verdict.word]))}</p>",
        _parts(verdict.got, () if isinstance(entry.expected, str) else entry.expected),
        f'<p class="faint">{text(", ".join(versions))}; seen again in '
        f"{verdict.confirmed} fresh processes</p>",
    ]
    if verdict.limit:
        lines.append(f"<p>splitops check: <code>{text(verdict.limit)}</code></p>")
    if verdict.known:
        lines.append(f"<p>{link(verdict.known, 'Reported upstream')}</p>")
    lines.append(_record("The smallest case that does the same", verdict.shrunk))
    lines.append(_reproduction(entry.id, peer.name))
    return (
        f'<section class="card finding" id="{place}"><header>'
        f'<h4><a href="#{place}">{text(peer.name)}</a></h4>{mark(verdict.word, described(verdict))}</header>'
        f"{''.join(lines)}</section>"
    )


def _reproduction(case: str, peer: str) -> str:
    command = f"splitops compare --repro {shlex.quote(case)} {shlex.quote(peer)} -o reproduction"
    return (
        f'<div class="copy"><code>{text(command)}</code>'
        f'<button type="button" aria-label="Copy the command for {text(peer)}">Copy</button></div>'
    )


def _parts(parts: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]] | None = None) -> str:
    """List outputs; those that are not the expected ones are underlined."""
    wanted = None if expected is None else list(expected)
    items = []
    for index, part in enumerate(parts):
        wrong = wanted is not None and (index >= len(wanted) or wanted[index] != part)
        items.append(f"<li{' class=wrong' if wrong else ''}>{text(written(part))}")
    return f'<ol class="parts">{"".join(items)}</ol>' if items else ""


def _quiet(entry: Entry) -> str:
    """Say who agrees and who says nothing, in a line each."""
    lines = []
    for word in _QUIET:
        names = [name for name, verdict in entry.verdicts.items() if verdict.word is word]
        if names:
            lines.append(f"<p>{mark(word, word)} {text(', '.join(names))}</p>")
    seen = [
        f"{name} ({verdict.unstable or described(verdict)})"
        for name, verdict in entry.verdicts.items()
        if verdict.unstable or unconfirmed(verdict)
    ]
    if seen:
        lines.append(f"<p>{mark(Word.NOT_APPLICABLE, 'unconfirmed')} {text(', '.join(seen))}</p>")
    return "".join(lines)


def _record(title: str, record: Record | None) -> str:
    if record is None:
        return ""
    return f"<details><summary>{text(title)}</summary><pre>{text(json.dumps(stated(record)))}</pre></details>"
