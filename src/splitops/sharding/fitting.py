"""Search for the numbers of ranks over which a plan can shard a checkpoint."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from splitops.common.json_values import to_json_values
from splitops.errors import PlanError, SplitError
from splitops.sharding.heads import HeadRule, find_heads
from splitops.sharding.plan_language import Matches, TensorKind
from splitops.sharding.tensor_sharding import (
    AxisSharding,
    RanksError,
    TensorSharding,
    format_possible_ranks,
    shard_extents,
)

_MAX_TRIED: Final = 64
"""Maximum number of rank counts that are tried when a message lists the possible ones."""


@dataclass(frozen=True)
class Repeated:
    """A rule whose units, such as heads, are stored on several ranks.

    Attributes:
        rule: number of the rule, from 1.
        match: first glob of the rule.
        times: maximum number of ranks that store the same unit, for the first tensor of the rule with
            repeated units.
    """

    rule: int
    match: str
    times: int


@dataclass(frozen=True)
class Padded:
    """A rule whose axis is padded or must be padded.

    Attributes:
        rule: number of the rule, from 1.
        match: first glob of the rule.
        size: number of elements along the axis.
        padded: number of elements with padding.
        pad_to: the padded size is a multiple of this number.
        planned: whether the plan or ``pad_for`` requires the padding. If not, sharding fails until the rule
            sets ``pad_to``.
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
    """Whether and how a plan can shard a checkpoint over a number of ranks.

    Attributes:
        ranks: number of ranks.
        verdict: ``"fits"``; ``"repeats"`` if units such as heads are stored on several ranks; ``"pads"`` if
            an axis is padded or must be padded; or ``"impossible"``.
        reason: why sharding fails without changes to the plan; empty if it does not fail.
        repeats: rules whose units are stored on several ranks.
        padding: rules whose axis is padded or must be padded.
        splits_heads: numbers of the rules that split attention heads, as transformers does.
        leaves_empty: numbers of the rules that leave some ranks without elements of a sharded axis.
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
        """Whether sharding works without changes to the plan."""
        return not self.reason

    @property
    def note(self) -> str:
        """Details of the verdict as text: a reason, or repeated units, padding, split heads, empty ranks."""
        if self.verdict == "impossible":
            return self.reason
        planned, needed = ([each for each in self.padding if each.planned is flag] for flag in (True, False))
        notes = [f"rule {each.rule}: units are on up to {each.times} ranks" for each in self.repeats]
        notes += [f"rule {each.rule}: {each}" for each in planned]
        if needed:
            notes.append(f"needs {', '.join(map(str, needed))}")
        for what, rules in (
            ("splits attention heads", self.splits_heads),
            ("leaves ranks without elements", self.leaves_empty),
        ):
            if rules:
                notes.append(f"{what} (rule{'s' * (len(rules) > 1)} {', '.join(map(str, rules))})")
        return "; ".join(notes)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON-serialisable values."""
        return to_json_values(self)


def fit_ranks(matches: Matches, heads: Sequence[HeadRule], ranks: int) -> RankFit:
    """Return how ``ranks`` can share tensors, or why not. ``heads`` are the rules that may split heads."""
    repeats: dict[int, Repeated] = {}
    padding: dict[tuple[int, int], Padded] = {}
    reasons: dict[int, str] = {}
    empty: set[int] = set()
    for kind in matches.kinds:
        number = kind.rule.number
        try:
            padded, times, lacks = _fit_kind(kind, ranks)
        except SplitError as error:
            if number not in reasons:
                what = error.what if isinstance(error, RanksError) else error.message
                reasons[number] = kind.add_context(what)
            continue
        if padded is not None:
            padding.setdefault((number, padded.size), padded)
        if lacks:
            empty.add(number)
        if times > 1:
            repeats.setdefault(number, Repeated(number, kind.rule.match[0], times))
    needed = _find_padding([kind for kind in matches.kinds if kind.rule.number in reasons], ranks)
    padding |= {(each.rule, each.size): each for found in needed.values() for each in found}
    lost = [number for number in reasons if not needed.get(number)]
    reason = reasons[lost[0]] if lost else next(iter(reasons.values()), "")
    split: set[int] = set()
    for each in heads if not reason else ():
        if each.rule.number not in split and each.has_split_head(matches.kinds[each.kind].cut(ranks), ranks):
            split.add(each.rule.number)
    verdict = "impossible" if lost else "pads" if padding else "repeats" if repeats else "fits"
    rules = tuple(sorted(split)), tuple(sorted(empty))
    return RankFit(ranks, verdict, reason, tuple(repeats.values()), tuple(padding.values()), *rules)


