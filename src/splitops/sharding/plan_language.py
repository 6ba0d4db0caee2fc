"""The language of shard plans: rules that match tensors by name and set how they are sharded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from splitops.errors import PlanError, SplitError, brief, shown
from splitops.files.extents import Table
from splitops.files.tensors import StoredTensor, iter_field, number_keys
from splitops.sharding.documents import validate
from splitops.sharding.expressions import Names
from splitops.sharding.globs import Globs, list_wildcards, match_glob
from splitops.sharding.tables import read_table
from splitops.sharding.tensor_sharding import (
    AxisSharding,
    TensorSharding,
    assign_to_rank,
    replicate,
    shard_axis,
)

_CUTS = ("axis", "hf", "place", "replicate")
_OF_AXES = ("sections", "unit", "groups", "pad_to", "pack", "group_size", "even")


@dataclass(frozen=True)
class ShardRule:
    """A rule of a shard plan: its number (from 1), its globs for tensor names, and its other fields."""

    number: int
    match: tuple[str, ...]
    fields: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name of the rule in messages: its number and its first glob."""
        return f"rule {self.number} ({shown(self.match[0])})"

    def label_for(self, name: str) -> str:
        """Return the name of the rule in messages about the tensor ``name``. It shows the matching glob."""
        glob = next((glob for glob in self.match if match_glob(glob, name) is not None), self.match[0])
        return f"rule {self.number} ({shown(glob)})"

    @property
    def cuts(self) -> bool:
        """Whether ranks may get less than the complete tensor."""
        return any(key in self.fields for key in ("axis", "hf", "place"))


def read_shard_rules(document: Mapping[str, Any], name: str = "the plan") -> list[ShardRule]:
    """Parse the rules of a plan. ``name`` is its name in messages."""
    validate(document, "plan", name)
    rules = []
    for number, entry in enumerate(document["rule"], 1):
        says = {key: value for key, value in entry.items() if key != "match"}
        match = entry["match"]
        rule = ShardRule(number, (match,) if isinstance(match, str) else tuple(match), says)
        try:
            _check_fields(rule)
        except PlanError as error:
            raise PlanError(f"{name}: rule {number}: {error.message}") from error
        rules.append(rule)
    return rules


def _check_fields(rule: ShardRule) -> None:
    """Check that the fields of a rule are complete and valid, and do not conflict."""
    if not rule.match:
        raise PlanError("match is empty")
    Globs(rule.match)
    says = rule.fields
    if not any(key in says for key in _CUTS):
        raise PlanError(f"set one of {', '.join(_CUTS)}")
    for one, others in (("place", ("axis", "hf", "replicate", *_OF_AXES)), ("hf", ("axis", "sections"))):
        clash = next((other for other in others if other in says), None)
        if one in says and clash is not None:
            raise PlanError(f"{one} and {clash} cannot be combined")
    of_axes = next((key for key in _OF_AXES if key in says), None)
    if of_axes is not None and not ("axis" in says or "hf" in says):
        raise PlanError(f"{of_axes} requires an axis: set axis or hf")
    words = read_table("tp_styles.toml")
    if says.get("hf", "replicate") not in words:
        raise PlanError(f"unknown hf = {shown(says['hf'])}: use one of {', '.join(words)}")
    if "unit" in says and "groups" in says:
        raise PlanError("unit and groups cannot be combined")
    if not rule.cuts and says["replicate"] is not True:
        raise PlanError(f"replicate = {shown(says['replicate'])} requires an axis: set axis or hf")
    named = says.get("place")
    if isinstance(named, str) and not all(f"{{{named}}}" in list_wildcards(glob) for glob in rule.match):
        raise PlanError(f"place = {shown(named)} is not captured by match: use {{{named}}} in each glob")


@dataclass(frozen=True)
class TensorKind:
    """Tensors that a plan shards in the same way.

    Attributes:
        tensor: the first of these tensors.
        rule: the rule that matches them.
        axis_sharding: how their axis is sharded, or None if ranks store the complete tensor.
        captured: text that the rule's ``place`` captures in the tensor names, or None.
        count: number of entries, such as experts, that ``place`` distributes over ranks: the largest captured
            number plus 1, or 0 without captured numbers.
    """

    tensor: StoredTensor
    rule: ShardRule
    axis_sharding: AxisSharding | None
    captured: str | None
    count: int

    def cut(self, ranks: int) -> TensorSharding:
        """Return the sharding of these tensors over ``ranks`` ranks.

        Raises:
            PlanError: they cannot be sharded over this number of ranks.
        """
        place = self.rule.fields.get("place")
        if place is not None:
            return _assign(place, self.captured, self.count, ranks)
        if self.axis_sharding is None:
            return replicate(ranks)
        return shard_axis(self.axis_sharding, self.tensor.shape[self.axis_sharding.axis], ranks)

    def check_place(self, ranks: int) -> None:
        """Check that the rule's ``place``, if it is set, is an existing rank or captures a number."""
        if "place" in self.rule.fields:
            _read_place(self.rule.fields["place"], self.captured, ranks)

    def add_context(self, message: str) -> str:
        """Prefix a message with the names of the tensor and the rule."""
        return f"{self.tensor.label}, {self.rule.label_for(self.tensor.name)}: {message}"


