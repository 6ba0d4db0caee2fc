"""Placements: what each rank holds of every tensor, as pure data that layouts lay out into files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from splitops.errors import PlanError, shown
from splitops.files.extents import Extent, Extents, Table, numbers_from, stretches_to
from splitops.files.formats import Contents, TargetFile, get_format
from splitops.files.tensors import StoredTensor, iter_field, locate_tensors, number_keys
from splitops.sharding.boxes import Box, prove_boxes
from splitops.sharding.checkpoint import Checkpoint, WholeFile
from splitops.sharding.cuts import Cut, shard_extents


class Laid(NamedTuple):
    """Files that hold tensors, and extents to them: their sources are positions of tensors, not of files."""

    files: Sequence[TargetFile]
    extents: Extents

    @classmethod
    def of(cls, laid: Iterable[LaidFile]) -> Laid:
        """Gather files that were laid out one by one."""
        found = list(laid)
        return cls([file for file, _ in found], Extents.concatenate([extents for _, extents in found]))


LaidFile = tuple[TargetFile, Extents]
"""A file, and the extents to it; its number in them counts the files of a layout."""


def laid_file(
    name: str, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]
) -> tuple[TargetFile, Table]:
    """Lay out a file of safetensors; return where each tensor begins in it, too."""
    form = get_format("safetensors")
    laid = form.lay_out(tensors, Contents(form, (), (), metadata), name)
    return laid.files[0], laid.places[:, 1]


def spread(
    forms: Sequence[Sequence[Extent]], form: Table, sources: Table, target: Table | int, places: Table
) -> Extents:
    """Return the extents of tensors, each copied to a place in a file as its form says."""
    counts = np.array([len(each) for each in forms], np.int64)
    rows = counts[form]
    table = Extents.from_extents([extent for each in forms for extent in each]).table
    table = table[numbers_from((np.cumsum(counts) - counts)[form], rows)]
    table[:, 0] = np.repeat(sources, rows)
    table[:, 3] = np.repeat(np.broadcast_to(target, len(rows)), rows)
    table[:, 4] += np.repeat(places, rows)
    return Extents(table)


@dataclass(frozen=True)
class Placements:
    """What each rank holds: the whole checkpoint's files, the tensors in them, and the cut of each."""

    ranks: int
    files: tuple[WholeFile, ...]
    tensors: tuple[StoredTensor, ...]
    cuts: tuple[Cut, ...]

    @cached_property
    def kinds(self) -> tuple[Table, list[tuple[StoredTensor, Cut]]]:
        """Of each tensor the number of its kind, and of each kind one: they share type, shape and cut."""
        shapes, codes = iter_field(self.tensors, "shape"), iter_field(self.tensors, "code")
        numbers, firsts = number_keys(zip(map(id, self.cuts), shapes, codes, strict=True))
        return numbers, [(self.tensors[i], self.cuts[i]) for i in firsts]

    def forms(self, rank: int) -> list[Sequence[Extent]]:
        """Return of each kind which bytes of a tensor go to that of a rank; none where it holds none."""
        return [
            shard_extents(tensor, cut, rank) if cut.shards[rank] is not None else ()
            for tensor, cut in self.kinds[1]
        ]

    def members(self, kinds: Iterable[bool]) -> list[Table]:
        """Return of each file the positions of its tensors that are of some kinds."""
        some, file = np.array([*kinds, False])[self.kinds[0]], locate_tensors(self.tensors)[:, 0]
        return [np.flatnonzero(some & (file == number)) for number in range(len(self.files))]

    def rank_bytes(self, members: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the bytes of tensors on each rank, padding included; None is all tensors."""
        numbers, kinds = self.kinds
        some = numbers if members is None else numbers[[*members]]
        total = [0] * self.ranks
        counts = np.bincount(some, minlength=len(kinds)).tolist()
        for (tensor, cut), count in zip(kinds, counts, strict=True):
            for rank, shard in enumerate(cut.shards if count else ()):
                if shard is not None:
                    total[rank] += count * shard_of(tensor, cut, rank).size
        return tuple(total)


def shard_of(tensor: StoredTensor, cut: Cut, rank: int) -> StoredTensor:
    """Return a rank's tensor, of which it must hold some, at no place yet."""
    shape = cut.shape(tensor.shape, rank)
    assert shape is not None
    if shape == tensor.shape:
        return tensor
    elements = math.prod(shape)
    if elements % tensor.unit.elements:
        raise PlanError(
            f"{tensor.label}: {elements} {tensor.code} elements of rank {rank} do not fill a byte"
        )
    return tensor._replace(shape=shape, size=elements // tensor.unit.elements * tensor.unit.bytes)


def named(tensors: Iterable[StoredTensor], names: Iterable[str]) -> list[StoredTensor]:
    """Return tensors with other names."""
    new = tuple.__new__
    return [new(StoredTensor, (name, *tensor[1:])) for tensor, name in zip(tensors, names, strict=True)]


def whole_files(checkpoint: Checkpoint) -> Laid:
    """Lay out the files of the whole checkpoint as they were."""
    files = [TargetFile(file.name, file.size, file.literals) for file in checkpoint.files]
    places = locate_tensors(checkpoint.tensors)
    own = places.copy()
    own[:, 0], own[:, 1] = np.arange(len(own)), 0
    return Laid(files, stretches_to(own, places[:, :2]))


def prove_cut(cut: Cut, shape: tuple[int, ...], ranks: int) -> None:
    """Reject a cut from outside that does not give every byte of a tensor of a shape exactly once."""
    if len(cut.shards) != ranks or all(shard is None for shard in cut.shards):
        raise PlanError(f"a cut for {len(cut.shards)} ranks, of {ranks}, of which no rank holds anything")
    if cut.axis is None:
        return
    if not 0 <= cut.axis < len(shape):
        raise PlanError(f"a cut along axis {shown(cut.axis)} of shape {shown(shape)}")
    held = [shard for shard in cut.shards if shard is not None]
    largest = max((shard.size for shard in held), default=0)
    if largest >= 1 << 63:
        raise PlanError(f"a rank would have {shown(largest)} positions of an axis: they have to fit 63 bits")
    if any(piece.size < 1 for shard in held for piece in shard.pieces):
        raise PlanError("pieces of a cut overlap or are empty")
    pieces = [piece for _, piece in cut.holders if piece is not None]
    try:
        for shard in held:
            prove_boxes(tuple(Box((p.at,), (p.size,)) for p in shard.pieces), (shard.size,), part=True)
        prove_boxes(tuple(Box((p.begin,), (p.size,)) for p in pieces), (shape[cut.axis],))
    except PlanError as error:
        raise PlanError(f"pieces of a cut: {error.message}") from error