def _fit_kind(kind: TensorKind, ranks: int) -> tuple[Padded | None, int, bool]:
    """Return the padding of a kind (or None), the largest number of ranks per unit, and whether any is empty.

    Ranks without elements of a sharded axis are empty.
    """
    axis_sharding, tensor = kind.axis_sharding, kind.tensor
    if axis_sharding is None:
        kind.check_place(ranks)
        return None, 1, False
    elements, pad_to = tensor.shape[axis_sharding.axis] * axis_sharding.pack, axis_sharding.pad_to
    padded, times = -(-elements // pad_to) * pad_to if pad_to else elements, 1
    empty = -(-padded // ranks) * (ranks - 1) >= padded > 0
    if tensor.unit.elements > 1 or not axis_sharding.is_simple:
        cut = kind.cut(ranks)
        for rank, shard in enumerate(cut.shards if tensor.unit.elements > 1 else ()):
            if shard is not None:
                shard_extents(tensor, cut, rank)  # raises if a piece does not consist of complete bytes
        padded = (cut.padded or tensor.shape[axis_sharding.axis]) * axis_sharding.pack
        times = _count_repeats(cut) if axis_sharding.replicate else 1
        empty = elements > 0 and any(shard is not None and not shard.size for shard in cut.shards)
    if padded == elements:
        return None, times, empty
    return Padded(kind.rule.number, kind.rule.match[0], elements, padded, pad_to, planned=True), times, empty


def _count_repeats(cut: TensorSharding) -> int:
    counts = Counter((p.begin, p.size) for shard in cut.shards if shard is not None for p in shard.pieces)
    return max(counts.values(), default=1)


def _find_padding(kinds: Sequence[TensorKind], ranks: int) -> dict[int, list[Padded]]:
    """Return, by rule number, the padding that makes sharding possible. Omit rules that it cannot help.

    A rule has one ``pad_to`` for all tensors that it matches. Rules for axes of heads are left out, because
    queries would use other keys with padding. So are rules with sections, which may be such heads.
    """
    rules: dict[int, list[tuple[TensorKind, AxisSharding]]] = {}
    for kind in kinds:
        if kind.axis_sharding is not None:
            rules.setdefault(kind.rule.number, []).append((kind, kind.axis_sharding))
    needed = {}
    for number, own in rules.items():
        units = (
            math.lcm(axis_sharding.pad_to or 1, math.lcm(axis_sharding.unit, axis_sharding.pack) * ranks)
            for _, axis_sharding in own
        )
        pad_to = math.lcm(*units)
        if any(
            axis_sharding.sections is not None
            or find_heads(kind.tensor.name, len(kind.tensor.shape), axis_sharding.axis)
            for kind, axis_sharding in own
        ):
            continue
        with contextlib.suppress(SplitError):
            found = [
                _fit_kind(replace(kind, axis_sharding=replace(axis_sharding, pad_to=pad_to)), ranks)[0]
                for kind, axis_sharding in own
            ]
            needed[number] = [
                replace(each, planned=False) for each in dict.fromkeys(found) if each is not None
            ]
    return needed


def make_cuts(matches: Matches, ranks: int) -> list[TensorSharding]:
    """Return the sharding of each kind.

    If a kind cannot be sharded, raise PlanError. The message lists numbers of ranks that work, if any.
    """
    cuts = []
    for kind in matches.kinds:
        try:
            cuts.append(kind.cut(ranks))
        except SplitError as error:
            what, length, tried = error.message, 0, list(range(1, _MAX_TRIED + 1))
            if isinstance(error, RanksError):
                what, length, tried = error.what, error.length, list(error.good[:_MAX_TRIED])
            good = [number for number in tried if fit_ranks(matches, (), number).works]
            if good:
                what = f"{what}: {format_possible_ranks(good, length)}"
            if good == [1]:
                what += suggest_padding(fit_ranks(matches, (), ranks))
            raise PlanError(kind.add_context(what)) from error
    return cuts


def suggest_padding(found: RankFit) -> str:
    """Return text to append to a message: the padding with which sharding works. Empty if there is none."""
    needed = [each for each in found.padding if not each.planned]
    if found.verdict == "impossible" or not needed:
        return ""
    return f"; {found.ranks} ranks need {', '.join(map(str, needed))}"


def warn_of_heads(
    matches: Matches, heads: Sequence[HeadRule], ranks: int, cuts: Sequence[TensorSharding]
) -> list[str]:
    """Return a warning for each rule that splits attention heads. Each suggests other numbers of ranks."""
    found_rules: dict[int, HeadRule] = {}
    for each in heads:
        if each.rule.number not in found_rules and each.has_split_head(cuts[each.kind], ranks):
            found_rules[each.rule.number] = each
    if not found_rules:
        return []
    fits = [fit_ranks(matches, heads, n) for n in range(1, _MAX_TRIED + 1)]
    *others, last = [found.ranks for found in fits if found.works and not found.splits_heads] or [1]
    good = f"{', '.join(map(str, others[:8]))} or {last} ranks" if others else f"{last} rank"
    lines = []
    for _, each in sorted(found_rules.items()):
        length, unit, number = each.size * each.pack, math.lcm(each.unit, each.pack), each.rule.number
        more = ""
        if not others and each.alone:
            pad_to = unit * ranks
            more = (
                f", or set {Padded(number, '', length, -(-length // pad_to) * pad_to, pad_to, planned=False)}"
            )
        elif not others and each.shared and ranks * unit % length == 0:
            more = f", or repeat them with unit = {unit} and replicate = true in rule {number}"
        lines.append(f"{each.format_warning(ranks)} Use {good} to keep heads whole{more}.")
    return lines
