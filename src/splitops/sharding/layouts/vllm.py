"""``vllm``: one folder for all ranks, with tensors fused as in vLLM.

Names, shapes and bytes are those of vLLM's ``sharded_state``, for the models in ``tables/vllm.toml``. Changes
that vLLM makes to weights after loading are not reproduced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from splitops.errors import PlanError
from splitops.files.max_size import group_by_size
from splitops.files.tensors import StoredTensor
from splitops.sharding.expressions import Names
from splitops.sharding.fusing import FusedGroup, FusionRule, Fusions, read_fusion_rules
from splitops.sharding.placements import LaidFile, Placements, copy_extents, lay_out_file, make_rank_tensor
from splitops.sharding.tables import find_engine_plan, read_table

_LARGEST: Final = 5 << 30
"""Maximum bytes of tensors in a file, unless a single tensor is larger."""

_FUSIONS: Final = Fusions(
    read_fusion_rules({"version": 1, **read_table("vllm.toml")["fusion"]}, "vllm.toml"),
    Names({}, {}),
    free=True,
)


def list_sidecar_folders(ranks: int) -> tuple[str, ...]:
    """Return only the common folder, which all ranks share."""
    return ("",)


def iter_files(placements: Placements) -> Iterator[LaidFile]:
    """Lay out the files of all ranks, one at a time."""
    groups = _group_tensors([tensor.name for tensor in placements.tensors])
    count = 0
    numbers, _ = placements.kinds
    for rank in range(placements.ranks):
        forms = placements.make_extents(rank)
        held = [made for group in groups for made in _iter_rank_tensors(placements, group, rank)]
        for part, members in enumerate(group_by_size([made.size for made, _ in held], _LARGEST)):
            some = [held[i] for i in members]
            name = f"model-rank-{rank}-part-{part}.safetensors"
            file, places = lay_out_file(name, [made for made, _ in some], {"format": "pt"})
            ends = zip(places.tolist(), some, strict=True)
            rows = np.array([(i, begin + at) for begin, (_, own) in ends for i, at in own], np.int64).reshape(
                -1, 2
            )
            yield file, copy_extents(forms, numbers[rows[:, 0]], rows[:, 0], count, rows[:, 1])
            count += 1


def _group_tensors(names: Sequence[str]) -> list[int | FusedGroup]:
    """Return the groups of parts to fuse, and the indices of other tensors, in the order of the source.

    A group is not fused if parts or experts are missing, or if the fused name exists already.
    """
    own = set(names)
    found: list[int | FusedGroup] = []
    for group in _FUSIONS.group_parts(names):
        if isinstance(group, FusedGroup):
            experts = max(expert for expert, _ in group.members) + 1
            parts = len(_FUSIONS.rules[group.rule].parts)
            if group.name in own or len(group.members) < experts * parts:
                found += group.members.values()
                continue
        found.append(group)
    return sorted(found, key=lambda each: each if isinstance(each, int) else min(each.members.values()))


def _iter_rank_tensors(
    placements: Placements, group: int | FusedGroup, rank: int
) -> Iterator[tuple[StoredTensor, list[tuple[int, int]]]]:
    """Yield the tensor that a rank stores for a group, if any, and the index and offset of each member."""
    members = {(0, 0): group} if isinstance(group, int) else group.members
    own = {place: i for place, i in members.items() if placements.cuts[i].shards[rank] is not None}
    shards = {i: make_rank_tensor(placements.tensors[i], placements.cuts[i], rank) for i in own.values()}
    if isinstance(group, int):
        yield from ((shard, [(group, 0)]) for shard in shards.values())
        return
    if not own:
        return
    experts = sorted({expert for expert, _ in own})  # a rank may store only some experts
    numbers = {expert: number for number, expert in enumerate(experts)}
    of_rank = {(numbers[expert], part): i for (expert, part), i in own.items()}
    try:
        made, copied = _FUSIONS.fuse(group._replace(members=of_rank), shards, _reject)
    except PlanError as error:
        raise PlanError(f"rank {rank}: {error.message}") from error
    yield made, [(i, form[0].target_offset if form else 0) for i, form in copied]


def _reject(one: int, other: int) -> None:
    raise PlanError("scalars cannot be fused: they have no axis")


def unfuse_rank(
    tensors: Sequence[StoredTensor], config: Mapping[str, Any], ranks: int
) -> Iterator[StoredTensor]:
    """Yield the tensors of a rank under their names in the checkpoint, unfusing those that vLLM has fused.

    Parts are contiguous in the fused tensor, so that each is yielded as a tensor of the same file.
    """
    modules, names, rules = tuple(find_engine_plan(config)), Names({}, config), list[FusionRule]()
    for rule in _FUSIONS.rules:
        end = re.sub(r"\{\w+\}", "*", rule.parts[0].removesuffix(".{leaf}")).removeprefix("*")
        tied = rule.fused.startswith("lm_head.")
        if not any(m.endswith(end) for m in modules) or (tied and not config.get("tie_word_embeddings")):
            continue
        if len(rule.parts) == 3:
            counts = (names.evaluate(f"num_{each}_heads") for each in ("attention", *["key_value"] * 2))
            sizes = tuple(max(1, heads // ranks) * names.evaluate("head_dim") for heads in counts)
            rule = replace(rule, sections=sizes)
        rules.append(rule)
    fusions = Fusions(rules, names)
    for tensor in tensors:
        found = fusions.unfuse(tensor)
        for part, form in [(tensor, ())] if found is None else found[1]:
            yield part._replace(offset=part.offset + (form[0].offset if form else 0))
