"""What changed between two reports."""

from __future__ import annotations

from splitops.comparison.records import Report, Verdict, Word
from splitops.comparison.reports.verdicts import described, releases


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
