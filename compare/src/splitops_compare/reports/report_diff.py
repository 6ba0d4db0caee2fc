"""Reads reports and expectations, and compares a report with them. Their files are not trusted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from splitops.errors import ModelError, one_line, shown, shown_path
from splitops.extension import parse_toml, read_bounded, read_values
from splitops_compare.data import CompareError, ComparisonReport, State, Verdict, VerdictKind
from splitops_compare.protocol import check_document, parse_report
from splitops_compare.reports.verdicts import describe_verdict, format_releases

_MAX_BYTES: Final = 1 << 28
"""Maximum size of a file. A report has some kilobytes for each case."""


def read_report(path: Path) -> ComparisonReport:
    """Read the JSON that ``splitops-compare --json`` printed."""
    return parse_report(_read(path), f"{shown_path(path)} is")


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, limit=_MAX_BYTES)
    except ModelError as error:
        raise CompareError(error.message) from error


def compare_reports(old: ComparisonReport, new: ComparisonReport) -> dict[str, list[str]]:
    """Return lines about findings, keyed "new", "resolved" and "changed", and about changed "releases".

    Cases that are not in the new report are ignored. A finding is resolved if the new verdict is agreement.
    """
    before, now = _map_verdicts(old), _map_verdicts(new)
    old_findings = {key: verdict for key, verdict in before.items() if verdict.is_confirmed}
    findings = {key: verdict for key, verdict in now.items() if verdict.is_confirmed}
    keys = {
        "new": [key for key in findings if key not in old_findings],
        "resolved": [key for key in old_findings if key in now and now[key].kind is VerdictKind.AGREES],
        "changed": [
            key
            for key in findings
            if key in old_findings and findings[key].identity != old_findings[key].identity
        ],
    }
    lines = {
        heading: [_format_change(key, before.get(key), now[key]) for key in chosen]
        for heading, chosen in keys.items()
    }
    old_releases, releases = (
        {info.name: format_releases(info) for info in report.implementations} for report in (old, new)
    )
    changed = [name for name in releases if name in old_releases and old_releases[name] != releases[name]]
    return lines | {"releases": [f"{name}: {old_releases[name]} -> {releases[name]}" for name in changed]}


def _format_change(key: tuple[str, str], old: Verdict | None, new: Verdict) -> str:
    before = "did not run" if old is None else describe_verdict(old)
    return f"{' '.join(key)}: {before} -> {describe_verdict(new)}"


def _map_verdicts(report: ComparisonReport) -> dict[tuple[str, str], Verdict]:
    """Map the id of a case and the name of an implementation to the verdict."""
    return {
        (result.id, name): verdict for result in report.cases for name, verdict in result.verdicts.items()
    }


@dataclass(frozen=True, slots=True)
class Expectation:
    """A known finding. Case and implementation may be patterns with ``*`` and ``?``."""

    case: str
    implementation: str
    verdict: VerdictKind
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case} {self.implementation}: {self.verdict}"

    def matches(self, case: str, implementation: str) -> bool:
        """Return whether the patterns match a case and an implementation."""
        return _is_match(case, self.case) and _is_match(implementation, self.implementation)


@dataclass(frozen=True, slots=True)
class Unexpected:
    """The differences between a report and the expectations.

    Attributes:
        new: findings that were not expected.
        resolved: expected findings that did not appear, although their cases ran.
        missing: names of implementations that are not installed, did not start, or fail every valid case.
    """

    new: tuple[str, ...]
    resolved: tuple[Expectation, ...]
    missing: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 if there are no differences, 3 if an implementation is missing, otherwise 1."""
        return 3 if self.missing else int(bool(self.new or self.resolved))


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read the tables ``[[expected]]`` of a ``.toml`` file, or the findings of a report in ``.json``."""
    if path.suffix == ".json":
        return make_expectations(read_report(path))
    content = _read(path)
    try:
        document = parse_toml(content)
    except ValueError as error:
        raise CompareError(f"{shown_path(path)} is not TOML: {one_line(str(error), 200)}") from error
    check_document(document, "list of expectations", f"{shown_path(path)} is")
    return tuple(read_values(Expectation, table) for table in document["expected"])


def make_expectations(report: ComparisonReport) -> tuple[Expectation, ...]:
    """Make an expectation from each finding of a report."""
    return tuple(Expectation(result.id, info.name, verdict.kind) for result, info, verdict in report.findings)


def find_unexpected(
    report: ComparisonReport, expected: Collection[Expectation], cases: Collection[str] = ()
) -> Unexpected:
    """Compare a report with expectations.

    An expectation is resolved if its case ran and no finding matches it.

    Args:
        report: the report.
        expected: the expectations.
        cases: ids of cases that exist but may not be in the report.

    Raises:
        CompareError: an expectation matches no case.
    """
    known = {*cases, *(result.id for result in report.cases)}
    for expectation in expected:
        if not any(_is_match(case, expectation.case) for case in known):
            raise CompareError(f"stale expectation: there is no case {shown(expectation.case)}")
    findings = [(result.id, info.name, verdict) for result, info, verdict in report.findings]
    met = {
        finding[:2]: {expectation for expectation in expected if _is_met(expectation, *finding)}
        for finding in findings
    }
    ran = [(result.id, name) for result in report.cases for name in result.verdicts]
    unmet = [expectation for expectation in expected if not any(expectation in each for each in met.values())]
    return Unexpected(
        new=tuple(
            f"{case} {name}: {describe_verdict(verdict)}"
            for case, name, verdict in findings
            if not met[case, name]
        ),
        resolved=tuple(one for one in unmet if any(one.matches(*place) for place in ran)),
        missing=tuple(info.name for info in report.implementations if info.state is not State.OK),
    )


def _is_met(expected: Expectation, case: str, implementation: str, verdict: Verdict) -> bool:
    return expected.verdict is verdict.kind and expected.matches(case, implementation)


def _is_match(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a name. Brackets match themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
