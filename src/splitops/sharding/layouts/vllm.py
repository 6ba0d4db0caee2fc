"""``vllm``: one folder of files by rank, with the projections joined that vLLM has as one.

The names, shapes and bytes are those of its ``sharded_state``, for the models of
:mod:`splitops.sharding.engines`. What vLLM does with its weights after loading is not covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from splitops.errors import PlanError
from splitops.files.tensors import StoredTensor
from splitops.files.whole import groups_of
from splitops.sharding.cuts import shard_extents
from splitops.sharding.expressions import Names
from splitops.sharding.fusing import Group, fused, grouped, rules_of
from splitops.sharding.placements import Filing, Laid, Placements, shard_of
from splitops.sharding.tables import table

_LARGEST: Final = 5 << 30
"""Bytes of tensors after which a rank's file is full, unless one tensor is larger."""

_RULES: Final = rules_of({"version": 1, **table("vllm.toml")["fusion"]}, "vllm.toml")


class _Held(NamedTuple):
    """A tensor of a rank: by position of what it is made from, where that begins in it."""

    tensor: StoredTensor
    places: list[tuple[int, int]]


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of all ranks."""
    return ("",)


def lay_out(placements: Placements) -> Laid:
    """Lay out the files of all ranks."""
    groups = _groups([tensor.name for tensor in placements.tensors])
    filing = Filing(len(placements.tensors))
    for rank in range(placements.ranks):
        held = [made for group in groups for made in _held(placements, group, rank)]
        for part, members in enumerate(groups_of([made.tensor.size for made in held], _LARGEST)):
            some = [held[i] for i in members]
            name = f"model-rank-{rank}-part-{part}.safetensors"
            number, offsets = filing.add(name, [made.tensor for made in some], {"format": "pt"})
            for made, offset in zip(some, offsets, strict=True):
                for i, at in made.places:
                    tensor, cut = placements.tensors[i], placements.cuts[i]
                    filing.extents[i] += shard_extents(tensor, cut, rank, number, offset + at)
    return filing.laid


def _groups(names: Sequence[str]) -> list[int | Group]:
    """Return the tensors of a rank, in the order of the source.

    Parts without the others keep their names, and so does what would get the name of another tensor.
    """
    own = set(names)
    found: list[int | Group] = []
    for group in grouped(_RULES, names):
        if isinstance(group, Group):
            experts = {expert for expert, _ in group.members}
            if group.name in own or len(group.members) < len(experts) * len(_RULES[group.rule].parts):
                found += group.members.values()
                continue
        found.append(group)
    return sorted(found, key=lambda each: each if isinstance(each, int) else min(each.members.values()))


def _held(placements: Placements, group: int | Group, rank: int) -> Iterator[_Held]:
    """Yield the tensor of a group that a rank holds, at no place yet; nothing where it holds none."""
    members = {(0, 0): group} if isinstance(group, int) else group.members
    own = {place: i for place, i in members.items() if placements.cuts[i].shards[rank] is not None}
    shards = {i: shard_of(placements.tensors[i], placements.cuts[i], rank) for i in own.values()}
    if isinstance(group, int):
        yield from (_Held(shard, [(group, 0)]) for shard in shards.values())
        return
    if not own:
        return
    experts = sorted({expert for expert, _ in own})  # of those that are placed, the rank's own
    numbers = {expert: number for number, expert in enumerate(experts)}
    of_rank = {(numbers[expert], part): i for (expert, part), i in own.items()}
    rule = _RULES[group.rule]
    first = [shards[i].shape for (expert, _), i in sorted(of_rank.items()) if expert == 0]
    if len(first) == len(rule.parts) and all(first):
        rule = replace(rule, sections=tuple(shape[0] for shape in first))
    try:
        made, pieces = fused(rule, replace(group, members=of_rank), shards, Names({}, {}), _reject)
    except PlanError as error:
        raise PlanError(f"rank {rank}: {error.message}") from error
    yield _Held(made, [(i, extents[0].target_offset if extents else 0) for i, extents in pieces])


def _reject(one: int, other: int) -> None:
    raise PlanError("scalars have no axis along which they could be joined")
