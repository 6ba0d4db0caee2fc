"""What changed between two reports."""

from __future__ import annotations

from dataclasses import dataclass

from splitops.comparison.records import Report, Verdict, Word
from splitops.comparison.reports.verdicts import described, releases


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """One case and implementation whose verdict has changed.

    Attributes:
        case: the case's id.
        peer: the implementation's name.
        rule: the rule of the case.
        before: the verdict in words; None where the old report does not have the case or the implementation.
        now: the verdict in words.
    """

    case: str
    peer: str
    rule: str
    before: str | None
    now: str

    def __str__(self) -> str:
        return f"{self.case} {self.peer}: {self.before or 'not asked'} -> {self.now}"


@dataclass(frozen=True, slots=True)
class Differences:
    """What is new, fixed and changed since an old report.

    Attributes:
        new: disagreements that the old report does not have.
        fixed: disagreements of the old report where the implementation agrees now.
        changed: disagreements of another kind than before.
        releases: the old and new releases of each implementation that has others now.
    """

    new: tuple[ChangedVerdict, ...]
    fixed: tuple[ChangedVerdict, ...]
    changed: tuple[ChangedVerdict, ...]
    releases: dict[str, tuple[str, str]]


def differences(old: Report, new: Report) -> Differences:
    """Compare two reports, case by case and implementation by implementation.

    Of cases and implementations that the new report was not asked for nothing is said.

    Args:
        old: the report of then.
        new: the report of now.
    """
    before, now = _verdicts(old), _verdicts(new)
    rules = {entry.id: entry.rule for entry in new.entries}
    was = {key: verdict for key, verdict in before.items() if verdict.counts}
    found = {key: verdict for key, verdict in now.items() if verdict.counts}

    def change(key: tuple[str, str]) -> ChangedVerdict:
        then = before.get(key)
        return ChangedVerdict(
            *key, rules[key[0]], None if then is None else described(then), described(now[key])
        )

    return Differences(
        new=tuple(change(key) for key in found if key not in was),
        fixed=tuple(change(key) for key in was if key in now and now[key].word is Word.AGREES),
        changed=tuple(change(key) for key in found if key in was and found[key].kind != was[key].kind),
        releases=_releases(old, new),
    )


def _verdicts(report: Report) -> dict[tuple[str, str], Verdict]:
    return {(entry.id, peer): verdict for entry in report.entries for peer, verdict in entry.verdicts.items()}


def _releases(old: Report, new: Report) -> dict[str, tuple[str, str]]:
    before, now = ({peer.name: releases(peer) for peer in report.peers} for report in (old, new))
    return {name: (before[name], now[name]) for name in now if name in before and before[name] != now[name]}
