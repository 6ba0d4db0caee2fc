"""Find cuts inside an attention head: transformers makes them, but attention needs whole heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from splitops.errors import PlanError
from splitops.files.tensors import StoredTensor, numbered
from splitops.sharding.cuts import Cut, Recipe, cut_axis
from splitops.sharding.expressions import Names
from splitops.sharding.plan_language import Matches, ShardRule

HEADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("q_proj", "q_b_proj", "kv_b_proj", "query_key_value", "o_proj", "dense"), "num_attention_heads"
    ),
    **dict.fromkeys(("k_proj", "v_proj"), "num_key_value_heads"),
}
"""By the last name of a module, how many heads its cut axis counts."""


@dataclass(frozen=True)
class HeadRule:
    """An axis of attention heads that a rule cuts without regard to them, as transformers does.

    Attributes:
        kind: the number of the tensors' kind.
        rule: the rule.
        axis: the axis.
        size: its positions.
        pack: the elements in a position.
        unit: the elements of a head.
    """

    kind: int
    rule: ShardRule
    axis: int
    size: int
    pack: int
    unit: int

    def splits(self, cut: Cut, ranks: int) -> bool:
        """Return whether a cut goes through a head."""
        held = [piece for shard in cut.shards if shard for piece in shard.pieces]
        if all(piece.begin * self.pack % self.unit == 0 for piece in held):
            return False
        try:
            cut_axis(Recipe(self.axis, unit=self.unit, pack=self.pack), self.size, ranks)
        except PlanError:
            return True
        return False

    def told(self, ranks: int) -> str:
        """Return in words that some ranks split heads."""
        length = self.size * self.pack
        return (
            f"{self.rule.label} splits attention heads: {length} elements over {ranks} ranks is "
            f"{-(-length // ranks)} each, but a head has {self.unit}."
        )


def head_rules(matches: Matches, tensors: Sequence[StoredTensor], names: Names) -> tuple[HeadRule, ...]:
    """Return the axes of attention heads that rules cut.

    Rules that gather what they cut are left out: attention gets whole heads there.
    """
    modules = [tensor.name.rpartition(".")[0].rpartition(".")[2] for tensor in tensors]
    _, firsts = numbered(zip(matches.numbers.tolist(), modules, strict=True))
    found = []
    for index in firsts:
        number = int(matches.numbers[index])
        kind, heads = matches.kinds[number], HEADS.get(modules[index])
        rule, recipe = kind.rule, kind.recipe
        if heads is None or recipe is None or rule.says.get("hf", "colwise") not in ("colwise", "rowwise"):
            continue
        size, pack = kind.tensor.shape[recipe.axis], recipe.pack
        found.append(HeadRule(number, rule, recipe.axis, size, pack, _unit(size * pack, heads, names)))
    return tuple(each for each in found if each.unit > 1)


def _unit(elements: int, heads: str, names: Names) -> int:
    """Return the elements of a head, which may be of fused parts; 1 where the axis is not of such heads."""
    try:
        count, size = names.value(heads), names.value("head_dim")
    except PlanError:  # the configuration does not say
        return 1
    if count < 1 or size < 1 or elements % (count * size):
        return 1
    return max(1, elements // count)
