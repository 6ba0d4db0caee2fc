"""Where the time of a model goes: by operator, in splits and data movers, and what simplification saves."""

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
"""Operators that move data and compute nothing, as the engines name them."""


@dataclass(frozen=True, slots=True)
class Operator:
    """All nodes of one operator that one engine ran.

    Attributes:
        name: the operator, as the engine names it: fused ones have names of their own.
        engine: who ran them.
        calls: how many ran in one run of the model.
        seconds: what they took in one run, together.
    """

    name: str = field(metadata={"json": "operator"})
    engine: str = field(metadata={"json": "by"})
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The operators of some runs of a model, those that took longest first.

    Attributes:
        operators: the operators.
    """

    operators: tuple[Operator, ...]

    @classmethod
    def of(cls, events: Iterable[Event], runs: int) -> Profile:
        """Sum up what was recorded of a number of runs.

        Examples:
            >>> events = [Event("Conv", "c", "onnxruntime", 0.0, 0.3)]
            >>> events += [Event("Split", "s", "splitops", 0.3, 0.1)]
            >>> profile = Profile.of([*events, *events], runs=2)
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
        """What all operators took in one run."""
        return sum(row.seconds for row in self.operators)

    @property
    def share_of_splits(self) -> float:
        """The share of the splits in the time."""
        return self._share(_SPLITS)

    @property
    def data_movement_share(self) -> float:
        """The share of the other operators that only move data."""
        return self._share(_MOVERS)

    def _share(self, names: frozenset[str]) -> float:
        found = sum(row.seconds for row in self.operators if row.name in names)
        return found / self.seconds if self.seconds else 0.0


def chrome_trace(events: Iterable[Event]) -> dict[str, Any]:
    """Return events in the form of Chrome's and Perfetto's traces, a line for each engine.

    Examples:
        >>> chrome_trace([Event("Split", "cut", "splitops", 5.0, 0.25)])["traceEvents"][0]["dur"]
        250000.0
    """
    known = sorted(events, key=lambda event: event.begin)
    start = known[0].begin if known else 0.0
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
            for event in known
        ],
    }


def seconds_of(run: Callable[[], object], times: int) -> list[float]:
    """Return what each of some runs took."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return found


def time_interleaved(runs: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Return the median of what each took, one after the other, so that all see the same machine."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(times):
        for name, run in runs.items():
            found[name] += seconds_of(run, 1)
    return {name: statistics.median(seconds) for name, seconds in found.items()}
