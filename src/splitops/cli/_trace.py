"""What a run splits into what: a record of every split that operators of a model make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from splitops.errors import Where
from splitops.models.engines import OWN
from splitops.models.sites import Site
from splitops.native import SplitPlan
from splitops.spec.operators import OperatorSchema
from splitops.splitting.planning import SplitRequest

_MAX_DIFFERENT: Final = 10_000
"""A loop can split differently in every turn; its later turns are then counted only."""
_MAX_PARTS: Final = 10_000_000
"""Nor are the sizes of more parts than this kept."""


@dataclass(frozen=True, slots=True)
class Split:
    """What one split node does with its data in a run.

    Attributes:
        plan: None where only the run knows, and of a node that did not run.
        by: who evaluates it; empty for a node that did not run.
        times: how often; None where an engine evaluates it if a branch is taken or a loop turns.
    """

    schema: OperatorSchema = field(hash=False)  # a large row; the rest tells almost all splits apart
    where: Where
    plan: SplitPlan | None
    by: str = ""
    times: int | None = 0


@dataclass(slots=True)
class Trace:
    """The splits of a run, in the order in which each was made first.

    ``unlisted`` is how many more there were, of too many different ones.
    """

    counts: Counter[Split] = field(default_factory=Counter)
    unlisted: int = 0
    _parts: int = 0

    def record(self, request: SplitRequest, plan: SplitPlan) -> None:
        """Count one split."""
        split = Split(request.schema, request.where, plan, OWN)
        if split not in self.counts:
            self._parts += len(plan.sizes)
            if len(self.counts) == _MAX_DIFFERENT or self._parts > _MAX_PARTS:
                self.unlisted += 1
                return
        self.counts[split] += 1

    def splits(self, predicted: Iterable[Site], sites: Iterable[Site], engine: str) -> list[Split]:
        """Return what was made here, what an engine makes, and the nodes that did not run."""
        from splitops.models.sessions.predicted import plan_of

        made = [replace(split, times=times) for split, times in self.counts.items()]
        known: dict[tuple[str | None, str | None], Split] = {}
        for site in predicted:
            if _place(site.where) not in known:
                times = None if site.conditional else 1
                known[_place(site.where)] = Split(site.schema, site.where, plan_of(site), engine, times)
        made += known.values()
        ran = {_place(split.where) for split in made}
        idle = [] if self.unlisted else [site for site in sites if _place(site.where) not in ran]
        return made + [Split(site.schema, site.where, None) for site in idle]


def _place(where: Where) -> tuple[str | None, str | None]:
    return where.graph, where.node
