"""Record of the splits that one run of a model executes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from splitops.errors import Where
from splitops.models.engines import OWN
from splitops.models.split_nodes import SplitNode
from splitops.native import SplitPlan
from splitops.spec.operators import OperatorSchema
from splitops.splitting.planning import SplitRequest

_MAX_DIFFERENT: Final = 10_000
"""Maximum number of different splits to list, since a loop can split differently in every iteration."""
_MAX_PARTS: Final = 10_000_000
"""Maximum number of parts in the listed splits."""


@dataclass(frozen=True, slots=True)
class Split:
    """A split that a run has executed one or more times in the same way, or a split node that did not run.

    A split in a branch or loop that an engine runs may also have been executed in other ways, or never.

    Attributes:
        plan: the executed plan, or None if splitops cannot infer it or the node did not run.
        by: engine that executed it; empty if the node did not run.
        times: number of executions, or None if it is unknown because an engine runs the branch or loop.
    """

    schema: OperatorSchema = field(hash=False)  # slow to hash, and the other fields differ for most splits
    where: Where
    plan: SplitPlan | None
    by: str = ""
    times: int | None = 0


@dataclass(slots=True)
class Trace:
    """Counts how often splitops ran each split. Once it is full, ``unlisted`` counts the runs of new ones."""

    counts: Counter[Split] = field(default_factory=Counter)
    unlisted: int = 0
    _parts: int = 0

    def record(self, request: SplitRequest, plan: SplitPlan) -> None:
        """Count an execution of a split by splitops itself."""
        split = Split(request.schema, request.where, plan, OWN)
        if split not in self.counts:
            self._parts += len(plan.sizes)
            if len(self.counts) == _MAX_DIFFERENT or self._parts > _MAX_PARTS:
                self.unlisted += 1
                return
        self.counts[split] += 1

    def list_splits(
        self, predicted: Iterable[SplitNode], split_nodes: Iterable[SplitNode], engine: str
    ) -> list[Split]:
        """Return the splits that splitops and ``engine`` have executed, and the nodes that did not run.

        ``predicted`` are the splits that ``engine`` runs, or may run if they are in a branch or loop, and
        ``split_nodes`` are all splits of the model.
        Nodes that did not run are left out if some splits are unlisted.
        """
        from splitops.models.sessions.inferred_splits import plan_split_node

        splits = [replace(split, times=times) for split, times in self.counts.items()]
        inferred: dict[tuple[str | None, str | None], Split] = {}
        for split_node in predicted:
            if _make_key(split_node.where) not in inferred:
                times = None if split_node.conditional else 1
                inferred[_make_key(split_node.where)] = Split(
                    split_node.schema, split_node.where, plan_split_node(split_node), engine, times
                )
        splits += inferred.values()
        ran = {_make_key(split.where) for split in splits}
        idle = (
            []
            if self.unlisted
            else [split_node for split_node in split_nodes if _make_key(split_node.where) not in ran]
        )
        return splits + [Split(split_node.schema, split_node.where, None) for split_node in idle]


def _make_key(where: Where) -> tuple[str | None, str | None]:
    return where.graph, where.node
