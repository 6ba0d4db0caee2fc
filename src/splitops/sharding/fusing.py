"""Fuse and unfuse the tensors of an unsharded checkpoint or of one rank: names, shapes and extents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from splitops.errors import PlanError, SplitError, brief, count_of, shown
from splitops.files.extents import Extent, compute_strides, invert
from splitops.files.tensors import StoredTensor
from splitops.sharding.boxes import iter_strided
from splitops.sharding.documents import validate
from splitops.sharding.expressions import Names
from splitops.sharding.globs import Globs, fill_glob, list_wildcards, match_glob

_MAX_ROWS: Final = 1 << 22
_MAX_ENTRIES: Final = 1 << 20
Form = tuple[Extent, ...]
"""Extents that copy a part to or from a fused tensor, with offsets from the first byte of each tensor."""
Copied = tuple[int, Form]
"""The index of a source tensor, and the extents that copy its bytes."""
_Part = tuple[tuple[int, ...], Form]


@dataclass(frozen=True, slots=True)
class FusionRule:
    """A fused tensor and its parts. ``fuse_plan.schema.json`` documents the fields."""

    fused: str
    parts: tuple[str, ...]
    axis: int = 0
    sections: tuple[int | str, ...] | None = None
    groups: int | str = 1
    stack: bool = False
    transpose: bool = False


class FusedGroup(NamedTuple):
    """A fused tensor: the index of its rule, its name, and the indices of its parts, by (expert, part)."""

    rule: int
    name: str
    members: dict[tuple[int, int], int]


def read_fusion_rules(document: Mapping[str, Any], name: str) -> list[FusionRule]:
    """Parse the rules of a document. ``name`` is its name in messages."""
    validate(document, "fuse_plan", name)
    rules = []
    for number, entry in enumerate(document["rule"], 1):
        lists = {key: tuple(entry[key]) for key in ("parts", "sections") if key in entry}
        rule = FusionRule(**{**entry, **lists})
        unnamed = next((glob for glob in (rule.fused, *rule.parts) if "?" in list_wildcards(glob)), None)
        if unnamed is not None:
            raise PlanError(f"{name}: rule {number}: {shown(unnamed)} has a ?: use * or a name such as {{x}}")
        wanted = sorted(list_wildcards(rule.fused)) + (["{e}"] if rule.stack else [])
        strange = next((part for part in rule.parts if sorted(list_wildcards(part)) != sorted(wanted)), None)
        if strange is not None or len(set(wanted)) < len(wanted):
            known = f"each of {', '.join(sorted(set(wanted)))} once" if wanted else "no * or braces"
            wrong = shown(strange or rule.fused)
            raise PlanError(f"{name}: rule {number}: {wrong} must have {known}, like the fused name")
        if rule.sections is not None and len(rule.sections) != len(rule.parts):
            raise PlanError(
                f"{name}: rule {number} has {count_of(len(rule.sections), 'section')} for "
                f"{count_of(len(rule.parts), 'part')}"
            )
        rules.append(rule)
    if not rules:
        raise PlanError(f"{name} has no rule")
    return rules


class Fusions:
    """Applies fusion rules to tensors by name. Results are cached by rule, shape and type."""

    def __init__(self, rules: Sequence[FusionRule], names: Names, *, free: bool = False) -> None:
        """Compile rules. ``names`` evaluates their expressions. ``free`` allows fusing parts of any sizes."""
        self.rules = rules
        self._names, self._free = names, free
        self._wholes = Globs(rule.fused for rule in rules)
        self._parts = Globs(part for rule in rules for part in rule.parts)
        self._places = [
            (number, part) for number, rule in enumerate(rules) for part in range(len(rule.parts))
        ]
        self._known: dict[tuple[object, ...], list[_Part]] = {}

    def unfuse(self, tensor: StoredTensor) -> tuple[int, list[tuple[StoredTensor, Form]]] | None:
        """Return the index of the rule that matches ``tensor``, and the parts with their extents, or None."""
        found = self._wholes.find(tensor.name)
        if found is None:
            return None
        number, captures = found
        rule = self.rules[number]
        key = number, tensor.shape, tensor.code
        if key not in self._known:
            self._known[key] = _unfuse(rule, tensor, self._names)
        made = []
        for place, (shape, form) in enumerate(self._known[key]):
            expert, part = divmod(place, len(rule.parts))
            name = fill_glob(rule.parts[part], {**captures, "e": str(expert)})
            size = sum(extent.bytes for extent in form)
            made.append((tensor._replace(name=name, shape=shape, size=size), form))
        return number, made

    def group_parts(self, names: Sequence[str]) -> list[int | FusedGroup]:
        """Group the names of parts by their fused tensor. A name that no rule matches becomes its index."""
        made: list[int | FusedGroup] = []
        found: dict[tuple[int, str], FusedGroup] = {}
        for index, name in enumerate(names):
            place = self._parts.find(name)
            if place is None:
                made.append(index)
                continue
            (number, part), captures = self._places[place[0]], place[1]
            rule = self.rules[number]
            expert = captures.get("e", "0") if rule.stack else "0"
            digits = expert.isascii() and expert.isdigit() and len(expert) < 10
            if not (digits and str(int(expert)) == expert):
                raise PlanError(f"tensor {shown(name)} has {shown(expert)}, not the number of an expert")
            whole = fill_glob(rule.fused, captures)
            group = found.get((number, whole))
            if group is None:
                group = found[number, whole] = FusedGroup(number, whole, {})
                made.append(group)
            group.members[int(expert), part] = index
        return made

    def fuse(
        self,
        group: FusedGroup,
        tensors: Mapping[int, StoredTensor] | Sequence[StoredTensor],
        check_equal: Callable[[int, int], None],
    ) -> tuple[StoredTensor, list[Copied]]:
        """Return the fused tensor of a group, and for each copied part, its index and extents.

        The tensor keeps the file and the offset of its first part. Scalar parts of an expert must be equal:
        ``check_equal`` gets the indices of two of them, and raises an error if they differ.
        """
        rule, members = self.rules[group.rule], group.members
        experts = max(members)[0] + 1
        every = itertools.product(range(min(experts, len(members) + 1)), range(len(rule.parts)))
        if len(members) < experts * len(rule.parts):
            expert, part = next(place for place in every if place not in members)
            captures = match_glob(rule.fused, group.name) or {}
            glob = fill_glob(rule.parts[part], {**captures, "e": str(expert)})
            raise PlanError(f"cannot fuse tensor {shown(group.name)}: part {shown(glob)} is missing")
        own = [members[place] for place in every]
        found = [tensors[index] for index in own]
        key = group.rule, *((tensor.shape, tensor.code) for tensor in found)
        if key not in self._known:
            self._known[key] = self._fuse(rule, group.name, found)
        (shape, _), *parts = self._known[key]
        copied = [(index, form) for index, (_, form) in zip(own, parts, strict=True)]
        if not parts[0][0]:  # a scalar of the fused tensor, which each part repeats
            for place, index in enumerate(own):
                check_equal(own[place - place % len(rule.parts)], index)
            copied = copied[:: len(rule.parts)]
        size = sum(tensors[index].size for index, _ in copied)
        return found[0]._replace(name=group.name, shape=shape, size=size), copied

    def fuse_rows(self, group: FusedGroup, rows: Sequence[StoredTensor]) -> tuple[StoredTensor, list[Copied]]:
        """Fuse the vectors ``rows`` like :meth:`fuse`, even if parts are missing.

        A missing part has the size that the rule sets, or that of another part. The returned indices are
        part numbers.
        """
        rule = self.rules[group.rule]
        own = {part: rows[index] for (_, part), index in group.members.items()}
        first = next(iter(own.values()))
        for part, name in enumerate(rule.parts):
            if part not in own:
                size = first.shape[0] if rule.sections is None else self._names.evaluate(rule.sections[part])
                own[part] = first._replace(name=name, shape=(size,), size=size)
        return self.fuse(group._replace(members={(0, part): part for part in own}), own, lambda *_: None)

    def has_rule(self, name: str, *, to_fused: bool) -> bool:
        """Return whether a rule fuses (``to_fused``) or unfuses the tensor ``name``."""
        return (self._parts if to_fused else self._wholes).find_index(name) is not None

    def _fuse(self, rule: FusionRule, name: str, found: Sequence[StoredTensor]) -> list[_Part]:
        """Return the shape of the fused tensor, then the shape and the extents of each part."""
        count = len(rule.parts)
        row = [tensor.shape for tensor in found[:count]]
        shape = _concat_shapes(row, rule.axis, name)
        axis = rule.axis if len(shape) > 1 else 0
        sizes = [part[axis] for part in row] if self._free and all(row) else None
        if rule.transpose and len(shape) > 1:
            shape = (*shape[:-2], shape[-1], shape[-2])
        if rule.stack:
            shape = (len(found) // count, *shape)
        whole = found[0]._replace(name=name, shape=shape, size=0)
        parts = _unfuse(rule, whole, self._names, sizes)
        for tensor, (wanted, _) in zip(found, parts, strict=True):
            if (tensor.code, tensor.shape) != (whole.code, wanted):
                raise PlanError(
                    f"{tensor.label} is {tensor.code} {brief(tensor.shape)}, but a part of {shown(name)} "
                    f"has to be {whole.code} {brief(wanted)}"
                )
        return [(shape, ()), *((wanted, tuple(map(invert, form))) for wanted, form in parts)]


def _concat_shapes(shapes: Sequence[tuple[int, ...]], axis: int, name: str) -> tuple[int, ...]:
    """Return the shape of the concatenation of parts along ``axis``, or along the only axis of vectors."""
    rank = len(shapes[0])
    axis = axis if rank > 1 else 0
    if any(len(shape) != rank for shape in shapes) or (rank and not 0 <= axis < rank):
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} have no common axis {axis}")
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} differ outside axis {axis}")
    if not rank:
        return ()
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _unfuse(
    rule: FusionRule, tensor: StoredTensor, names: Names, sizes: Sequence[int] | None = None
) -> list[_Part]:
    """Return the shape and the extents of each part of a fused tensor, ordered by expert, then by part."""
    block = tensor.shape[1:] if rule.stack else tensor.shape
    transpose = rule.transpose and len(block) > 1
    if transpose:
        block = (*block[:-2], block[-1], block[-2])
    steps, axis = compute_strides(block), rule.axis if len(block) > 1 else 0
    try:
        if (rule.stack and not tensor.shape) or axis >= len(block) > 0:
            raise PlanError(f"shape {brief(tensor.shape)} has too few axes")
        if rule.stack and tensor.shape[0] > _MAX_ENTRIES:
            raise PlanError(f"there are more than {_MAX_ENTRIES} entries to unfuse")
        if transpose:
            steps[-2:] = 1, block[-2]
            if math.prod(tensor.shape) // max(1, block[-1]) > _MAX_ROWS:
                raise PlanError(f"there are more than {_MAX_ROWS} rows to transpose")
        groups = names.evaluate(rule.groups)
        sizes = _find_sizes(rule, block[axis], groups, names, sizes) if block else [1] * len(rule.parts)
        made: list[_Part] = []
        for expert, part in itertools.product(range(tensor.shape[0] if rule.stack else 1), range(len(sizes))):
            shape = (*block[:axis], sizes[part], *block[axis + 1 :]) if block else ()
            begin = expert * math.prod(block)
            walks = list(zip(shape, steps, compute_strides(shape), strict=True))
            if walks:
                count, step, target_step = walks[axis]
                each, group = count // groups, sum(sizes) // groups
                begin += sum(sizes[:part]) // groups * step
                walks[axis : axis + 1] = (groups, group * step, each * target_step), (each, step, target_step)
            made.append((shape, tuple(iter_strided(tensor, begin, walks))))
    except SplitError as error:
        raise PlanError(f"{tensor.label}, rule {shown(rule.fused)}: {error.message}") from error
    return made


def _find_sizes(
    rule: FusionRule, size: int, groups: int, names: Names, sizes: Sequence[int] | None
) -> Sequence[int]:
    """Return ``sizes`` or, by default, those of the rule. Check that they fit the axis and the groups."""
    count = len(rule.parts)
    if sizes is None and rule.sections is None:
        if size % count:
            raise PlanError(f"an axis of size {size} cannot be divided into {count} equal parts")
        sizes = [size // count] * count
    elif sizes is None:
        sizes = [names.evaluate(section) for section in rule.sections or ()]
    if min(sizes) < 0 or sum(sizes) != size:
        raise PlanError(f"parts of sizes {brief(sizes)} sum to {sum(sizes)}, but the axis has size {size}")
    if groups < 1 or any(each % groups for each in sizes):
        raise PlanError(f"parts of sizes {brief(sizes)} cannot be divided into {groups} equal groups")
    return sizes
