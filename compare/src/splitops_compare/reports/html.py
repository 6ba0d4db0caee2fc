"""Converts a report to one HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from splitops.errors import count_of
from splitops_compare.data import CaseResult, ComparisonReport, Verdict, VerdictKind
from splitops_compare.reports.diagrams import DiagramCache
from splitops_compare.reports.verdicts import (
    DISAGREEMENTS,
    GROUPS,
    MEANINGS,
    NO_RESULT,
    RULES,
    SOURCES,
    UNCONFIRMED,
    count_groups,
    describe_verdict,
    format_label,
    format_output,
    format_releases,
    get_group,
    make_spec_json,
)

_SENTENCES: Final[Mapping[VerdictKind, str]] = {
    VerdictKind.DIFFERS: "returns a wrong result",
    VerdictKind.CRASH: "crashes",
    VerdictKind.HANG: "does not respond",
    VerdictKind.MEMORY: "uses more memory than the limit",
    VerdictKind.REJECTS: "rejects a valid split",
    VerdictKind.WRONGLY_ACCEPTS: "runs an invalid split",
}
"""Phrase for each kind of disagreement at the top of the page, the worst kind first."""
_POLICY: Final = (
    "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'"
)


def to_html(report: ComparisonReport, version: str, home: str | None = None) -> str:
    """Convert a report to one HTML file.

    The file contains its style, script and diagrams. Its content security policy forbids other styles and
    scripts, and all requests. It is complete without JavaScript. Texts of the report are escaped.

    Args:
        report: the report.
        version: version of splitops-compare.
        home: URL of the site that contains the page, or None.
    """
    diagrams = DiagramCache()
    by_result = {
        id(result): diagrams.find_diagram(result.spec)
        for result in report.cases
        if result.valid and result.spec
    }
    style = (
        f":root {{ --columns: {len(report.implementations)} }}\n{_read('page.css')}{diagrams.make_style()}"
    )
    script = _read("page.js")
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        finalize=_escape_unprintable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": count_of,
        "describe": describe_verdict,
        "group": lambda value: get_group(value) if isinstance(value, Verdict | None) else value,
        "in_lines": _allow_line_breaks,
        "json": lambda spec: json.dumps(make_spec_json(spec)),
        "label": format_label,
        "output": format_output,
        "plain": _format_value,
        "query": lambda info: urlencode({"implementation": info.name}, errors="surrogatepass"),
        "releases": format_releases,
        "rule_text": lambda rule: RULES.get(rule, ""),
        "unfound": _iter_other_verdicts,
    }
    environment.tests["without_finding"] = _has_no_finding
    environment.globals |= {
        "anchor": make_anchor,
        "command": _format_command,
        "diagram_of": lambda result: by_result.get(id(result)),
        "sources": SOURCES,
    }
    return environment.get_template("page.html").render(
        _collect_facts(report),
        policy=Markup(_make_policy(style, script)),  # noqa: S704 - contains only digests
        style=Markup(style),  # noqa: S704 - contains only files of this package and encoded diagrams
        script=Markup(script),  # noqa: S704 - a file of this package
        version=version,
        home=home,
    )


def _make_policy(style: str, script: str) -> str:
    """Make the content security policy that allows only this style, this script, and images in data URLs."""
    digests = (hashlib.sha256(content.encode()).digest() for content in (style, script))
    return _POLICY.format(*(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))


def _collect_facts(report: ComparisonReport) -> dict[str, Any]:
    """Collect the variables of the template that depend only on the report."""
    findings: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    for result in report.cases:
        for info in report.implementations:
            findings[info.name, get_group(result.verdicts.get(info.name))].append(result)
    counts = count_groups(report)
    totals = {group: sum(counted[group] for counted in counts.values()) for group in GROUPS}
    return {
        "report": report,
        "infos": {info.name: info for info in report.implementations},
        "found": sum(not _has_no_finding(result) for result in report.cases),
        "tiles": {
            "findings": sum(totals[kind] for kind in DISAGREEMENTS),
            "wrong results": totals[VerdictKind.DIFFERS],
            "crashes": totals[VerdictKind.CRASH],
            "unconfirmed": totals[UNCONFIRMED],
            "agreements": totals[VerdictKind.AGREES],
        },
        "sentences": _SENTENCES,
        "findings": [
            (info, kind, results)
            for kind in _SENTENCES
            for info in report.implementations
            if (results := findings.get((info.name, kind.value)))
        ],
        "unconfirmed": [
            (info, results)
            for info in report.implementations
            if (results := findings.get((info.name, UNCONFIRMED)))
        ],
        "summaries": [(info, counts[info.name]) for info in report.implementations],
        "groups": list(GROUPS),
        "group_meanings": GROUPS,
        "operators": dict.fromkeys(result.operator for result in report.cases),
        "by_operator": [
            (operator, list(results))
            for operator, results in groupby(report.cases, lambda result: result.operator)
        ],
        "meanings": MEANINGS,
    }


def _escape_unprintable(value: object) -> object:
    """Escape unprintable characters of a text as in Python, except line feeds. Markup is not changed."""
    if hasattr(value, "__html__"):
        return value
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(value))


def _allow_line_breaks(name: str) -> Markup:
    """Allow line breaks after the underscores and hyphens of a name."""
    text = escape(_escape_unprintable(name))
    return text.replace("_", Markup("_<wbr>")).replace("-", Markup("-<wbr>"))


def make_anchor(case: str, name: str | None = None) -> str:
    """Make the anchor of a case, or of the finding of an implementation in it.

    Anchors of the page itself begin with a colon, which is quoted in the ids of cases.
    """
    anchor = quote(case, safe="/+=,", errors="surrogatepass")  # JSON may contain lone surrogates
    return anchor if name is None else f"{anchor}:{quote(name, safe='=,', errors='surrogatepass')}"


def _format_command(case: str, name: str) -> str:
    return f"splitops-compare {shlex.quote(name)} --repro {shlex.quote(case)} -o reproduction"


def _has_no_finding(result: CaseResult) -> bool:
    """Return whether no implementation has a confirmed disagreement in a case."""
    return all(get_group(verdict) not in DISAGREEMENTS for verdict in result.verdicts.values())


def _iter_other_verdicts(result: CaseResult) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of verdicts that are not confirmed findings, with a text for each implementation."""
    groups: dict[str, list[str]] = {UNCONFIRMED: [], VerdictKind.AGREES.value: [], NO_RESULT: []}
    for name, verdict in result.verdicts.items():
        group = get_group(verdict)
        if group == UNCONFIRMED:
            rerun = "" if verdict.was_repeated else ", not run again"
            groups[group].append(f"{name} ({verdict.unstable or describe_verdict(verdict)}{rerun})")
        elif group == NO_RESULT and not verdict.is_confirmed:
            groups[group].append(f"{name} ({verdict.detail or MEANINGS[verdict.kind]})")
        elif group == VerdictKind.AGREES:
            groups[group].append(f"{name} ({verdict.unstable})" if verdict.unstable else name)
    yield from ((group, lines) for group, lines in groups.items() if lines)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value))
    return str(value)


def _read(name: str) -> str:
    """Read a file from the folder ``page`` of this package."""
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")
