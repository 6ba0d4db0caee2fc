"""Earlier reports, read as if hostile: what changed since, and which disagreements are known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from splitops.comparison import protocol
from splitops.comparison.records import CompareError, Report, State, Verdict, Word
from splitops.comparison.reports.verdicts import described, releases
from splitops.errors import ModelError, one_line, shown, shown_path
from splitops.ground.documents import parse_toml
from splitops.ground.reading import read_bounded
from splitops.ground.records import read_values

_MAX_BYTES: Final = 1 << 28
"""Reports have some kilobytes for each case."""


def read_report(path: Path) -> Report:
    """Read the JSON that ``splitops compare --json`` printed."""
    return protocol.read_report(_read(path), f"{shown_path(path)} is")


def _read(path: Path) -> bytes:
    """Read a file of at most 256 MiB."""
    try:
        return read_bounded(path, limit=_MAX_BYTES)
    except ModelError as error:
        raise CompareError(error.message) from error


def differences(old: Report, new: Report) -> dict[str, list[str]]:
    """Return lines of what is new, fixed, changed and of other releases, of what the new report asked."""
    before, now = _verdicts(old), _verdicts(new)
    was = {key: verdict for key, verdict in before.items() if verdict.counts}
    found = {key: verdict for key, verdict in now.items() if verdict.counts}
    keys = {
        "new": [key for key in found if key not in was],
        "fixed": [key for key in was if key in now and now[key].word is Word.AGREES],
        "changed": [key for key in found if key in was and found[key].kind != was[key].kind],
    }
    lines = {heading: [_line(key, before.get(key), now[key]) for key in own] for heading, own in keys.items()}
    then, today = ({peer.name: releases(peer) for peer in report.peers} for report in (old, new))
    others = [name for name in today if name in then and then[name] != today[name]]
    return lines | {"releases": [f"{name}: {then[name]} -> {today[name]}" for name in others]}


def _line(key: tuple[str, str], then: Verdict | None, now: Verdict) -> str:
    return f"{' '.join(key)}: {'not asked' if then is None else described(then)} -> {described(now)}"


def _verdicts(report: Report) -> dict[tuple[str, str], Verdict]:
    return {(entry.id, peer): verdict for entry in report.entries for peer, verdict in entry.verdicts.items()}


@dataclass(frozen=True, slots=True)
class Expectation:
    """A disagreement that is known; case and implementation may be patterns with ``*`` and ``?``."""

    case: str
    peer: str = field(metadata={"json": "implementation"})
    verdict: Word
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case} {self.peer}: {self.verdict}"

    def asks(self, case: str, peer: str) -> bool:
        """Whether it is about this case and implementation."""
        return _fits(case, self.case) and _fits(peer, self.peer)


@dataclass(frozen=True, slots=True)
class Unexpected:
    """What of a report is not as expected: new disagreements, gone ones, and who did not start."""

    new: tuple[str, ...]
    gone: tuple[Expectation, ...]
    missing: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 where a disagreement is new or gone, 3 where an implementation did not start."""
        return 3 if self.missing else int(bool(self.new or self.gone))


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read tables ``[[expected]]`` of a ``.toml`` file, or the findings of an old report, a ``.json``."""
    if path.suffix == ".json":
        return expectations(read_report(path))
    content = _read(path)
    try:
        document = parse_toml(content)
    except ValueError as error:
        raise CompareError(f"{shown_path(path)} is not TOML: {one_line(str(error), 200)}") from error
    protocol.validate(document, "list of expectations", f"{shown_path(path)} is")
    return tuple(read_values(Expectation, row) for row in document["expected"])


def expectations(report: Report) -> tuple[Expectation, ...]:
    """Return what is expected of a later report: the disagreements of this one."""
    return tuple(Expectation(entry.id, peer.name, verdict.word) for entry, peer, verdict in report.findings)


def unexpected(report: Report, expected: Collection[Expectation], cases: Collection[str] = ()) -> Unexpected:
    """Compare a report with what is expected of it.

    An expectation is *gone* where it was asked and no disagreement meets it. It is stale, an error, where
    none of ``cases`` and of the report's fits it.
    """
    known = {*cases, *(entry.id for entry in report.entries)}
    for one in expected:
        if not any(_fits(case, one.case) for case in known):
            raise CompareError(f"stale expectation: there is no case {shown(one.case)}")
    found = [(entry.id, peer.name, verdict) for entry, peer, verdict in report.findings]
    met = {finding[:2]: {one for one in expected if _meets(one, *finding)} for finding in found}
    asked = [(entry.id, peer) for entry in report.entries for peer in entry.verdicts]
    waiting = [one for one in expected if not any(one in own for own in met.values())]
    return Unexpected(
        new=tuple(f"{case} {peer}: {described(one)}" for case, peer, one in found if not met[case, peer]),
        gone=tuple(one for one in waiting if any(one.asks(*place) for place in asked)),
        missing=tuple(peer.name for peer in report.peers if peer.state is not State.OK),
    )


def _meets(expected: Expectation, case: str, peer: str, verdict: Verdict) -> bool:
    return expected.verdict is verdict.word and expected.asks(case, peer)


def _fits(name: str, pattern: str) -> bool:
    """Whether a name is the pattern or fits it; brackets stand for themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
