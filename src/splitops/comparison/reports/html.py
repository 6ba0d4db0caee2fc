"""A report as one HTML file that asks nobody for anything."""

from __future__ import annotations

from splitops.comparison.records import Report, Word
from splitops.comparison.reports.fragments import terms, text
from splitops.comparison.reports.matrix import filters, legend, matrix, peers_table
from splitops.comparison.reports.pictures import Pictures
from splitops.comparison.reports.sections import sections
from splitops.errors import count_of
from splitops.explain.pages import fill, page_file


def to_html(report: Report, version: str) -> str:
    """Write a report as one HTML file.

    It has its style, its script and its pictures in it, and allows no others by its content security policy.
    It is complete without JavaScript, which adds the filters and the keys.

    Args:
        report: the report. Whatever its texts hold is shown as text.
        version: the version of splitops that made it.
    """
    pictures = Pictures()
    cases = sections(report, pictures)
    return fill(
        _file("page.html"),
        style=f":root {{ --peers: {len(report.peers)} }}\n{_file('page.css')}{pictures.style()}",
        script=_file("page.js"),
        version=text(version),
        title=f"{count_of(len(report.peers), 'peer')} and {count_of(len(report.entries), 'split')}",
        lead=_lead(report),
        tiles=_tiles(report),
        peers=peers_table(report),
        **filters(report),
        matrix=matrix(report),
        legend=legend(),
        cases=cases,
        environment=terms(report.environment),
    )


def _lead(report: Report) -> str:
    found = len({entry.id for entry, _, _ in report.findings})
    return (
        "What runtimes, compilers, converters and simplifiers make of the split operators of ONNX and "
        f"OpenVINO, beside what the specifications say. {count_of(found, 'case')} of {len(report.entries):,} "
        f"{'has' if found == 1 else 'have'} a disagreement that was confirmed alone."
    )


def _tiles(report: Report) -> str:
    found = [verdict.word for _, _, verdict in report.findings]
    agreed = sum(
        verdict.word is Word.AGREES for entry in report.entries for verdict in entry.verdicts.values()
    )
    numbers = {
        "answers that agree": agreed,
        "disagreements": len(found),
        "of them wrong values": found.count(Word.DIFFERS),
        "of them crashes": found.count(Word.CRASH),
    }
    tiles = "".join(f"<li><b>{number:,}</b>{text(name)}</li>" for name, number in numbers.items())
    return f'<ul class="tiles">{tiles}</ul>'


def _file(name: str) -> str:
    return page_file("splitops.comparison.reports", name)
