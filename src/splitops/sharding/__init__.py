"""Shard, merge, reshard, fuse and unfuse model checkpoints, with bounded memory.

A plan shards a tensor along at most one axis, by the size rules of Split and VariadicSplit. A merge is the
inverse.
"""

from __future__ import annotations

from splitops.sharding.fitting import Padded, RankFit, Repeated
from splitops.sharding.fuse_plan import FusePlan, fuse, unfuse
from splitops.sharding.planning import MergePlan, ShardPlan, find_ranks, merge, plan
from splitops.sharding.ranks import Rank, RankTensor, rank
from splitops.sharding.tensor_sharding import Piece, Shard, TensorSharding

__all__ = [
    "FusePlan",
    "MergePlan",
    "Padded",
    "Piece",
    "Rank",
    "RankFit",
    "RankTensor",
    "Repeated",
    "Shard",
    "ShardPlan",
    "TensorSharding",
    "find_ranks",
    "fuse",
    "merge",
    "plan",
    "rank",
    "unfuse",
]
