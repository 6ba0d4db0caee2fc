"""``vllm``: one folder of files by rank, with the projections joined that vLLM has as one.

The names, shapes and bytes are those of its ``sharded_state``, for the models of
:mod:`splitops.sharding.engines`. What vLLM does with its weights after loading is not covered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from splitops.errors import PlanError, brief, shown
from splitops.files.extents import Extent
from splitops.files.formats import Contents, Layout, TargetFile, format_named
from splitops.files.tensors import StoredTensor
from splitops.sharding.cuts import Cut, shard_extents
from splitops.sharding.placements import Laid, Placements, shard_of

_LARGEST: Final = 5 << 30
"""Bytes of tensors after which a rank's file is full, unless one tensor is larger."""


@dataclass(frozen=True, slots=True)
class _Fusion:
    """Tensors that are one in the engine.

    Attributes:
        name: of each of them, with groups ``before``, ``part``, ``after`` and perhaps ``expert``.
        parts: what ``part`` can be, in the order in which they are joined.
        joined: the name of the one.
    """

    name: re.Pattern[str]
    parts: tuple[str, ...]
    joined: str


def _fusion(parts: tuple[str, ...], joined: str, expert: str = "") -> _Fusion:
    name = rf"(?P<before>.*\.){expert}(?P<part>{'|'.join(parts)})\.(?P<after>.+)"
    return _Fusion(re.compile(name), parts, joined)


_EXPERT: Final = r"(?<=experts\.)(?P<expert>\d{1,9})\."
_FUSIONS: Final = (
    _fusion(("gate_proj", "up_proj"), "{before}routed_experts.w13_{after}", _EXPERT),
    _fusion(("w1", "w3"), "{before}routed_experts.w13_{after}", _EXPERT),
    _fusion(("down_proj",), "{before}routed_experts.w2_{after}", _EXPERT),
    _fusion(("w2",), "{before}routed_experts.w2_{after}", _EXPERT),
    _fusion(("q_proj", "k_proj", "v_proj"), "{before}qkv_proj.{after}"),
    _fusion(("gate_proj", "up_proj"), "{before}gate_up_proj.{after}"),
    # One module under two names, of which vLLM saves the first: the router, tied embeddings.
    _fusion(("gate",), "{before}experts.gate.{after}", r"(?<=\.mlp\.)"),
    _fusion(("embed_tokens",), "lm_head.{after}", r"(?<=^model\.)"),
)


@dataclass(frozen=True, slots=True)
class _Group:
    """Tensors of the source that are one of a rank.

    Attributes:
        name: of the one.
        members: positions of the tensors, by expert, then in the order in which they are joined.
        stacked: whether each expert is an entry of a new first axis.
    """

    name: str
    members: tuple[tuple[int, ...], ...]
    stacked: bool = False


class _Serving:
    name = "vllm"

    def homes(self, ranks: int) -> tuple[str, ...]:
        return ("",)

    def lay_out(self, placements: Placements) -> Laid:
        groups = _groups([tensor.name for tensor in placements.tensors])
        files: list[TargetFile] = []
        extents: list[list[Extent]] = [[] for _ in placements.tensors]
        for rank in range(placements.ranks):
            held = [(group, tensor) for group in groups for tensor in _joined(placements, group, rank)]
            for part, some in enumerate(_parts(held)):
                laid = _file([tensor for _, tensor in some], f"model-rank-{rank}-part-{part}.safetensors")
                for (group, tensor), (_, offset) in zip(some, laid.places.tolist(), strict=True):
                    for i, extent in _extents(placements, group, tensor, rank, len(files), offset):
                        extents[i].append(extent)
                files += laid.files
        return Laid(tuple(files), tuple(map(tuple, extents)))


LAYOUT: Final = _Serving()


def _file(tensors: Sequence[StoredTensor], name: str) -> Layout:
    form = format_named("safetensors")
    return form.lay_out(tensors, Contents(form, (), (), {"format": "pt"}), name)


def _parts(held: Sequence[tuple[_Group, StoredTensor]]) -> Iterator[list[tuple[_Group, StoredTensor]]]:
    """Yield what goes to the files of a rank, of which there is at least one."""
    some: list[tuple[_Group, StoredTensor]] = []
    total = 0
    for group, tensor in held:
        if some and total + tensor.size > _LARGEST:
            yield some
            some, total = [], 0
        some.append((group, tensor))
        total += tensor.size
    yield some


