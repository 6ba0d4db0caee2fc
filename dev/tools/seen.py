"""Says in which releases the limits of ``check`` were seen: ``seen.py REPORT.json ...``.

The reports are what ``splitops compare --json`` printed, of every release that was looked at. Exits with 1
where the file of a target says something else, and names the field and what belongs there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from splitops.comparison import CompareError, Report
from splitops.comparison.records import Word
from splitops.comparison.reports.reading import read_report
from splitops.models.check import LIMITS, RUNTIMES, Limit, Target
from splitops.models.check.limits import release_numbers

Answers = dict[str, bool]
"""Whether the case of a limit disagreed, by the release, the oldest first."""


def main(paths: Sequence[Path]) -> int:
    """Print what was seen of each limit, and then what a profile says otherwise."""
    try:
        reports = [read_report(path) for path in paths]
    except CompareError as error:
        print(error, file=sys.stderr)
        return 2
    seen = {limit.code: answers(reports, limit) for limit in LIMITS if limit.case is not None}
    for code, found in seen.items():
        print(f"{code}: {in_words(found)}")
    wrong = [
        *new_releases(reports),
        *(text for limit in LIMITS for text in mended(limit, seen.get(limit.code, {}))),
    ]
    for text in wrong:
        print(f"to change: {text}")
    return int(bool(wrong))


def in_words(found: Answers) -> str:
    """Say which releases have a limit."""
    words = (f"{'seen in' if own else 'not in'} {release}" for release, own in found.items())
    return ", ".join(words) or "nobody answered"


def peers_of(report: Report, runtime: str) -> dict[str, str]:
    """Return the release of each implementation that is this runtime, by the implementation's name."""
    own = (peer for peer in report.peers if peer.adapter.replace("_", "-").split("-")[0] == runtime)
    return {peer.name: peer.versions[runtime] for peer in own if runtime in peer.versions}


def answers(reports: Sequence[Report], limit: Limit) -> Answers:
    """Return what was answered: a disagreement that was confirmed, with any setting, or none at all."""
    found: dict[str, bool] = defaultdict(bool)
    for report in reports:
        peers = peers_of(report, limit.runtime)
        for verdict, release in (
            (entry.verdicts[name], release)
            for entry in report.entries
            if entry.id == limit.case
            for name, release in peers.items()
            if name in entry.verdicts
        ):
            if verdict.counts or verdict.word is Word.AGREES:
                found[release] |= verdict.counts
    return {release: found[release] for release in sorted(found, key=release_numbers)}


def new_releases(reports: Sequence[Report]) -> Iterator[str]:
    """Say which releases the profiles do not name."""
    for runtime in RUNTIMES:
        known = Target.load(runtime).releases
        asked = {release for report in reports for release in peers_of(report, runtime).values()}
        had = set(map(release_numbers, known))
        for release in sorted(asked, key=release_numbers):
            if release_numbers(release) not in had:
                yield f"releases: {runtime} {release} is not among {', '.join(known)}"


def mended(limit: Limit, found: Answers) -> Iterator[str]:
    """Say what ``until`` should be, where a release that was looked at does not do as the profile says."""
    first = release_numbers(limit.looked_at[0]) if found else ()
    later = {release: own for release, own in found.items() if release_numbers(release) >= first}
    if all(own == limit.holds_in(release) for release, own in later.items()):
        return
    seen = [release for release, own in later.items() if own]
    last = None if seen[-1:] == [*later][-1:] else max(seen, key=release_numbers, default="")
    if last in ("", limit.until):
        yield f"{limit.code}: until={limit.until!r} is not so: {in_words(later)}"
    else:
        yield f"{limit.code}: until={last!r}, not {limit.until!r}"


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
