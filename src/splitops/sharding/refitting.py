"""Fused tensors taken apart inside a checkpoint, and put together again: names, axes and extents."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from splitops.errors import PlanError, SplitError, brief, shown, shown_path
from splitops.files.extents import Extent, contiguous, inverse, walked
from splitops.files.folders import INDEX
from splitops.files.formats import Contents, TargetFile, format_named
from splitops.files.plans import FilePlan
from splitops.files.tensors import StoredTensor, without_collector
from splitops.sharding.assembly import file_plan
from splitops.sharding.checkpoint import Checkpoint
from splitops.sharding.documents import parse, read, validate
from splitops.sharding.expressions import Names
from splitops.sharding.placements import Laid
from splitops.sharding.planning import Runnable, open_checkpoint
from splitops.sharding.tables import known_fusions

_TOKEN: Final = re.compile(r"\*|\{[A-Za-z_]\w*\}")
_MOST_EXTENTS: Final = 1 << 22
AnyPath = str | os.PathLike[str]


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
class Refitted:
    """A tensor of the new checkpoint.

    Attributes:
        stored: its name, type, shape and size; ``file`` is that of the first tensor that it is made from.
        pieces: of each tensor that it is made from, the position and which bytes go where.
    """

    stored: StoredTensor
    pieces: tuple[tuple[int, tuple[Extent, ...]], ...]


@dataclass(frozen=True)
class RefitPlan(Runnable):
    """A checkpoint with other tensors of the same bytes: proved to fit, nothing written yet.

    Attributes:
        checkpoint: what is read.
        tensors: those of the new checkpoint, in the order of the old one.
        changed: of each rule that was used, its fused name, how many tensors it replaced, and by how many.
    """

    checkpoint: Checkpoint
    tensors: tuple[Refitted, ...]
    changed: tuple[tuple[str, int, int], ...]

    @without_collector()
    def file_plan(self, out: AnyPath) -> FilePlan:
        """Return which bytes of which files go where."""
        source = self.checkpoint
        form = format_named("safetensors")
        files: list[TargetFile] = []
        extents: list[list[Extent]] = [[] for _ in source.tensors]
        where: dict[str, str] = {}
        for number, file in enumerate(source.files):
            held = [tensor for tensor in self.tensors if tensor.stored.file == number]
            like = Contents(form, (), (), file.metadata)
            laid = form.lay_out([tensor.stored for tensor in held], like, file.name)
            for tensor, (_, offset) in zip(held, laid.places.tolist(), strict=True):
                where[tensor.stored.name] = file.name
                for index, found in tensor.pieces:
                    extents[index] += [
                        e._replace(target=number, target_offset=e.target_offset + offset) for e in found
                    ]
            files += laid.files
        written = [
            _index(other.name, other.source.read(0, other.source.size), where)
            for other in source.others
            if other.name.endswith(INDEX)
        ]
        others = tuple(other for other in source.others if not other.name.endswith(INDEX))
        laid_out = Laid(tuple(files), tuple(map(tuple, extents)))
        return file_plan(replace(source, others=others), laid_out, written, [("", True)], Path(out))


def _index(name: str, text: bytes, where: Mapping[str, str]) -> TargetFile:
    """Return an index of other tensors, which says all else that it said, written as transformers does."""
    document = {**parse(text, name), "weight_map": where}
    new = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()
    new += b"\n" if text.endswith(b"\n") else b""
    return TargetFile(name, len(new), ((0, new),))


def refit(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any],
    *,
    invert: bool = False,
    allow_links: bool = False,
) -> RefitPlan:
    """Plan a checkpoint whose fused tensors are taken apart, or whose parts are fused; nothing is written.

    Args:
        path: a model's folder of safetensors.
        plan: ``"unfuse"`` or ``"fuse"``, which go by ``config.json``; or a file of rules in TOML or JSON, or
            what it says, which takes the fused tensors apart.
        invert: whether the rules of a file are applied the other way round: they fuse the parts.
        allow_links: whether links in the folder may lead out of it, as in the cache of a hub.

    Returns:
        The plan: ``dry_run(out)`` says what it would do, ``run(out)`` does it.

    Raises:
        PlanError: the rules are not known for such a model, are malformed, or do not fit a tensor; a part is
            missing.
        FileError: a file is missing or malformed.
    """
    checkpoint = open_checkpoint(path, allow_links=allow_links)
    strange = next((file.name for file in checkpoint.files if not file.name.endswith(".safetensors")), None)
    if strange is not None:
        raise PlanError(f"{shown(strange)} is not a file of safetensors, of which refit makes others")
    if plan in ("unfuse", "fuse"):
        if invert:
            raise PlanError(f"invert is for a plan of your own: choose fuse or unfuse, not {plan} inverted")
        document: Any = {"version": 1, "rule": known_fusions(checkpoint.config)}
    else:
        document = plan if isinstance(plan, Mapping) else read(Path(plan))
    name = "the plan" if isinstance(plan, Mapping) else shown_path(plan)
    rules = rules_of(document, name)
    names = Names(document.get("vars", {}), checkpoint.config)
    fuse = plan == "fuse" or invert
    with without_collector():
        tensors, counts = (_fused if fuse else _unfused)(rules, checkpoint.tensors, names)
    if not counts:
        wanted = rules[0].parts[0] if fuse else rules[0].fused
        raise PlanError(f"no tensor of {checkpoint.name} has a name of the plan, such as {shown(wanted)}")
    doubled = Counter(tensor.stored.name for tensor in tensors).most_common(1)[0]
    if doubled[1] > 1:
        raise PlanError(f"{doubled[1]} tensors would have the name {shown(doubled[0])}")
    changed = [(rules[number].fused, *count) for number, count in sorted(counts.items())]
    return RefitPlan(checkpoint, tuple(tensors), tuple(changed))


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
        wanted = sorted(_TOKEN.findall(rule.fused)) + (["{e}"] if rule.stack else [])
        strange = next((part for part in rule.parts if sorted(_TOKEN.findall(part)) != sorted(wanted)), None)
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


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    pieces, at = "", 0
    for token in _TOKEN.finditer(glob):
        group = "(?P<_any>.*)" if token[0] == "*" else f"(?P<{token[0][1:-1]}>[^.]+)"
        pieces += re.escape(glob[at : token.start()]) + group
        at = token.end()
    return re.compile(pieces + re.escape(glob[at:]), re.DOTALL)


def _filled(glob: str, captures: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda token: captures["_any" if token[0] == "*" else token[0][1:-1]], glob)


_Counts = dict[int, tuple[int, int]]


def _unfused(
    rules: Sequence[FusionRule], tensors: Sequence[StoredTensor], names: Names
) -> tuple[list[Refitted], _Counts]:
    made: list[Refitted] = []
    counts: _Counts = {}
    for index, tensor in enumerate(tensors):
        matches = ((number, _pattern(rule.fused).fullmatch(tensor.name)) for number, rule in enumerate(rules))
        number, match = next(((number, match) for number, match in matches if match), (0, None))
        if match is None:
            made.append(_kept(index, tensor))
            continue
        rule = rules[number]
        form = _form(rule, tensor, names)
        experts = range(tensor.shape[0]) if rule.stack else [0]
        for expert, part in itertools.product(experts, range(len(rule.parts))):
            name = _filled(rule.parts[part], {**match.groupdict(), "e": str(expert)})
            shape = form.shape(part)
            stored = tensor._replace(name=name, shape=shape, size=form.bytes(math.prod(shape)))
            made.append(Refitted(stored, ((index, tuple(form.extents(part, expert))),)))
        before = counts.get(number, (0, 0))
        counts[number] = before[0] + 1, before[1] + len(experts) * len(rule.parts)
    return made, counts


def _fused(
    rules: Sequence[FusionRule], tensors: Sequence[StoredTensor], names: Names
) -> tuple[list[Refitted], _Counts]:
    made: list[Refitted | tuple[int, str]] = []
    found: dict[tuple[int, str], dict[tuple[int, int], int]] = {}
    for index, tensor in enumerate(tensors):
        place = _part_of(rules, tensor.name)
        if place is None:
            made.append(_kept(index, tensor))
            continue
        number, fused, part, expert = place
        if (number, fused) not in found:
            made.append((number, fused))
        found.setdefault((number, fused), {})[expert, part] = index
    counts: _Counts = {}
    whole = []
    for entry in made:
        if isinstance(entry, Refitted):
            whole.append(entry)
            continue
        number, name = entry
        members = found[entry]
        whole.append(_joined(rules[number], name, members, tensors, names))
        before = counts.get(number, (0, 0))
        counts[number] = before[0] + len(members), before[1] + 1
    return whole, counts


def _kept(index: int, tensor: StoredTensor) -> Refitted:
    return Refitted(tensor, ((index, (contiguous(0, 0, 0, 0, tensor.size),) if tensor.size else ()),))


def _part_of(rules: Sequence[FusionRule], name: str) -> tuple[int, str, int, int] | None:
    """Return of which rule a tensor is a part, the name of the one, which part it is, and of which expert."""
    for number, rule in enumerate(rules):
        for part, glob in enumerate(rule.parts):
            match = _pattern(glob).fullmatch(name)
            if match is None:
                continue
            expert = match.groupdict().get("e", "0") if rule.stack else "0"
            if not (expert.isascii() and expert.isdigit() and str(int(expert)) == expert):
                raise PlanError(f"tensor {shown(name)} has {shown(expert)} where the plan has a number")
            return number, _filled(rule.fused, match.groupdict()), part, int(expert)
    return None


def _joined(
    rule: FusionRule,
    name: str,
    members: Mapping[tuple[int, int], int],
    tensors: Sequence[StoredTensor],
    names: Names,
) -> Refitted:
    """Return the tensor that parts make up, all of which must be there and fit."""
    experts = max(expert for expert, _ in members) + 1
    every = list(itertools.product(range(experts), range(len(rule.parts))))
    if len(members) < len(every):
        expert, part = next(place for place in every if place not in members)
        glob = _filled(rule.parts[part].replace("{e}", str(expert)), _captures(rule.fused, name))
        raise PlanError(f"tensor {shown(name)} cannot be made: part {shown(glob)} is missing")
    own = [tensors[members[place]] for place in every]
    row = own[: len(rule.parts)]
    for tensor, (_, part) in zip(own, every, strict=True):
        if (tensor.code, tensor.shape) != (row[0].code, row[part].shape):
            raise PlanError(
                f"{tensor.label} of {tensor.code} {brief(tensor.shape)} does not fit its siblings"
            )
    shapes = [tensor.shape for tensor in row]
    rank = len(shapes[0])
    axis = rule.axis if rank > 1 else 0
    if any(len(shape) != rank for shape in shapes) or (rank and not 0 <= axis < rank):
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} have no axis {axis}")
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise PlanError(f"tensor {shown(name)}: parts of shapes {brief(shapes)} differ beside axis {axis}")
    shape = shapes[0]
    if rank:
        shape = (*shape[:axis], sum(each[axis] for each in shapes), *shape[axis + 1 :])
    if rule.transpose and rank > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    whole = row[0]._replace(
        name=name,
        shape=(experts, *shape) if rule.stack else shape,
        size=sum(tensor.size for tensor in own),
    )
    form = _form(rule, whole, names)
    for part, each in enumerate(shapes):
        if form.shape(part) != each:
            raise PlanError(
                f"{row[part].label} has shape {brief(each)}, and the plan says {brief(form.shape(part))}"
            )
    pieces = [
        (members[expert, part], tuple(inverse(extent) for extent in form.extents(part, expert)))
        for expert, part in every
    ]
    return Refitted(whole, tuple(pieces))


def _captures(glob: str, name: str) -> dict[str, str]:
    match = _pattern(glob).fullmatch(name)
    assert match is not None
    return match.groupdict()


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

    def bytes(self, elements: int) -> int:
        unit = self.tensor.unit
        if elements % unit.elements:
            raise PlanError(
                f"{self.tensor.label}: a part begins or ends inside of {unit.elements} elements that share "
                f"{unit.bytes} bytes"
            )
        return elements // unit.elements * unit.bytes

    def extents(self, part: int, expert: int) -> Iterator[Extent]:
        """Yield which bytes of the fused tensor go to a part, both from their first byte on."""
        base, size = self.bytes(expert * math.prod(self.block)), self.sizes[part]
        if not math.prod(self.shape(part)):
            return
        own, group = size // self.groups, sum(self.sizes) // self.groups
        first = sum(self.sizes[:part]) // self.groups
        if self.transpose:
            outside, (out, inside) = self.block[:-2], self.block[-2:]
            if self.axis != len(outside) or self.tensor.unit.elements > 1:
                raise PlanError(
                    f"{self.tensor.label}: what is transposed is cut along the axis before the last"
                )
            item = self.tensor.unit.bytes
            begin, run = first * item, item
            row = inside * item
            walks = [
                (math.prod(outside), out * row, own * self.groups * row),
                (self.groups, group * item, own * row),
                (own, item, row),
                (inside, out * item, item),
            ]
        else:
            ahead, behind = math.prod(self.block[: self.axis]), math.prod(self.block[self.axis + 1 :])
            run, step = self.bytes(own * behind), self.bytes(group * behind)
            begin = self.bytes(first * behind)
            walks = [(ahead, step * self.groups, run * self.groups), (self.groups, step, run)]
        yield from walked(contiguous(0, base + begin, 0, 0, run), walks)


def _form(rule: FusionRule, tensor: StoredTensor, names: Names) -> _Form:
    block = tensor.shape[1:] if rule.stack else tensor.shape
    transpose = rule.transpose and len(block) > 1
    if transpose:
        block = (*block[:-2], block[-1], block[-2])
    axis = rule.axis if len(block) > 1 else 0
    try:
        if (rule.stack and not tensor.shape) or (not block and len(rule.parts) > 1) or axis >= len(block) > 0:
            raise PlanError(f"shape {brief(tensor.shape)} has no such axes")
        size, count = block[axis] if block else 1, len(rule.parts)
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
        if transpose and math.prod(tensor.shape) // max(1, block[-1]) > _MOST_EXTENTS:
            raise PlanError(f"more than {_MOST_EXTENTS} rows to transpose")
    except SplitError as error:
        raise PlanError(f"{tensor.label}, rule {shown(rule.fused)}: {error.message}") from error
    return _Form(tensor, block, axis, sizes, groups, transpose)
