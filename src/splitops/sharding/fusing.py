"""Fused tensors and their parts: names, shapes and bytes, whole or of a rank."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitops.errors import PlanError, SplitError, brief, shown
from splitops.files.extents import Extent, inverse, steps_of
from splitops.files.tensors import StoredTensor
from splitops.sharding.boxes import strided
from splitops.sharding.documents import validate
from splitops.sharding.expressions import Names
from splitops.sharding.globs import filled, matched, tokens

_MOST_ROWS: Final = 1 << 22
Pieces = list[tuple[int, tuple[Extent, ...]]]


@dataclass(frozen=True, slots=True)
class FusionRule:
    """How one tensor is several others.

    Attributes:
        fused: the name of the one, with ``*`` for any text and ``{x}`` for any text between dots.
        parts: the names of the others, in the order in which they lie in it.
        axis: the axis of a part, of rank 2 and more, along which the parts lie side by side.
        sections: their sizes on it, as expressions; None is equal parts.
        groups: the axis is so many equal groups, each with its share of every part.
        stack: whether the one has a first axis more, whose entries are the numbers ``{e}`` of parts.
        transpose: whether the last two axes of the one are those of a part the other way round.
    """

    fused: str
    parts: tuple[str, ...]
    axis: int = 0
    sections: tuple[int | str, ...] | None = None
    groups: int | str = 1
    stack: bool = False
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that are parts of one.

    Attributes:
        rule: the position of the rule that says so.
        name: of the one.
        members: the position of each tensor, by expert and part.
    """

    rule: int
    name: str
    members: dict[tuple[int, int], int]


def rules_of(document: Mapping[str, Any], name: str) -> list[FusionRule]:
    """Return the rules of a plan.

    Raises:
        PlanError: it does not fit its schema, or names of a rule do not belong together.
    """
    validate(document, "refit", name)
    rules = []
    for number, entry in enumerate(document["rule"], 1):
        lists = {key: tuple(entry[key]) for key in ("parts", "sections") if key in entry}
        rule = FusionRule(**{**entry, **lists})
        wanted = sorted(tokens(rule.fused)) + (["{e}"] if rule.stack else [])
        strange = next((part for part in rule.parts if sorted(tokens(part)) != sorted(wanted)), None)
        if strange is not None or len(set(wanted)) < len(wanted):
            raise PlanError(
                f"{name}: rule {number}: {shown(strange or rule.fused)} must have each of "
                f"{', '.join(sorted(set(wanted))) or 'no * or braces'} once, as the fused name says"
            )
        if rule.sections is not None and len(rule.sections) != len(rule.parts):
            raise PlanError(
                f"{name}: rule {number}: {len(rule.sections)} sections of {len(rule.parts)} parts"
            )
        rules.append(rule)
    if not rules:
        raise PlanError(f"{name} has no rule")
    return rules


def unfused(
    rule: FusionRule, tensor: StoredTensor, names: Names
) -> list[tuple[StoredTensor, tuple[Extent, ...]]] | None:
    """Return the parts of a tensor, at no place yet, and which of its bytes each has; None of another name.

    Raises:
        PlanError: the tensor does not fit the rule.
    """
    captures = matched(rule.fused, tensor.name)
    if captures is None:
        return None
    form = _form(rule, tensor, names)
    made = []
    experts = range(tensor.shape[0]) if rule.stack else [0]
    for expert, part in itertools.product(experts, range(len(rule.parts))):
        name = filled(rule.parts[part], {**captures, "e": str(expert)})
        extents = form.extents(part, expert)
        made.append(
            (
                tensor._replace(
                    name=name, shape=form.shape(part), size=sum(extent.bytes for extent in extents)
                ),
                extents,
            )
        )
    return made


def grouped(rules: Sequence[FusionRule], names: Sequence[str]) -> list[int | Group]:
    """Return the tensors that are parts by groups, at the place of the first one, and others by position.

    Raises:
        PlanError: an expert has a name where the plan has a number.
    """
    made: list[int | Group] = []
    found: dict[tuple[int, str], Group] = {}
    for index, name in enumerate(names):
        place = _part_of(rules, name)
        if place is None:
            made.append(index)
            continue
        number, whole, part, expert = place
        if (number, whole) not in found:
            found[number, whole] = Group(number, whole, {})
            made.append(found[number, whole])
        found[number, whole].members[expert, part] = index
    return made


def _part_of(rules: Sequence[FusionRule], name: str) -> tuple[int, str, int, int] | None:
    """Return of which rule a tensor is a part, the name of the one, which part it is, and of which expert."""
    for number, rule in enumerate(rules):
        for part, glob in enumerate(rule.parts):
            captures = matched(glob, name)
            if captures is None:
                continue
            expert = captures.get("e", "0") if rule.stack else "0"
            if not (expert.isascii() and expert.isdigit() and str(int(expert)) == expert):
                raise PlanError(f"tensor {shown(name)} has {shown(expert)} where the plan has a number")
            return number, filled(rule.fused, captures), part, int(expert)
    return None


