"""``vllm``: one folder of files by rank, with the projections joined that vLLM has as one.

The names, shapes and bytes are those of its ``sharded_state``, for the models of
``tables/vllm.toml``. What vLLM does with its weights after loading is not covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from splitops.errors import PlanError
from splitops.files.tensors import StoredTensor
from splitops.files.whole import group_by_size
from splitops.sharding.expressions import Names
from splitops.sharding.fusing import Fusions, Group, rules_of
from splitops.sharding.placements import LaidFile, Placements, laid_file, shard_of, spread
from splitops.sharding.tables import table

_LARGEST: Final = 5 << 30
"""Bytes of tensors after which a rank's file is full, unless one tensor is larger."""

_FUSIONS: Final = Fusions(
    rules_of({"version": 1, **table("vllm.toml")["fusion"]}, "vllm.toml"), Names({}, {}), free=True
)


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of all ranks."""
    return ("",)


def files(placements: Placements) -> Iterator[LaidFile]:
    """Yield the files of all ranks."""
    groups = _groups([tensor.name for tensor in placements.tensors])
    count = 0
    numbers, _ = placements.kinds
    for rank in range(placements.ranks):
        forms = placements.forms(rank)
        held = [made for group in groups for made in _held(placements, group, rank)]
        for part, members in enumerate(group_by_size([made.size for made, _ in held], _LARGEST)):
            some = [held[i] for i in members]
            name = f"model-rank-{rank}-part-{part}.safetensors"
            file, places = laid_file(name, [made for made, _ in some], {"format": "pt"})
            ends = zip(places.tolist(), some, strict=True)
            rows = np.array([(i, begin + at) for begin, (_, own) in ends for i, at in own], np.int64).reshape(
                -1, 2
            )
            yield file, spread(forms, numbers[rows[:, 0]], rows[:, 0], count, rows[:, 1])
            count += 1


def _groups(names: Sequence[str]) -> list[int | Group]:
    """Return the tensors of a rank, in the order of the source.

    Parts without the others keep their names, and so does what would get the name of another tensor.
    """
    own = set(names)
    found: list[int | Group] = []
    for group in _FUSIONS.grouped(names):
        if isinstance(group, Group):
            experts = {expert for expert, _ in group.members}
            parts = len(_FUSIONS.rules[group.rule].parts)
            if group.name in own or len(group.members) < len(experts) * parts:
                found += group.members.values()
                continue
        found.append(group)
    return sorted(found, key=lambda each: each if isinstance(each, int) else min(each.members.values()))


def _held(
    placements: Placements, group: int | Group, rank: int
) -> Iterator[tuple[StoredTensor, list[tuple[int, int]]]]:
    """Yield the tensor of a group that a rank holds, and where in it what it is made from begins."""
    members = {(0, 0): group} if isinstance(group, int) else group.members
    own = {place: i for place, i in members.items() if placements.cuts[i].shards[rank] is not None}
    shards = {i: shard_of(placements.tensors[i], placements.cuts[i], rank) for i in own.values()}
    if isinstance(group, int):
        yield from ((shard, [(group, 0)]) for shard in shards.values())
        return
    if not own:
        return
    experts = sorted({expert for expert, _ in own})  # of those that are placed, the rank's own
    numbers = {expert: number for number, expert in enumerate(experts)}
    of_rank = {(numbers[expert], part): i for (expert, part), i in own.items()}
    try:
        made, copied = _FUSIONS.fused(group._replace(members=of_rank), shards, _reject)
    except PlanError as error:
        raise PlanError(f"rank {rank}: {error.message}") from error
    yield made, [(i, form[0].target_offset if form else 0) for i, form in copied]


def _reject(one: int, other: int) -> None:
    raise PlanError("scalars have no axis along which they could be joined")
