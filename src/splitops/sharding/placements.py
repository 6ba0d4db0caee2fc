"""Placements: what each rank holds of every tensor, as pure data that layouts lay out into files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from splitops.errors import PlanError, shown
from splitops.files.extents import Extent, contiguous
from splitops.files.formats import TargetFile
from splitops.files.tensors import StoredTensor
from splitops.sharding.checkpoint import WholeFile
from splitops.sharding.cuts import Cut


class Laid(NamedTuple):
    """Files that hold the tensors of ranks.

    Attributes:
        files: names are those in the folder of all ranks.
        extents: of each tensor, from its first byte (source 0) to ``files``.
    """

    files: tuple[TargetFile, ...]
    extents: tuple[tuple[Extent, ...], ...]


@dataclass(frozen=True)
class Placements:
    """What each rank holds.

    Attributes:
        ranks: how many there are.
        files: of the whole checkpoint.
        tensors: whole ones, in these files.
        cuts: of each tensor.
    """

    ranks: int
    files: tuple[WholeFile, ...]
    tensors: tuple[StoredTensor, ...]
    cuts: tuple[Cut, ...]

    def rank_bytes(self) -> list[int]:
        """Return the tensor bytes of each rank, padding included."""
        total = [0] * self.ranks
        alike: dict[tuple[Cut, tuple[int, ...], str], list[StoredTensor]] = {}
        for tensor, cut in zip(self.tensors, self.cuts, strict=True):
            alike.setdefault((cut, tensor.shape, tensor.code), []).append(tensor)
        for (cut, _, _), tensors in alike.items():
            for rank, shard in enumerate(cut.shards):
                if shard is not None:
                    total[rank] += len(tensors) * shard_of(tensors[0], cut, rank).size
        return total


def shard_of(tensor: StoredTensor, cut: Cut, rank: int) -> StoredTensor:
    """Return a rank's tensor, of which it must hold some, at no place yet."""
    shape = cut.shape(tensor.shape, rank)
    assert shape is not None
    if shape == tensor.shape:
        return tensor
    elements = 1
    for size in shape:
        elements *= size
    if elements % tensor.unit.elements:
        raise PlanError(
            f"{tensor.label}: {elements} {tensor.code} elements of rank {rank} do not fill a byte"
        )
    return tensor._replace(shape=shape, size=elements // tensor.unit.elements * tensor.unit.bytes)


def whole_files(placements: Placements) -> Laid:
    """Lay out the files of the whole checkpoint as they were."""
    files = tuple(TargetFile(file.name, file.size, file.literals) for file in placements.files)
    extents = tuple(
        (contiguous(0, 0, tensor.file, tensor.offset, tensor.size),) if tensor.size else ()
        for tensor in placements.tensors
    )
    return Laid(files, extents)


def prove_cut(cut: Cut, shape: tuple[int, ...], ranks: int) -> None:
    """Reject a cut from outside that does not give every byte of a tensor of a shape exactly once.

    Raises:
        PlanError: pieces lie outside, overlap or leave something out.
    """
    if len(cut.shards) != ranks or all(shard is None for shard in cut.shards):
        raise PlanError(f"a cut for {len(cut.shards)} ranks, of {ranks}, of which no rank holds anything")
    if cut.axis is None:
        return
    if not 0 <= cut.axis < len(shape):
        raise PlanError(f"a cut along axis {cut.axis} of shape {shown(shape)}")
    for shard in cut.shards:
        if shard is not None:
            _prove_pieces([(piece.at, piece.size) for piece in shard.pieces], shard.size, whole=False)
    pieces = [(piece.begin, piece.size) for _, piece in cut.holders if piece is not None]
    _prove_pieces(pieces, shape[cut.axis], whole=True)


def _prove_pieces(pieces: Sequence[tuple[int, int]], size: int, *, whole: bool) -> None:
    end = 0
    for begin, count in sorted(pieces):
        if begin < end or count < 1 or (whole and begin > end):
            raise PlanError(f"pieces of a cut overlap or leave something out, at {min(begin, end)} of {size}")
        end = begin + count
    if end > size or (whole and end < size):
        raise PlanError(f"pieces of a cut end at {end} of {size}")
