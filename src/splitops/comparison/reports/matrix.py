"""The tables of the page: the peers, the matrix of cases and peers, what filters it, what its words mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from urllib.parse import urlencode

from splitops.comparison.records import Entry, Peer, Report, State, Verdict, Word
from splitops.comparison.reports.fragments import anchor, class_of, mark, text, unconfirmed
from splitops.comparison.reports.verdicts import DISAGREEMENTS, MEANINGS, counts, releases
from splitops.errors import count_of


def peers_table(report: Report) -> str:
    """Return the summary of each peer."""
    counted_words = counts(report)
    heads = "".join(f'<th scope=col class="n">{text(word)}' for word in (Word.AGREES, *DISAGREEMENTS))
    asked = Counter(name for entry in report.entries for name in entry.verdicts)
    rows = "".join(_peer(peer, counted_words[peer.name], asked[peer.name]) for peer in report.peers)
    return (
        '<div class="scroll" tabindex=0 role=region aria-label="The peers"><table class="peers"><thead><tr>'
        f"<th scope=col>Peer<th scope=col>Releases<th scope=col>Kind<th scope=col>Of all cases{heads}"
        f'<th scope=col class="n">says nothing</thead><tbody>{rows}</tbody></table></div>'
    )


def _peer(peer: Peer, words: Counter[Word], asked: int) -> str:
    notes = [peer.kind]
    if peer.state is not State.OK:
        notes.append(f"{peer.state}: {peer.detail}")
    if peer.network:
        notes.append("network within reach")
    numbers = "".join(
        f'<td class="n">{words[word]:,}' if words[word] else '<td class="n faint">0'
        for word in (Word.AGREES, *DISAGREEMENTS)
    )
    nothing = asked - sum(words[word] for word in (Word.AGREES, *DISAGREEMENTS))
    return (
        f'<tr><th scope=row><a href="#?{_query(peer.name)}">{text(peer.name)}</a>'
        f'<td class="v">{text(releases(peer))}<td class="faint">{text("; ".join(notes))}'
        f'<td>{_bar(words, asked)}{numbers}<td class="n faint">{nothing:,}'
    )


def _bar(words: Counter[Word], total: int) -> str:
    """Draw the shares of the words; the numbers beside it say the same."""
    shapes, x = [], 0
    for word in MEANINGS:
        if words[word]:
            shapes.append(f'<rect class="{class_of(word)}" x="{x}" width="{words[word]}" height="1" />')
            x += words[word]
    return (
        f'<svg class="bar" viewBox="0 0 {total or 1} 1" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(shapes)}</svg>"
    )


def _query(peer: str) -> str:
    return text(urlencode({"peer": peer}, errors="surrogatepass"))


def matrix(report: Report) -> str:
    """Return the table of cases and peers."""
    heads = "".join(
        f'<th scope=col data-peer="{text(peer.name)}">{_in_lines(peer.name)}' for peer in report.peers
    )
    names = [peer.name for peer in report.peers]
    groups = groupby(report.entries, lambda entry: entry.operator)
    bodies = "".join(_group(operator, list(entries), names) for operator, entries in groups)
    return (
        '<div class="scroll frame" tabindex=0 role=region aria-label="The matrix of cases and peers">'
        '<table class="matrix"><caption class="hidden">What each peer makes of each case</caption>'
        f"<colgroup><col>{'<col>' * len(names)}</colgroup>"
        f"<thead><tr><th scope=col>Case{heads}</thead>{bodies}</table></div>"
    )


def _group(operator: str, entries: list[Entry], peers: list[str]) -> str:
    rows = "".join(_row(entry, peers) for entry in entries)
    name, width = text(operator), len(peers) + 1
    head = f'<tr><th scope=rowgroup class="op" colspan="{width}"><span>{name}</span>'
    return f'<tbody data-operator="{name}">{head}{rows}</tbody>'


def _row(entry: Entry, peers: list[str]) -> str:
    place = anchor(entry.id)
    cells = "".join(_cell(entry, name, entry.verdicts.get(name)) for name in peers)
    return (
        f'<tr data-case="{place}"><th scope=row><a class="id" href="#{place}" title="{text(entry.title)}">'
        f"{text(entry.id.partition('/')[2] or entry.id)}</a>{cells}"
    )


def _cell(entry: Entry, peer: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return "<td class=na>not asked"
    if unconfirmed(verdict):
        return "<td class=na>unconfirmed"
    words = f"<td class={class_of(verdict.word)}>"
    if not verdict.counts:
        return words + verdict.word
    return f'{words}<a href="#{anchor(entry.id, peer)}">{verdict.word}</a>'


def filters(report: Report) -> dict[str, str]:
    """Return what the form that filters the matrix chooses from, by its place in the page."""
    operators = dict.fromkeys(entry.operator for entry in report.entries)
    used = Counter(verdict.word for entry in report.entries for verdict in entry.verdicts.values())
    words = ((class_of(word), mark(word, word)) for word in MEANINGS if used[word])
    return {
        "operators": "".join(f'<option value="{text(one)}">{text(one)}' for one in operators),
        "peer_boxes": _boxes("peer", ((peer.name, text(peer.name)) for peer in report.peers)),
        "verdict_boxes": _boxes("verdict", words),
        "status": f"{count_of(len(report.entries), 'case')}, {count_of(len(report.peers), 'peer')}",
    }


def _boxes(name: str, choices: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f'<label><input type="checkbox" name="{name}" value="{text(value)}">{label}</label>'
        for value, label in choices
    )


def legend() -> str:
    """Return what the words mean."""
    rows = (f"<div><dt>{mark(word, word)}</dt><dd>{text(MEANINGS[word])}</dd></div>" for word in MEANINGS)
    return f'<dl class="legend">{"".join(rows)}</dl>'


def _in_lines(name: str) -> str:
    """Write a name that may go on in the next line behind its words."""
    return text(name).replace("_", "_<wbr>").replace("-", "-<wbr>")