@dataclass(frozen=True)
class Matches:
    """The rules that match the tensors of a checkpoint.

    Attributes:
        rules: rule of each tensor.
        numbers: index into ``kinds`` for each tensor.
        kinds: the distinct kinds, in the order of their first tensors.
    """

    rules: tuple[ShardRule, ...]
    numbers: Table
    kinds: tuple[TensorKind, ...]


def assign_rules(
    rules: Sequence[ShardRule], tensors: Sequence[StoredTensor]
) -> tuple[Globs, list[ShardRule]]:
    """Return the globs of all rules, and the rule of each tensor. Raise PlanError if a tensor has none."""
    globs = Globs(glob for rule in rules for glob in rule.match)
    owners = [rule for rule in rules for _ in rule.match]
    found = [globs.find_index(tensor.name) for tensor in tensors]
    if None in found:
        label = tensors[found.index(None)].label
        raise PlanError(f'no rule matches {label}: end the plan with match = "*", replicate = true')
    return globs, [owners[number] for number in found if number is not None]


def match_rules(rules: Sequence[ShardRule], tensors: Sequence[StoredTensor], names: Names) -> Matches:
    """Find the rule and the kind of each tensor. ``names`` evaluates the expressions in rules."""
    globs, chosen = assign_rules(rules, tensors)
    texts: list[str | None] = [None] * len(tensors)  # the text that `place` captures
    counts: Counter[int] = Counter()
    placing = {rule.number: rule.fields["place"] for rule in rules if "place" in rule.fields}
    for index, rule in enumerate(chosen if placing else ()):
        if isinstance(placing.get(rule.number), str):
            _, captures = globs.find(tensors[index].name) or (0, {})
            texts[index] = text = captures[placing[rule.number]]
            counts[rule.number] = max(counts[rule.number], int(text) + 1 if _is_number(text) else 0)
    shapes, units = iter_field(tensors, "shape"), iter_field(tensors, "unit")
    numbers, firsts = number_keys(zip(map(id, chosen), shapes, units, texts, strict=True))
    kinds = []
    for index in firsts:
        tensor, rule = tensors[index], chosen[index]
        kind = TensorKind(tensor, rule, None, texts[index], counts[rule.number])
        try:
            axis_sharding = None if rule.number in placing else make_axis_sharding(rule, tensor.shape, names)
        except SplitError as error:
            raise PlanError(kind.add_context(error.message)) from error
        kinds.append(replace(kind, axis_sharding=axis_sharding))
    return Matches(tuple(chosen), numbers, tuple(kinds))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _read_place(named: int | str, text: str | None, ranks: int) -> int:
    """Return the number that ``place`` sets: an existing rank, or the number in the captured ``text``."""
    if isinstance(named, int):
        if named >= ranks:
            raise PlanError(f"place = {shown(named)} is out of range for {ranks} ranks")
        return named
    if text is None or not _is_number(text):
        raise PlanError(f"place = {shown(named)} captures {shown(text)}, which is not a number")
    return int(text)


def _assign(named: int | str, text: str | None, count: int, ranks: int) -> TensorSharding:
    number = _read_place(named, text, ranks)
    return assign_to_rank(number, ranks if isinstance(named, int) else count, ranks)


def find_axis(rule: ShardRule, shape: tuple[int, ...]) -> int | None:
    """Return the axis along which a rule shards a tensor with ``shape``, or None if it does not."""
    says, rank = rule.fields, len(shape)
    axis = says.get("axis")
    if "hf" in says:
        word = read_table("tp_styles.toml")[says["hf"]]
        axis = word.get("bias") if rank == 1 else word.get("axis") if rank else None
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise PlanError(f"axis {shown(axis)} is out of range for shape {brief(shape)} of rank {rank}")
    return int(axis % rank)


def make_axis_sharding(rule: ShardRule, shape: tuple[int, ...], names: Names) -> AxisSharding | None:
    """Return how a rule shards a tensor with ``shape``, or None if ranks store the complete tensor."""
    says, axis, sections = rule.fields, find_axis(rule, shape), None
    if axis is None:
        return None
    count = read_table("tp_styles.toml")[says["hf"]].get("sections", 1) if "hf" in says else 1
    if count > 1 and len(shape) > 1:
        size = shape[axis]
        if size % count:
            raise PlanError(f"axis {axis} of size {size} cannot be divided into {count} equal sections")
        sections = (size // count,) * count

    def evaluate(key: str) -> int:
        found = names.evaluate(says.get(key, 1))
        if found < 1:
            raise PlanError(f"{key} = {found}: the minimum is 1")
        return found

    pack = evaluate("pack")
    unit = math.lcm(evaluate("unit"), evaluate("group_size"))
    if "groups" in says:
        unit = math.lcm(unit, _divide_groups(shape[axis] * pack, evaluate("groups")))
    if "sections" in says:
        sections = tuple(names.evaluate(entry) for entry in says["sections"])
    repeats = says.get("replicate", False)
    every = range(len(sections or (0,)))
    return AxisSharding(
        axis,
        sections,
        unit,
        frozenset(every if repeats is True else repeats or ()),
        evaluate("pad_to") if "pad_to" in says else 0,
        pack,
        says.get("even", False),
    )


def _divide_groups(elements: int, groups: int) -> int:
    if elements % groups or not elements:
        raise PlanError(f"{elements} elements cannot be divided into {groups} equal groups")
    return elements // groups
