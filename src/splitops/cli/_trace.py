"""What a run splits into what: a record of every split that operators of a model make."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from splitops import execute
from splitops.errors import Where
from splitops.operators import OperatorSchema
from splitops.planning import SplitPlan, SplitRequest

__all__ = ["Split", "Trace", "traced"]

_MAX_DIFFERENT: Final = 10_000
"""A loop can split differently in every turn; its later turns are then counted only."""


@dataclass(frozen=True, slots=True)
class Split:
    """One way in which one node split its data.

    Attributes:
        schema: the operator version.
        where: the place, as far as the operator knows it.
        plan: what it did.
    """

    schema: OperatorSchema = field(hash=False)  # a large row; the rest tells almost all splits apart
    where: Where
    plan: SplitPlan


@dataclass(slots=True)
class Trace:
    """The splits of a run, in the order in which each was made first.

    Attributes:
        counts: how often each was made.
        unlisted: how many more there were, of too many different ones.
    """

    counts: Counter[Split] = field(default_factory=Counter)
    unlisted: int = 0

    def record(self, schema: OperatorSchema, where: Where, plan: SplitPlan) -> None:
        """Count one split."""
        split = Split(schema, where, plan)
        if split in self.counts or len(self.counts) < _MAX_DIFFERENT:
            self.counts[split] += 1
        else:
            self.unlisted += 1


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    """Record every split of the block. For the one thread of a command line, not for a library."""
    trace = Trace()
    module: dict[str, Any] = vars(execute)
    plan_request = module["plan_request"]

    def recording(request: SplitRequest) -> SplitPlan:
        plan: SplitPlan = plan_request(request)
        trace.record(request.schema, request.where, plan)
        return plan

    module["plan_request"] = recording
    try:
        yield trace
    finally:
        module["plan_request"] = plan_request
