"""``splitops run --repeat``, ``--profile`` and ``--trace``: times of runs, operators and splits."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from splitops.cli._console import make_table
from splitops.common.json_values import select_json_values

if TYPE_CHECKING:
    from rich.console import Console

    from splitops.models.sessions import Session
    from splitops.models.sessions.profiling import Profile

_MAX_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Measurements:
    """Times of runs and operators in seconds.

    ``simplified`` has the median times of a run before and after simplification, or is None if they were not
    measured.
    """

    seconds: Sequence[float] = ()
    profile: Profile | None = None
    simplified: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as JSON-serialisable values."""
        found = select_json_values(self, "seconds") if self.seconds else {}
        if self.profile is not None:
            profile = select_json_values(
                self.profile, "operators", "seconds", "share_of_splits", "data_movement_share"
            )
            found["profile"] = profile | select_json_values(self, "simplified")
        return found

    def print(self, out: Console) -> None:
        if self.seconds:
            least, middle = min(self.seconds), statistics.median(self.seconds)
            out.print(
                f"{len(self.seconds)} runs: the first {_format_time(self.seconds[0])}, "
                f"median {_format_time(middle)}, fastest {_format_time(least)}\n"
            )
        if self.profile is not None:
            _print_profile(out, self.profile, self.simplified)


def measure(
    model: Path, feeds: dict[str, Any], ready: Session, options: dict[str, Any], repeat: int | None,
    *, profile: bool, trace: Path | None,
) -> Measurements:  # fmt: skip
    """Time ``repeat`` runs of the session ``ready``. On request, profile the model and write a Chrome trace.

    ``options`` are those of the session. Another session records the profile and the trace. With ``profile``,
    the simplified model is also timed if anything can be simplified.
    """
    from splitops.common.atomic_write import write_atomically
    from splitops.models.sessions import session
    from splitops.models.sessions.profiling import Profile, make_chrome_trace, time_calls

    seconds = time_calls(lambda: ready.run(feeds), repeat) if repeat else ()
    if not profile and trace is None:
        return Measurements(seconds)
    runs = repeat or 1
    with session(model, profile=True, **options) as recording:
        recording.run(feeds)  # the first run allocates memory and is slower
        start = time.time()
        for _ in range(runs):
            recording.run(feeds)
        events = [event for event in recording.events() if event.begin >= start]
    if trace is not None:
        write_atomically(trace, json.dumps(make_chrome_trace(events)).encode())
    if not profile:
        return Measurements(seconds)
    return Measurements(
        seconds, Profile.from_events(events, runs), _compare(model, feeds, ready, options, runs)
    )


def _compare(
    model: Path, feeds: dict[str, Any], ready: Session, options: dict[str, Any], runs: int
) -> tuple[float, float] | None:
    """Return the median seconds of a run and of a simplified run, or None if nothing can be simplified."""
    from splitops.models.sessions import session
    from splitops.models.sessions.profiling import time_interleaved
    from splitops.models.simplify import simplify_with_report

    report = simplify_with_report(model, allow_links=options["allow_links"])
    if not report.changes:
        return None
    with session(report.model, **options) as simple:
        found = time_interleaved(
            {"as it is": lambda: ready.run(feeds), "simplified": lambda: simple.run(feeds)}, max(runs, 5)
        )
    return found["as it is"], found["simplified"]


def _print_profile(out: Console, profile: Profile, simplified: tuple[float, float] | None) -> None:
    columns = ("operator", "by", "calls", "time", "share")
    rows = make_table(*columns, right=("calls", "time", "share"), title="Where the time of a run goes")
    for row in profile.operators[:_MAX_ROWS]:
        share = row.seconds / profile.seconds if profile.seconds else 0.0
        rows.add_row(row.name, row.engine, f"{row.calls:g}", _format_time(row.seconds), f"{share:.1%}")
    out.print(rows)
    left = len(profile.operators) - rows.row_count
    if left > 0:
        out.print(f"... and {left} more")
    out.print(
        f"Splits take {profile.share_of_splits:.1%} of the time of all operators, "
        f"other data movement {profile.data_movement_share:.1%}."
    )
    if simplified is None:
        out.print("splitops simplify has nothing to rewrite.\n")
        return
    before, after = map(_format_time, simplified)
    out.print(f"After splitops simplify, a run takes {after} instead of {before}.\n")


def _format_time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
