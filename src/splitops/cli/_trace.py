"""What a run splits into what: a record of every split that operators of a model make."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from splitops.errors import Where
from splitops.native import Plan, SplitPlan
from splitops.spec.operators import OperatorSchema
from splitops.splitting.planning import SplitRequest

_MAX_DIFFERENT: Final = 10_000
"""A loop can split differently in every turn; its later turns are then counted only."""
_MAX_PARTS: Final = 10_000_000
"""Nor are the sizes of more parts than this kept."""


@dataclass(frozen=True, slots=True)
class Split:
    """One way in which one node split its data.

    Attributes:
        schema: the operator version.
        where: the place in the model.
        plan: what it did.
    """

    schema: OperatorSchema = field(hash=False)  # a large row; the rest tells almost all splits apart
    where: Where
    plan: SplitPlan


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a node that an engine evaluates does with its data, as inference knows it.

    Attributes:
        schema: the operator version.
        where: the place in the model.
        plan: what it does; None where only the run knows.
        conditional: whether it runs only where a branch is taken or a loop turns.
    """

    schema: OperatorSchema
    where: Where
    plan: Plan | None
    conditional: bool


@dataclass(slots=True)
class Trace:
    """The splits of a run, in the order in which each was made first.

    Attributes:
        counts: how often each was made here.
        foretold: what an engine makes, once for each node.
        unlisted: how many more there were, of too many different ones.
    """

    counts: Counter[Split] = field(default_factory=Counter)
    foretold: list[Foretold] = field(default_factory=list)
    unlisted: int = 0
    _parts: int = 0

    def record(self, request: SplitRequest, plan: SplitPlan) -> None:
        """Count one split."""
        split = Split(request.schema, request.where, plan)
        if split not in self.counts:
            self._parts += len(plan.sizes)
            if len(self.counts) == _MAX_DIFFERENT or self._parts > _MAX_PARTS:
                self.unlisted += 1
                return
        self.counts[split] += 1
