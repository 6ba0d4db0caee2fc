"""Placements: the part of every tensor on each rank, from which layouts compute the files of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from splitops.errors import PlanError, shown
from splitops.files.extents import Column, Extent, Extents, Table, concat_ranges, extents_from_ranges
from splitops.files.formats import Contents, TargetFile, get_format
from splitops.files.tensors import StoredTensor, iter_field, locate_tensors, number_keys
from splitops.sharding.boxes import Box, check_boxes
from splitops.sharding.checkpoint import Checkpoint, WholeFile
from splitops.sharding.tensor_sharding import TensorSharding, shard_extents


class FileLayout(NamedTuple):
    """Files to write, and the extents that fill them.

    The source of an extent is the index of a tensor, not of a file.
    """

    files: Sequence[TargetFile]
    extents: Extents

    @classmethod
    def from_files(cls, laid: Iterable[LaidFile]) -> FileLayout:
        """Collect files that were laid out one at a time, with their extents."""
        found = list(laid)
        return cls([file for file, _ in found], Extents.concatenate([extents for _, extents in found]))


LaidFile = tuple[TargetFile, Extents]
"""A file, and the extents that fill it. Their target is the index of the file in its layout."""


def lay_out_file(
    name: str, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]
) -> tuple[TargetFile, Table]:
    """Lay out a safetensors file. Return the file and the offset of each tensor in it."""
    form = get_format("safetensors")
    laid = form.lay_out(tensors, Contents(form, (), (), metadata), name)
    return laid.files[0], laid.places[:, 1]


def copy_extents(
    forms: Sequence[Sequence[Extent]], form: Table, sources: Table, target: Table | int, places: Table
) -> Extents:
    """Return the extents that copy tensors ``sources`` to offsets ``places`` in the files ``target``.

    ``form`` is the number of each tensor's kind. ``forms`` lists the extents of each kind, with
    offsets from the start of a tensor.
    """
    counts = np.array([len(each) for each in forms], np.int64)
    rows = counts[form]
    table = Extents.from_extents([extent for each in forms for extent in each]).table
    table = table[concat_ranges((np.cumsum(counts) - counts)[form], rows)]
    table[:, Column.SOURCE] = np.repeat(sources, rows)
    table[:, Column.TARGET] = np.repeat(np.broadcast_to(target, len(rows)), rows)
    table[:, Column.TARGET_OFFSET] += np.repeat(places, rows)
    return Extents(table)


@dataclass(frozen=True)
class Placements:
    """The unsharded files and tensors of a checkpoint, and the sharding of each tensor.

    With a ``group_size`` (of GPTQ), padded rows in ``g_idx`` continue the groups. All other padding is zeros.
    """

    ranks: int
    files: tuple[WholeFile, ...]
    tensors: tuple[StoredTensor, ...]
    cuts: tuple[TensorSharding, ...]
    group_size: int = 0

    @cached_property
    def kinds(self) -> tuple[Table, list[tuple[StoredTensor, TensorSharding]]]:
        """The index of each tensor's kind (type, shape and sharding), and the kinds.

        A kind is represented by its first tensor and the sharding.
        """
        shapes, codes = iter_field(self.tensors, "shape"), iter_field(self.tensors, "code")
        numbers, firsts = number_keys(zip(map(id, self.cuts), shapes, codes, strict=True))
        return numbers, [(self.tensors[i], self.cuts[i]) for i in firsts]

    def make_extents(self, rank: int) -> list[Sequence[Extent]]:
        """Return, for each kind, the extents from a tensor to a rank's part; empty if the rank has none."""
        return [
            shard_extents(tensor, cut, rank) if cut.shards[rank] is not None else ()
            for tensor, cut in self.kinds[1]
        ]

    def find_members(self, kinds: Iterable[bool]) -> list[Table]:
        """Return, for each file, the indices of its tensors whose kind is selected by a flag in ``kinds``."""
        some, file = np.array([*kinds, False])[self.kinds[0]], locate_tensors(self.tensors)[:, 0]
        return [np.flatnonzero(some & (file == number)) for number in range(len(self.files))]

    def number_groups(self, rank: int, members: Table, places: Table) -> tuple[tuple[int, bytes], ...]:
        """Return the group numbers of padded rows, as bytes with their offsets in a file of a rank.

        ``members`` are the indices of the tensors in this file, ``places`` their offsets.
        """
        if not self.group_size:
            return ()
        found = []
        for index, place in zip(members.tolist(), places.tolist(), strict=True):
            tensor, cut = self.tensors[index], self.cuts[index]
            shard = cut.shards[rank]
            if not (cut.padded and shard is not None and tensor.name.endswith(".g_idx")):
                continue
            pieces = shard.pieces
            begin = (
                pieces[0].begin
                if pieces
                else sum(other.size for other in cut.shards[:rank] if other is not None)
            )
            held = pieces[0].size if pieces else 0
            rows = np.arange(begin + held, begin + shard.size) // self.group_size
            width = tensor.unit.bytes
            found.append((place + held * width, rows.astype(f"<i{width}").tobytes()))
        return tuple(sorted(found))

    def sum_rank_bytes(self, members: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the bytes on each rank, with padding, of all tensors or only of the indices ``members``."""
        numbers, kinds = self.kinds
        some = numbers if members is None else numbers[[*members]]
        total = [0] * self.ranks
        counts = np.bincount(some, minlength=len(kinds)).tolist()
        for (tensor, cut), count in zip(kinds, counts, strict=True):
            for rank, shard in enumerate(cut.shards if count else ()):
                if shard is not None:
                    total[rank] += count * make_rank_tensor(tensor, cut, rank).size
        return tuple(total)


def make_rank_tensor(tensor: StoredTensor, cut: TensorSharding, rank: int) -> StoredTensor:
    """Return a tensor with the shape and size of a rank's part. The rank must have one."""
    shape = cut.shape(tensor.shape, rank)
    assert shape is not None
    if shape == tensor.shape:
        return tensor
    elements = math.prod(shape)
    if elements % tensor.unit.elements:
        raise PlanError(
            f"{tensor.label}: {elements} {tensor.code} elements of rank {rank} do not fill complete bytes"
        )
    return tensor._replace(shape=shape, size=elements // tensor.unit.elements * tensor.unit.bytes)


def rename(tensors: Iterable[StoredTensor], names: Iterable[str]) -> list[StoredTensor]:
    """Return copies of ``tensors`` that have ``names`` instead of their own names."""
    new = tuple.__new__  # faster than _replace
    return [new(StoredTensor, (name, *tensor[1:])) for tensor, name in zip(tensors, names, strict=True)]


def lay_out_checkpoint(checkpoint: Checkpoint) -> FileLayout:
    """Return the unsharded files of a checkpoint, and the extents from its tensors to their places there."""
    files = [TargetFile(file.name, file.size, file.literals) for file in checkpoint.files]
    places = locate_tensors(checkpoint.tensors)
    own = places.copy()
    own[:, 0], own[:, 1] = np.arange(len(own)), 0
    return FileLayout(files, extents_from_ranges(own, places[:, :2]))


def check_cut(cut: TensorSharding, shape: tuple[int, ...], ranks: int) -> None:
    """Check that the distinct pieces of an untrusted sharding cover ``shape`` without gaps or overlaps.

    The pieces on a rank must not overlap there, either.
    """
    if len(cut.shards) != ranks or all(shard is None for shard in cut.shards):
        raise PlanError(f"a cut has {len(cut.shards)} shards for {ranks} ranks, or no shard at all")
    if cut.axis is None:
        return
    if not 0 <= cut.axis < len(shape):
        raise PlanError(f"axis {shown(cut.axis)} of a cut is out of range for shape {shown(shape)}")
    held = [shard for shard in cut.shards if shard is not None]
    largest = max((shard.size for shard in held), default=0)
    if largest >= 1 << 63:
        raise PlanError(f"a shard of size {shown(largest)} exceeds 63 bits")
    if any(piece.size < 1 for shard in held for piece in shard.pieces):
        raise PlanError("a piece of a cut is empty")
    pieces = [piece for _, piece in cut.holders if piece is not None]
    try:
        for shard in held:
            check_boxes(tuple(Box((p.at,), (p.size,)) for p in shard.pieces), (shard.size,), part=True)
        check_boxes(tuple(Box((p.begin,), (p.size,)) for p in pieces), (shape[cut.axis],))
    except PlanError as error:
        raise PlanError(f"pieces of a cut: {error.message}") from error
