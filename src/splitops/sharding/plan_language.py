"""The plan language: rules that say of each tensor, by its name, how it is cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from splitops.errors import PlanError, SplitError, brief, shown
from splitops.files.extents import Table
from splitops.files.tensors import StoredTensor, iter_field, number_keys
from splitops.sharding.cuts import Cut, Recipe, cut_axis, placed, whole
from splitops.sharding.documents import validate
from splitops.sharding.expressions import Names
from splitops.sharding.globs import Globs, tokens
from splitops.sharding.tables import table

_CUTS = ("axis", "hf", "place", "replicate")
_OF_AXES = ("sections", "unit", "groups", "pad_to", "pack", "group_size", "even")


@dataclass(frozen=True)
class ShardRule:
    """One rule of a plan: its place from 1 on, its globs, and its other fields as the plan has them."""

    number: int
    match: tuple[str, ...]
    says: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"rule {self.number} ({shown(self.match[0])})"

    @property
    def cuts(self) -> bool:
        """Whether it may give ranks less than the whole tensor."""
        return any(key in self.says for key in ("axis", "hf", "place"))


def rules_of(document: Mapping[str, Any], name: str = "the plan") -> list[ShardRule]:
    """Return the rules of a plan."""
    validate(document, "plan", name)
    rules = []
    for number, entry in enumerate(document["rule"], 1):
        says = {key: value for key, value in entry.items() if key != "match"}
        match = entry["match"]
        rule = ShardRule(number, (match,) if isinstance(match, str) else tuple(match), says)
        try:
            _prove(rule)
        except PlanError as error:
            raise PlanError(f"{name}: rule {number}: {error.message}") from error
        rules.append(rule)
    return rules


def _prove(rule: ShardRule) -> None:
    """Reject a rule that says nothing, or two things at once."""
    if not rule.match:
        raise PlanError("match names no glob")
    Globs(rule.match)
    says = rule.says
    if not any(key in says for key in _CUTS):
        raise PlanError(f"says none of {', '.join(_CUTS)}")
    for one, others in (("place", ("axis", "hf", "replicate", *_OF_AXES)), ("hf", ("axis", "sections"))):
        clash = next((other for other in others if other in says), None)
        if one in says and clash is not None:
            raise PlanError(f"says both {one} and {clash}")
    of_axes = next((key for key in _OF_AXES if key in says), None)
    if of_axes is not None and not ("axis" in says or "hf" in says):
        raise PlanError(f"says {of_axes} without an axis")
    words = table("words.toml")
    if says.get("hf", "replicate") not in words:
        raise PlanError(f"hf = {shown(says['hf'])} is none of {', '.join(words)}")
    if "unit" in says and "groups" in says:
        raise PlanError("says both unit and groups")
    if not rule.cuts and says["replicate"] is not True:
        raise PlanError(f"says replicate = {shown(says['replicate'])} without an axis")
    named = says.get("place")
    if isinstance(named, str) and not all(f"{{{named}}}" in tokens(glob) for glob in rule.match):
        raise PlanError(f"place = {shown(named)}, which match does not capture")


@dataclass(frozen=True)
class TensorKind:
    """Tensors that a plan cuts in the same way.

    Attributes:
        tensor: the first of them.
        rule: the rule that cuts them.
        recipe: how their axis is cut; None if ranks hold the whole tensor.
        captured: the text that the rule's ``place`` names, if it names one.
        count: the number of places, if it names one.
    """

    tensor: StoredTensor
    rule: ShardRule
    recipe: Recipe | None
    captured: str | None
    count: int

    def cut(self, ranks: int) -> Cut:
        """Return their cut.

        Raises:
            PlanError: this number of ranks cannot hold them.
        """
        place = self.rule.says.get("place")
        if place is not None:
            return _placed(place, self.captured, self.count, ranks)
        if self.recipe is None:
            return whole(ranks)
        return cut_axis(self.recipe, self.tensor.shape[self.recipe.axis], ranks)

    def prove_place(self, ranks: int) -> None:
        """Reject a place that a number of ranks does not have."""
        if "place" in self.rule.says:
            _proved_place(self.rule.says["place"], self.captured, ranks)

    def named(self, message: str) -> str:
        """Return a message with the names of the tensor and the rule."""
        return f"{self.tensor.label}, {self.rule.label}: {message}"


@dataclass(frozen=True)
class Matches:
    """The tensors of a checkpoint with the rules of a plan that match them.

    Attributes:
        rules: the rule of each tensor.
        numbers: the number of each tensor's kind.
        kinds: the kinds, in the order of their first tensors.
    """

    rules: tuple[ShardRule, ...]
    numbers: Table
    kinds: tuple[TensorKind, ...]


def match_rules(rules: Sequence[ShardRule], tensors: Sequence[StoredTensor], names: Names) -> Matches:
    """Return the rule and the kind of each tensor."""
    globs = Globs(glob for rule in rules for glob in rule.match)
    owners = [rule for rule in rules for _ in rule.match]
    found = [globs.first(tensor.name) for tensor in tensors]
    if None in found:
        label = tensors[found.index(None)].label
        raise PlanError(f'no rule matches {label}: end the plan with match = "*", replicate = true')
    chosen = [owners[number] for number in found if number is not None]
    texts: list[str | None] = [None] * len(tensors)  # what `place` names
    counts: Counter[int] = Counter()
    placing = {rule.number: rule.says["place"] for rule in rules if "place" in rule.says}
    for index, rule in enumerate(chosen if placing else ()):
        if isinstance(placing.get(rule.number), str):
            _, captures = globs.find(tensors[index].name) or (0, {})
            texts[index] = text = captures[placing[rule.number]]
            counts[rule.number] = max(counts[rule.number], int(text) + 1 if _is_number(text) else 0)
    numbers, firsts = number_keys(zip(map(id, chosen), iter_field(tensors, "shape"), texts, strict=True))
    kinds = []
    for index in firsts:
        tensor, rule = tensors[index], chosen[index]
        kind = TensorKind(tensor, rule, None, texts[index], counts[rule.number])
        try:
            recipe = None if rule.number in placing else _recipe(rule, tensor.shape, names)
        except SplitError as error:
            raise PlanError(kind.named(error.message)) from error
        kinds.append(replace(kind, recipe=recipe))
    return Matches(tuple(chosen), numbers, tuple(kinds))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _proved_place(named: int | str, text: str | None, ranks: int) -> int:
    """Return the number of a place, checked to be one of some ranks if the plan sets it."""
    if isinstance(named, int):
        if named >= ranks:
            raise PlanError(f"place = {shown(named)} of {ranks} ranks, from 0 on")
        return named
    if text is None or not _is_number(text):
        raise PlanError(f"place = {shown(named)}, which is {shown(text)} and no number")
    return int(text)


def _placed(named: int | str, text: str | None, count: int, ranks: int) -> Cut:
    number = _proved_place(named, text, ranks)
    return placed(number, ranks if isinstance(named, int) else count, ranks)


def _recipe(rule: ShardRule, shape: tuple[int, ...], names: Names) -> Recipe | None:
    """Return how an axis of a tensor of a shape is cut; None where ranks hold it whole."""
    says, rank = rule.says, len(shape)
    axis, sections = says.get("axis"), None
    if "hf" in says:
        word = table("words.toml")[says["hf"]]
        axis = word.get("bias") if rank == 1 else word.get("axis") if rank else None
        count = word.get("sections", 1)
        if axis is not None and count > 1 and rank > 1:
            axis, size = axis % rank, shape[axis]
            if size % count:
                raise PlanError(f"axis {axis} of size {size} is not {count} equal sections")
            sections = (size // count,) * count
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise PlanError(f"axis {shown(axis)} of shape {brief(shape)}, which has rank {rank}")
    axis %= rank

    def number(key: str) -> int:
        found = names.value(says.get(key, 1))
        if found < 1:
            raise PlanError(f"{key} = {found}, and must be at least 1")
        return found

    pack = number("pack")
    unit = math.lcm(number("unit"), number("group_size"))
    if "groups" in says:
        unit = math.lcm(unit, _group(shape[axis] * pack, number("groups")))
    if "sections" in says:
        sections = tuple(names.value(entry) for entry in says["sections"])
    repeats = says.get("replicate", False)
    every = range(len(sections or (0,)))
    return Recipe(
        axis,
        sections,
        unit,
        frozenset(every if repeats is True else repeats or ()),
        number("pad_to") if "pad_to" in says else 0,
        pack,
        says.get("even", False),
    )


def _group(elements: int, groups: int) -> int:
    if elements % groups or not elements:
        raise PlanError(f"{elements} elements are not {groups} equal groups")
    return elements // groups