def fused(
    rule: FusionRule,
    group: Group,
    tensors: Mapping[int, StoredTensor] | Sequence[StoredTensor],
    names: Names,
    prove_equal: Callable[[int, int], None],
) -> tuple[StoredTensor, Pieces]:
    """Return the tensor that parts make up, at no place yet, and by position which bytes of each go where.

    Args:
        rule: that of the group.
        group: all its parts must be there and fit.
        tensors: by position.
        names: what expressions of the rule may use.
        prove_equal: rejects two scalars that differ: one value of the whole belongs to each of its parts.

    Raises:
        PlanError: a part is missing, or they do not fit together.
    """
    members, name = group.members, group.name
    experts = max(expert for expert, _ in members) + 1
    every = list(itertools.product(range(experts), range(len(rule.parts))))
    if len(members) < len(every):
        expert, part = next(place for place in every if place not in members)
        captures = matched(rule.fused, name) or {}
        glob = filled(rule.parts[part], {**captures, "e": str(expert)})
        raise PlanError(f"tensor {shown(name)} cannot be made: part {shown(glob)} is missing")
    row = [tensors[members[0, part]] for part in range(len(rule.parts))]
    shape = _joined([tensor.shape for tensor in row], rule.axis, name)
    if rule.transpose and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    whole = row[0]._replace(name=name, shape=(experts, *shape) if rule.stack else shape, size=0)
    form = _form(rule, whole, names)
    pieces: Pieces = []
    for expert, part in every:
        index = members[expert, part]
        tensor = tensors[index]
        if (tensor.code, tensor.shape) != (whole.code, form.shape(part)):
            raise PlanError(
                f"{tensor.label} is {tensor.code} {brief(tensor.shape)}, and as a part of {shown(name)} it "
                f"would be {whole.code} {brief(form.shape(part))}"
            )
        if not shape:  # a value of the whole: each part has it
            prove_equal(members[expert, 0], index)
        if shape or not part:
            pieces.append((index, tuple(map(inverse, form.extents(part, expert)))))
    return whole._replace(size=sum(tensors[index].size for index, _ in pieces)), pieces


def _joined(shapes: Sequence[tuple[int, ...]], axis: int, name: str) -> tuple[int, ...]:
    """Return the shape of parts side by side."""
    rank = len(shapes[0])
    axis = axis if rank > 1 else 0
    if any(len(shape) != rank for shape in shapes) or (rank and not 0 <= axis < rank):
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} have no axis {axis}")
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} differ beside axis {axis}")
    if not rank:
        return ()
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


@dataclass(frozen=True, slots=True)
class _Form:
    """How a fused tensor holds its parts: one expert's is ``block``, in the order of a part's axes."""

    tensor: StoredTensor
    block: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    groups: int
    transpose: bool

    def shape(self, part: int) -> tuple[int, ...]:
        if not self.block:
            return ()
        return (*self.block[: self.axis], self.sizes[part], *self.block[self.axis + 1 :])

    def extents(self, part: int, expert: int) -> tuple[Extent, ...]:
        """Return which bytes of the fused tensor go to a part, both from their first byte on."""
        shape = self.shape(part)
        steps, own = steps_of(self.block), steps_of(shape)
        if self.transpose:
            steps[-2:] = 1, self.block[-2]
        begin = expert * math.prod(self.block)
        walks = list(zip(shape, steps, own, strict=True))
        if walks:
            count, step, apart = walks[self.axis]
            each, group = count // self.groups, sum(self.sizes) // self.groups
            begin += sum(self.sizes[:part]) // self.groups * step
            walks[self.axis : self.axis + 1] = (
                (self.groups, group * step, each * apart),
                (each, step, apart),
            )
        try:
            return tuple(strided(self.tensor, begin, walks))
        except PlanError as error:
            raise PlanError(f"{self.tensor.label}: {error.message}") from error


def _form(rule: FusionRule, tensor: StoredTensor, names: Names) -> _Form:
    block = tensor.shape[1:] if rule.stack else tensor.shape
    transpose = rule.transpose and len(block) > 1
    if transpose:
        block = (*block[:-2], block[-1], block[-2])
    axis = rule.axis if len(block) > 1 else 0
    try:
        if (rule.stack and not tensor.shape) or axis >= len(block) > 0:
            raise PlanError(f"shape {brief(tensor.shape)} has no such axes")
        if not block:  # a value of the whole, as the scale of a quantised one: each part has it
            return _Form(tensor, block, 0, (1,) * len(rule.parts), 1, transpose=False)
        size, count = block[axis], len(rule.parts)
        if rule.sections is None:
            if size % count:
                raise PlanError(f"an axis of size {size} is not {count} equal parts")
            sizes = (size // count,) * count
        else:
            sizes = tuple(names.value(section) for section in rule.sections)
        groups = names.value(rule.groups)
        if min(sizes) < 0 or sum(sizes) != size:
            raise PlanError(f"parts of {brief(sizes)} are {sum(sizes)}, and the axis has size {size}")
        if groups < 1 or any(each % groups for each in sizes):
            raise PlanError(f"parts of {brief(sizes)} are not {groups} equal groups")
        if transpose and math.prod(tensor.shape) // max(1, block[-1]) > _MOST_ROWS:
            raise PlanError(f"more than {_MOST_ROWS} rows to transpose")
    except SplitError as error:
        raise PlanError(f"{tensor.label}, rule {shown(rule.fused)}: {error.message}") from error
    return _Form(tensor, block, axis, sizes, groups, transpose)
