"""Find cuts inside an attention head: transformers makes them, but attention needs whole heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from splitops.errors import PlanError
from splitops.files.tensors import StoredTensor, number_keys
from splitops.sharding.cuts import Cut, Recipe, cut_axis
from splitops.sharding.expressions import Names
from splitops.sharding.plan_language import Matches, ShardRule

QUERIES: Final = "num_attention_heads"
KEYS: Final = "num_key_value_heads"
_HEADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("q_proj", "q_b_proj", "kv_b_proj", "query_key_value", "o_proj", "dense"), QUERIES),
    **dict.fromkeys(("k_proj", "v_proj"), KEYS),
}
"""By the last name of a module, the key of ``config.json`` with the number of its heads."""
_READERS: Final = ("o_proj", "dense")
"""The modules whose inputs are heads. The outputs of the others are."""
_OTHER_DENSE: Final = ("intermediate", "output", "pooler", "transform", "mlp", "lm_head", "classifier")
"""Modules of BERT and models like it whose ``dense`` is not of attention, except in a module of attention."""


def heads_of(name: str, rank: int, axis: int) -> str:
    """Return the key of ``config.json`` with the number of heads along an axis; "" if no heads are there.

    Args:
        name: the name of the tensor.
        rank: its number of axes.
        axis: the axis.

    Examples:
        >>> heads_of("layers.0.self_attn.dense.weight", 2, 1), heads_of("layers.0.mlp.dense.weight", 2, 1)
        ('num_attention_heads', '')
    """
    module, _, leaf = name.rpartition(".")
    outer, _, last = module.rpartition(".")
    found = _HEADS.get(last, "")
    if last == "dense" and outer.rpartition(".")[2] in _OTHER_DENSE and "attention" not in outer:
        return ""
    if found and leaf in ("weight", "bias"):  # packed weights are transposed, or not
        reads = rank > 1 and axis == rank - 1
        return found if reads == (last in _READERS) else ""
    return found


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
        alone: whether heads of zeros may be added to these: real queries then have the same keys as before.
        shared: whether several heads of queries have one of these heads of keys.
    """

    kind: int
    rule: ShardRule
    axis: int
    size: int
    pack: int
    unit: int
    alone: bool
    shared: bool

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
    axes = [-1 if kind.recipe is None else kind.recipe.axis for kind in matches.kinds]
    rows = zip(tensors, map(axes.__getitem__, matches.numbers.tolist()), strict=True)
    counted = ["" if axis < 0 else heads_of(tensor.name, len(tensor.shape), axis) for tensor, axis in rows]
    queries, keys = (_count(names, key) for key in (QUERIES, KEYS))
    _, firsts = number_keys(zip(matches.numbers.tolist(), counted, strict=True))
    found = []
    for index in firsts:
        number, key = int(matches.numbers[index]), counted[index]
        kind = matches.kinds[number]
        rule, recipe = kind.rule, kind.recipe
        if not key or recipe is None or rule.says.get("hf", "colwise") not in ("colwise", "rowwise"):
            continue
        size, pack = kind.tensor.shape[recipe.axis], recipe.pack
        unit = _unit(size * pack, key, names)
        if unit > 1:
            alone, shared = queries == keys or (keys == 1 and key == QUERIES), key == KEYS and keys < queries
            found.append(HeadRule(number, rule, recipe.axis, size, pack, unit, alone, shared))
    return tuple(found)


def _count(names: Names, name: str) -> int:
    """Return the value of a name; 0 if the configuration does not say."""
    try:
        return names.value(name)
    except PlanError:
        return 0


def _unit(elements: int, heads: str, names: Names) -> int:
    """Return the elements of a head, which may be of fused parts; 1 where the axis is not of such heads."""
    count, size = _count(names, heads), _count(names, "head_dim")
    return 1 if count < 1 or size < 1 or elements % (count * size) else elements // count
