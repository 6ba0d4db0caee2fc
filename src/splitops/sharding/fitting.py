"""Which numbers of ranks a plan allows, over all rules and tensors of a checkpoint together."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from splitops.errors import PlanError, SplitError
from splitops.ground.records import to_json_values
from splitops.sharding.cuts import Cut, RanksError, Recipe, possible_ranks, shard_extents
from splitops.sharding.heads import HeadRule
from splitops.sharding.plan_language import Matches, TensorKind

_MAX_TRIED: Final = 64
"""The number of possible numbers of ranks that a message looks for."""


@dataclass(frozen=True)
class Repeated:
    """A rule whose units, such as heads, are on several ranks.

    Attributes:
        rule: its number, from 1 on.
        match: its first glob.
        times: the number of ranks that hold each unit.
    """

    rule: int
    match: str
    times: int


@dataclass(frozen=True)
class Padded:
    """A rule whose axis is padded, or has to be.

    Attributes:
        rule: its number, from 1 on.
        match: its first glob.
        size: the elements of the axis.
        padded: its elements with the padding.
        pad_to: the multiple to which it is padded.
        planned: whether the plan pads it. If not, the cut fails unless the rule gets this ``pad_to``.
    """

    rule: int
    match: str
    size: int
    padded: int
    pad_to: int
    planned: bool

    def __str__(self) -> str:
        grown = f"{self.size} to {self.padded}"
        return grown if self.planned else f"pad_to = {self.pad_to} in rule {self.rule} ({grown})"


@dataclass(frozen=True)
class RankFit:
    """What a plan makes of a checkpoint on a number of ranks.

    Attributes:
        ranks: the number of ranks.
        verdict: ``"fits"``; ``"repeats"``, if units such as heads are on several ranks; ``"pads"``, if an
            axis is padded, or has to be; ``"impossible"``.
        reason: why the plan as it is cannot be cut so; "" if it can.
        repeats: the rules whose units repeat.
        padding: the rules whose axis is padded, or has to be.
        splits_heads: the numbers of the rules that cut through heads of attention, as transformers does.
        leaves_empty: the numbers of the rules of whose tensors some ranks hold nothing.
    """

    ranks: int
    verdict: str
    reason: str = ""
    repeats: tuple[Repeated, ...] = ()
    padding: tuple[Padded, ...] = ()
    splits_heads: tuple[int, ...] = ()
    leaves_empty: tuple[int, ...] = ()

    @property
    def works(self) -> bool:
        """Whether the plan as it is can be cut so."""
        return not self.reason

    @property
    def note(self) -> str:
        """The verdict in detail, in words."""
        if self.verdict == "impossible":
            return self.reason
        planned, needed = ([each for each in self.padding if each.planned is flag] for flag in (True, False))
        notes = [f"rule {each.rule}: each unit on {each.times} ranks" for each in self.repeats]
        notes += [f"rule {each.rule}: {each}" for each in planned]
        if needed:
            notes.append(f"needs {', '.join(map(str, needed))}")
        for what, rules in (
            ("splits attention heads", self.splits_heads),
            ("leaves ranks without a part", self.leaves_empty),
        ):
            if rules:
                notes.append(f"{what} (rule{'s' * (len(rules) > 1)} {', '.join(map(str, rules))})")
        return "; ".join(notes)

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return to_json_values(self)


def fit(matches: Matches, heads: Sequence[HeadRule], ranks: int) -> RankFit:
    """Return what a number of ranks makes of matched tensors."""
    repeats: dict[int, Repeated] = {}
    padding: dict[tuple[int, int], Padded] = {}
    reasons: dict[int, str] = {}
    empty: set[int] = set()
    for kind in matches.kinds:
        number = kind.rule.number
        try:
            padded, times, lacks = _outcome(kind, ranks)
        except SplitError as error:
            if number not in reasons:
                reasons[number] = kind.named(error.what if isinstance(error, RanksError) else error.message)
            continue
        if padded is not None:
            padding.setdefault((number, padded.size), padded)
        if lacks:
            empty.add(number)
        if times > 1:
            repeats.setdefault(number, Repeated(number, kind.rule.match[0], times))
    needed = _needed([kind for kind in matches.kinds if kind.rule.number in reasons], ranks)
    padding |= {(each.rule, each.size): each for found in needed.values() for each in found}
    lost = [number for number in reasons if not needed.get(number)]
    reason = reasons[lost[0]] if lost else next(iter(reasons.values()), "")
    split: set[int] = set()
    for each in heads if not reason else ():
        if each.rule.number not in split and each.splits(matches.kinds[each.kind].cut(ranks), ranks):
            split.add(each.rule.number)
    verdict = "impossible" if lost else "pads" if padding else "repeats" if repeats else "fits"
    rules = tuple(sorted(split)), tuple(sorted(empty))
    return RankFit(ranks, verdict, reason, tuple(repeats.values()), tuple(padding.values()), *rules)


def _outcome(kind: TensorKind, ranks: int) -> tuple[Padded | None, int, bool]:
    """Return how the axis of a kind is padded, on how many ranks each unit is, and whether some hold none."""
    recipe, tensor = kind.recipe, kind.tensor
    if recipe is None:
        kind.prove_place(ranks)
        return None, 1, False
    elements, pad_to = tensor.shape[recipe.axis] * recipe.pack, recipe.pad_to
    padded, times = -(-elements // pad_to) * pad_to if pad_to else elements, 1
    empty = -(-padded // ranks) * (ranks - 1) >= padded > 0
    if tensor.unit.elements > 1 or not recipe.is_simple:
        cut = kind.cut(ranks)
        for rank, shard in enumerate(cut.shards if tensor.unit.elements > 1 else ()):
            if shard is not None:
                shard_extents(tensor, cut, rank)  # an error if a piece is not whole bytes
        times = _times(cut) if recipe.replicate else 1
        empty = elements > 0 and any(shard is not None and not shard.size for shard in cut.shards)
    if padded == elements:
        return None, times, empty
    return Padded(kind.rule.number, kind.rule.match[0], elements, padded, pad_to, planned=True), times, empty


def _times(cut: Cut) -> int:
    counts = Counter((p.begin, p.size) for shard in cut.shards if shard is not None for p in shard.pieces)
    return max(counts.values(), default=1)


def _needed(kinds: Sequence[TensorKind], ranks: int) -> dict[int, list[Padded]]:
    """Return by rule the padding with which all its kinds could be cut. Rules that none helps are left out.

    A rule has one ``pad_to`` for all tensors that it matches.
    """
    rules: dict[int, list[tuple[TensorKind, Recipe]]] = {}
    for kind in kinds:
        if kind.recipe is not None:
            rules.setdefault(kind.rule.number, []).append((kind, kind.recipe))
    needed = {}
    for number, own in rules.items():
        units = (
            math.lcm(recipe.pad_to or 1, math.lcm(recipe.unit, recipe.pack) * ranks) for _, recipe in own
        )
        pad_to = math.lcm(*units)
        with contextlib.suppress(SplitError):
            found = [
                _outcome(replace(kind, recipe=replace(recipe, pad_to=pad_to)), ranks)[0]
                for kind, recipe in own
            ]
            needed[number] = [
                replace(each, planned=False) for each in dict.fromkeys(found) if each is not None
            ]
    return needed


def cuts_or_advice(matches: Matches, ranks: int) -> list[Cut]:
    """Return the cut of each kind.

    Raises:
        PlanError: they cannot be cut so. It names numbers of ranks over which all tensors can be cut, and if
            there is only 1, the padding that makes this number possible.
    """
    cuts = []
    for kind in matches.kinds:
        try:
            cuts.append(kind.cut(ranks))
        except SplitError as error:
            what, length, tried = error.message, 0, list(range(1, _MAX_TRIED + 1))
            if isinstance(error, RanksError):
                what, length, tried = error.what, error.length, list(error.good[:_MAX_TRIED])
            good = [number for number in tried if fit(matches, (), number).works]
            if good:  # else no number of ranks helps
                what = f"{what}: {possible_ranks(good, length)}"
            if good == [1]:
                what += _or_padding(fit(matches, (), ranks))
            raise PlanError(kind.named(what)) from error
    return cuts


def _or_padding(found: RankFit) -> str:
    """Return in words which padding makes a number of ranks possible."""
    needed = [each for each in found.padding if not each.planned]
    if found.verdict == "impossible" or not needed:
        return ""
    return f"; {found.ranks} ranks need {', '.join(map(str, needed))}"


def head_warnings(matches: Matches, heads: Sequence[HeadRule], ranks: int, cuts: Sequence[Cut]) -> list[str]:
    """Return a line for each rule that splits a head, with the numbers of ranks that keep all heads whole."""
    told: dict[int, HeadRule] = {}
    for each in heads:
        if each.rule.number not in told and each.splits(cuts[each.kind], ranks):
            told[each.rule.number] = each
    if not told:
        return []
    fits = [fit(matches, heads, n) for n in range(1, _MAX_TRIED + 1)]
    *others, last = [found.ranks for found in fits if found.works and not found.splits_heads] or [1]
    good = f"{', '.join(map(str, others[:8]))} or {last} ranks" if others else f"{last} rank"
    lines = []
    for _, each in sorted(told.items()):
        length, unit, number = each.size * each.pack, math.lcm(each.unit, each.pack), each.rule.number
        more = ""
        if not others and each.alone:
            pad_to = unit * ranks
            more = (
                f", or set {Padded(number, '', length, -(-length // pad_to) * pad_to, pad_to, planned=False)}"
            )
        elif not others and each.shared and ranks * unit % length == 0:
            more = f", or repeat them with unit = {unit} and replicate = true in rule {number}"
        lines.append(f"{each.told(ranks)} Use {good} to keep heads whole{more}.")
    return lines
