"""Warnings about split attention heads: transformers splits them, although attention needs complete heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from splitops.errors import PlanError
from splitops.files.tensors import StoredTensor, number_keys
from splitops.sharding.expressions import Names
from splitops.sharding.plan_language import Matches, ShardRule
from splitops.sharding.tensor_sharding import AxisSharding, TensorSharding, shard_axis

QUERIES: Final = "num_attention_heads"
KEYS: Final = "num_key_value_heads"
_HEADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("q_proj", "q_b_proj", "kv_b_proj", "query_key_value", "o_proj", "dense", "wq", "wo"), QUERIES
    ),
    **dict.fromkeys(("k_proj", "v_proj", "wk", "wv"), KEYS),
}
"""The ``config.json`` key for the number of heads, by the last component of the module name."""
_READERS: Final = ("o_proj", "dense", "wo")
"""Modules that read heads. The outputs of the other modules in :data:`_HEADS` are heads."""
_OTHER_DENSE: Final = ("intermediate", "output", "pooler", "transform", "mlp", "lm_head", "classifier")
"""Modules of models like BERT whose ``dense`` belongs to attention only inside of an attention module."""


def find_heads(name: str, rank: int, axis: int) -> str:
    """Return the key of ``config.json`` with the number of heads along an axis, or "" if it has no heads.

    ``name`` and ``rank`` are the name and the number of axes of the tensor. Any axis of a tensor that is not
    called ``weight`` or ``bias`` may have heads, for example of a packed weight.

    Examples:
        >>> find_heads("layers.0.self_attn.dense.weight", 2, 1), find_heads("layers.0.mlp.dense.weight", 2, 1)
        ('num_attention_heads', '')
    """
    module, _, leaf = name.rpartition(".")
    outer, _, last = module.rpartition(".")
    found = _HEADS.get(last, "")
    if last == "dense" and outer.rpartition(".")[2] in _OTHER_DENSE and "attention" not in outer:
        return ""
    if found and leaf in ("weight", "bias"):  # packed weights may have heads along either axis
        reads = rank > 1 and axis == rank - 1
        return found if reads == (last in _READERS) else ""
    return found


@dataclass(frozen=True)
class HeadRule:
    """An axis of attention heads whose sharding rule may split heads, as in transformers.

    Attributes:
        kind: index of the tensors' :class:`TensorKind`.
        rule: the rule that shards the axis.
        axis: axis of the heads.
        size: size of this axis.
        pack: number of elements per index of the axis.
        unit: number of elements in a head.
        alone: whether heads of zeros can be appended without changing which keys the queries use.
        shared: whether these are key heads that several query heads share.
    """

    kind: int
    rule: ShardRule
    axis: int
    size: int
    pack: int
    unit: int
    alone: bool
    shared: bool

    def has_split_head(self, cut: TensorSharding, ranks: int) -> bool:
        """Return whether a sharding splits a head because complete heads cannot be divided over the ranks."""
        held = [piece for shard in cut.shards if shard for piece in shard.pieces]
        if all(piece.begin * self.pack % self.unit == 0 for piece in held):
            return False
        try:
            shard_axis(AxisSharding(self.axis, unit=self.unit, pack=self.pack), self.size, ranks)
        except PlanError:
            return True
        return False

    def format_warning(self, ranks: int) -> str:
        """Return the warning that this rule splits heads over ``ranks``, as a sentence."""
        length = self.size * self.pack
        return (
            f"{self.rule.label} splits attention heads: {length} elements over {ranks} ranks are "
            f"{-(-length // ranks)} each, but a head has {self.unit}."
        )


def find_head_rules(matches: Matches, tensors: Sequence[StoredTensor], names: Names) -> tuple[HeadRule, ...]:
    """Find the sharded axes of attention heads whose rule may split heads.

    Rules with styles other than ``colwise`` and ``rowwise`` are left out, such as those that gather their
    outputs, from which attention gets complete heads.
    """
    axes = [-1 if kind.axis_sharding is None else kind.axis_sharding.axis for kind in matches.kinds]
    rows = zip(tensors, map(axes.__getitem__, matches.numbers.tolist()), strict=True)
    counted = ["" if axis < 0 else find_heads(tensor.name, len(tensor.shape), axis) for tensor, axis in rows]
    queries, keys = (_evaluate(names, key) for key in (QUERIES, KEYS))
    _, firsts = number_keys(zip(matches.numbers.tolist(), counted, strict=True))
    found = []
    for index in firsts:
        number, key = int(matches.numbers[index]), counted[index]
        kind = matches.kinds[number]
        rule, axis_sharding = kind.rule, kind.axis_sharding
        if not key or axis_sharding is None or rule.fields.get("hf", "colwise") not in ("colwise", "rowwise"):
            continue
        size, pack = kind.tensor.shape[axis_sharding.axis], axis_sharding.pack
        unit = _find_unit(size * pack, key, names)
        if unit > 1:
            alone, shared = queries == keys or (keys == 1 and key == QUERIES), key == KEYS and keys < queries
            found.append(HeadRule(number, rule, axis_sharding.axis, size, pack, unit, alone, shared))
    return tuple(found)


def _evaluate(names: Names, name: str) -> int:
    """Return the value of a name, or 0 if it is undefined or invalid."""
    try:
        return names.evaluate(name)
    except PlanError:
        return 0


def _find_unit(elements: int, heads: str, names: Names) -> int:
    """Return the number of elements per head, including its fused parts, or 1 if it cannot be determined."""
    count, size = _evaluate(names, heads), _evaluate(names, "head_dim")
    return 1 if count < 1 or size < 1 or elements % (count * size) else elements // count
