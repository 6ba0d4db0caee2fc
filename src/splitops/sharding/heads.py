"""Find cuts inside an attention head: transformers makes them, but attention needs whole heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from splitops.errors import PlanError
from splitops.files.tensors import numbered
from splitops.sharding.cuts import Recipe, cut_axis, whole_ranks
from splitops.sharding.expressions import Names
from splitops.sharding.placements import Placements
from splitops.sharding.plan_language import ShardRule

_HEADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("q_proj", "q_b_proj", "kv_b_proj", "query_key_value", "o_proj", "dense"), "num_attention_heads"
    ),
    **dict.fromkeys(("k_proj", "v_proj"), "num_key_value_heads"),
}
"""By the last name of a module, how many heads its cut axis counts."""


def cut_heads(placements: Placements, matched: Sequence[ShardRule], names: Names) -> tuple[str, ...]:
    """Return a line for each rule that splits a head, with the numbers of ranks that keep heads whole.

    Rules that gather what they cut are left out: attention gets whole heads there.
    """
    modules = [tensor.name.rpartition(".")[0].rpartition(".")[2] for tensor in placements.tensors]
    _, firsts = numbered(zip(map(id, matched), placements.kinds[0].tolist(), modules, strict=True))
    told: dict[int, str] = {}
    for index in firsts:
        tensor, rule, cut = placements.tensors[index], matched[index], placements.cuts[index]
        heads = _HEADS.get(modules[index])
        if heads is None or cut.axis is None or rule.says.get("hf", "colwise") not in ("colwise", "rowwise"):
            continue
        if rule.number in told:
            continue
        pack = names.value(rule.says.get("pack", 1))
        size = tensor.shape[cut.axis]
        unit = _unit(size * pack, heads, names)
        if any(piece.begin * pack % unit for shard in cut.shards if shard for piece in shard.pieces):
            try:
                cut_axis(Recipe(cut.axis, unit=unit, pack=pack), size, placements.ranks)
            except PlanError:
                told[rule.number] = f"{rule.label} {_told(size * pack, unit, placements.ranks)}"
    return tuple(line for _, line in sorted(told.items()))


def _told(length: int, unit: int, ranks: int) -> str:
    *others, last = whole_ranks(length, unit)
    good = f"{', '.join(map(str, others[:8]))} or {last} ranks" if others else f"{last} rank"
    return (
        f"splits attention heads: {length} elements over {ranks} ranks is {-(-length // ranks)} each, "
        f"but a head has {unit}. Use {good} to keep heads whole."
    )


def _unit(elements: int, heads: str, names: Names) -> int:
    """Return the elements of a head, which may be of fused parts; 1 where the axis is not of such heads."""
    try:
        count, size = names.value(heads), names.value("head_dim")
    except PlanError:  # the configuration does not say
        return 1
    if count < 1 or size < 1 or elements % (count * size):
        return 1
    return max(1, elements // count)
