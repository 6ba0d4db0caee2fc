"""Profiles: the time of a model by operator, and the share of splits and data movement."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from splitops.models.engines.engine import Event
from splitops.models.ops import OPERATORS
from splitops.models.ops.operator import Role
from splitops.spec.operators import FAMILY

_SPLITS: Final = frozenset(name for names in FAMILY.values() for name in names)
_MOVERS: Final = frozenset(
    {
        *(
            one.name
            for operator in OPERATORS
            if operator.role not in (None, Role.SUM)
            for one in operator.onnx
        ),
        *("ConcatFromSequence", "Expand", "Flatten", "Identity", "Reorder", "ReorderInput", "ReorderOutput"),
        *("SequenceAt", "SequenceConstruct", "StridedSlice", "Tile"),
    }
)
"""The names that engines use for operators that only move data."""


@dataclass(frozen=True, slots=True)
class Operator:
    """All nodes of one operator that one engine ran.

    Attributes:
        name: the engine's name of the operator; fused operators have their own names.
        engine: the engine that ran them.
        calls: number of executions per run of the model.
        seconds: total time per run of the model.
    """

    name: str = field(metadata={"json": "operator"})
    engine: str = field(metadata={"json": "by"})
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The operators of a model, with the longest total time first."""

    operators: tuple[Operator, ...]

    @classmethod
    def from_events(cls, events: Iterable[Event], runs: int) -> Profile:
        """Aggregate the events of ``runs`` runs.

        Examples:
            >>> events = [Event("Conv", "c", "onnxruntime", 0.0, 0.3)]
            >>> events += [Event("Split", "s", "splitops", 0.3, 0.1)]
            >>> profile = Profile.from_events([*events, *events], runs=2)
            >>> [(row.name, row.calls, row.seconds) for row in profile.operators]
            [('Conv', 1.0, 0.3), ('Split', 1.0, 0.1)]
            >>> round(profile.share_of_splits, 2)
            0.25
        """
        times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for event in events:
            times[event.operator, event.engine].append(event.seconds)
        rows = [Operator(*key, len(found) / runs, sum(found) / runs) for key, found in times.items()]
        return cls(tuple(sorted(rows, key=lambda row: -row.seconds)))

    @property
    def seconds(self) -> float:
        """Total time of all operators per run."""
        return sum(row.seconds for row in self.operators)

    @property
    def share_of_splits(self) -> float:
        """Share of the total time that is spent on splits, from 0 to 1."""
        return self._share(_SPLITS)

    @property
    def data_movement_share(self) -> float:
        """Share of the total time, from 0 to 1, that operators other than splits spend on moving data."""
        return self._share(_MOVERS)

    def _share(self, names: frozenset[str]) -> float:
        found = sum(row.seconds for row in self.operators if row.name in names)
        return found / self.seconds if self.seconds else 0.0


def make_chrome_trace(events: Iterable[Event]) -> dict[str, Any]:
    """Convert events to a trace for Chrome and Perfetto, with one row per engine.

    Examples:
        >>> make_chrome_trace([Event("Split", "cut", "splitops", 5.0, 0.25)])["traceEvents"][0]["dur"]
        250000.0
    """
    ordered = sorted(events, key=lambda event: event.begin)
    start = ordered[0].begin if ordered else 0.0
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            {
                "name": event.operator,
                "cat": "operator",
                "ph": "X",
                "ts": (event.begin - start) * 1e6,
                "dur": event.seconds * 1e6,
                "pid": 1,
                "tid": event.engine,
                "args": {"node": event.node},
            }
            for event in ordered
        ],
    }


def time_calls(run: Callable[[], object], times: int) -> list[float]:
    """Time ``times`` calls of ``run``, and return the seconds of each."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return found


def time_interleaved(runs: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Return the median seconds of each function, after one call that is not timed.

    Calls are interleaved, so that all functions see a similar machine load.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(times):
        for name, run in runs.items():
            found[name] += time_calls(run, 1)
    return {name: statistics.median(seconds) for name, seconds in found.items()}