def _groups(names: Sequence[str]) -> list[_Group]:
    """Return the tensors of a rank, in the order of the source.

    Parts without the others keep their names, and so does what would get the name of another tensor.
    """
    found: dict[str, dict[int, dict[int, int]]] = {}
    wanted: dict[str, int] = {}
    for index, name in enumerate(names):
        for fusion in _FUSIONS:
            match = fusion.name.fullmatch(name)
            if match is not None:
                joined = fusion.joined.format(**match.groupdict())
                row = found.setdefault(joined, {}).setdefault(int(match.groupdict().get("expert", -1)), {})
                row[fusion.parts.index(match["part"])] = index
                wanted[joined] = len(fusion.parts)
                break
    groups: dict[int, _Group] = {}
    taken: set[int] = set()
    own = set(names)
    for joined, rows in found.items():
        if joined in own or any(len(row) != wanted[joined] for row in rows.values()):
            continue
        members = tuple(tuple(row[part] for part in sorted(row)) for _, row in sorted(rows.items()))
        every = [i for row in members for i in row]
        groups[min(every)] = _Group(joined, members, stacked=-1 not in rows)
        taken.update(every)
    return [
        groups[i] if i in groups else _Group(name, ((i,),))
        for i, name in enumerate(names)
        if i in groups or i not in taken
    ]


def _rows(placements: Placements, group: _Group, rank: int) -> list[tuple[int, ...]]:
    """Return the members of which a rank holds some: of experts that are placed, its own."""
    return [row for row in group.members if any(placements.cuts[i].shards[rank] is not None for i in row)]


def _axis(cut: Cut) -> int:
    return cut.axis or 0


def _joined(placements: Placements, group: _Group, rank: int) -> Iterator[StoredTensor]:
    """Yield the tensor of a group that a rank holds, at no place yet; nothing where it holds none."""
    rows = _rows(placements, group, rank)
    if not rows:
        return
    shapes = {_shape(placements, group, row, rank) for row in rows}
    if len(shapes) > 1:
        raise PlanError(
            f"{shown(group.name)} stacks tensors of shapes {brief(sorted(shapes))} on rank {rank}"
        )
    shape = shapes.pop()
    first = placements.tensors[rows[0][0]]
    yield first._replace(
        name=group.name,
        shape=(len(rows), *shape) if group.stacked else shape,
        size=sum(shard_of(placements.tensors[i], placements.cuts[i], rank).size for row in rows for i in row),
    )


def _shape(placements: Placements, group: _Group, row: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the shape of tensors joined along the axis that they are cut along."""
    cuts, tensors = [placements.cuts[i] for i in row], [placements.tensors[i] for i in row]
    found = [cut.shape(tensor.shape, rank) for cut, tensor in zip(cuts, tensors, strict=True)]
    shapes = [shape for shape in found if shape is not None]
    axis = _axis(cuts[0])
    kinds = {(cut.axis, tensor.code) for cut, tensor in zip(cuts, tensors, strict=True)}
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(shapes) < len(row) or len(kinds) > 1 or len(others) > 1:
        raise PlanError(
            f"{shown(group.name)} joins {', '.join(shown(tensor.name) for tensor in tensors)}, "
            f"which do not fit: shapes {brief(found)} on rank {rank}"
        )
    if len(row) == 1:
        return shapes[0]
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _extents(
    placements: Placements, group: _Group, joined: StoredTensor, rank: int, file: int, offset: int
) -> Iterator[tuple[int, Extent]]:
    """Yield which bytes of which tensors go to the joined one at an offset of a file."""
    rows = _rows(placements, group, rank)
    entry = joined.size // len(rows)
    for number, row in enumerate(rows):
        at = offset + number * entry
        for i in row:
            tensor, cut = placements.tensors[i], placements.cuts[i]
            shard = shard_of(tensor, cut, rank)
            lines = max(1, math.prod(shard.shape[: _axis(cut)]))
            for extent in shard_extents(tensor, cut, rank, file, at, entry // lines):
                yield i, extent
            at += shard.size // lines
