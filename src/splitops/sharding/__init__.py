"""Checkpoints of models cut into ranks, merged, and cut anew, with bounded memory.

Every placement is a Split or a VariadicSplit along one axis: the same size rules, and a merge is the inverse.
"""

from __future__ import annotations

from splitops.sharding.cuts import Cut, Piece, Shard
from splitops.sharding.fitting import Padded, RankFit, Repeated
from splitops.sharding.planning import MergePlan, ShardPlan, find_ranks, merge, plan
from splitops.sharding.ranks import Rank, RankTensor, rank
from splitops.sharding.refitting import RefitPlan, refit

__all__ = [
    "Cut",
    "MergePlan",
    "Padded",
    "Piece",
    "Rank",
    "RankFit",
    "RankTensor",
    "RefitPlan",
    "Repeated",
    "Shard",
    "ShardPlan",
    "find_ranks",
    "merge",
    "plan",
    "rank",
    "refit",
]
