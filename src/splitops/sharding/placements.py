"""Placements: what each rank holds of every tensor, as pure data that layouts lay out into files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from splitops.errors import PlanError, shown
from splitops.files.extents import Extent, contiguous
from splitops.files.formats import Contents, TargetFile, format_named
from splitops.files.tensors import StoredTensor
from splitops.sharding.boxes import Box, prove_boxes
from splitops.sharding.checkpoint import Checkpoint, WholeFile
from splitops.sharding.cuts import Cut


class Laid(NamedTuple):
    """Files that hold the tensors of ranks.

    Attributes:
        files: names are those in the folder of all ranks.
        extents: of each tensor, from its first byte (source 0) to ``files``.
    """

    files: tuple[TargetFile, ...]
    extents: tuple[tuple[Extent, ...], ...]


class Filing:
    """Files of safetensors that are laid out one after the other, with the bytes that each tensor gives them.

    Attributes:
        files: those that were added.
        extents: of each tensor, as in :class:`Laid`.
    """

    def __init__(self, tensors: int) -> None:
        """Begin with no file, for so many tensors."""
        self.files: list[TargetFile] = []
        self.extents: list[list[Extent]] = [[] for _ in range(tensors)]

    def add(
        self, name: str, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]
    ) -> tuple[int, list[int]]:
        """Lay out a file; return its position, and where each of the tensors begins in it."""
        form = format_named("safetensors")
        laid = form.lay_out(tensors, Contents(form, (), (), metadata), name)
        self.files += laid.files
        return len(self.files) - 1, laid.places[:, 1].tolist()

    @property
    def laid(self) -> Laid:
        """All files."""
        return Laid(tuple(self.files), tuple(map(tuple, self.extents)))


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

    def rank_bytes(self, members: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the bytes of tensors on each rank, padding included; None is all tensors."""
        total = [0] * self.ranks
        alike: dict[tuple[Cut, tuple[int, ...], str], list[int]] = {}
        for i in range(len(self.tensors)) if members is None else members:
            alike.setdefault((self.cuts[i], self.tensors[i].shape, self.tensors[i].code), []).append(i)
        for (cut, _, _), found in alike.items():
            for rank, shard in enumerate(cut.shards):
                if shard is not None:
                    total[rank] += len(found) * shard_of(self.tensors[found[0]], cut, rank).size
        return tuple(total)


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


def whole_files(checkpoint: Checkpoint) -> Laid:
    """Lay out the files of the whole checkpoint as they were."""
    filing = Filing(0)
    filing.files += [TargetFile(file.name, file.size, file.literals) for file in checkpoint.files]
    filing.extents += [
        [contiguous(0, 0, tensor.file, tensor.offset, tensor.size)] if tensor.size else []
        for tensor in checkpoint.tensors
    ]
    return filing.laid


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
    held = [shard for shard in cut.shards if shard is not None]
    if any(piece.size < 1 for shard in held for piece in shard.pieces):
        raise PlanError("pieces of a cut overlap or are empty")
    pieces = [piece for _, piece in cut.holders if piece is not None]
    try:
        for shard in held:
            prove_boxes(tuple(Box((p.at,), (p.size,)) for p in shard.pieces), (shard.size,), part=True)
        prove_boxes(tuple(Box((p.begin,), (p.size,)) for p in pieces), (shape[cut.axis],))
    except PlanError as error:
        raise PlanError(f"pieces of a cut: {error.message}") from error
