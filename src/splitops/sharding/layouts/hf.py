"""``hf``: a folder for each rank, with safetensors of the source's file and tensor names, and their index."""

from __future__ import annotations

from typing import Final

from splitops.files.extents import Extent
from splitops.files.folders import INDEX, index_text
from splitops.files.formats import TargetFile
from splitops.files.tensors import StoredTensor
from splitops.sharding.cuts import shard_extents
from splitops.sharding.placements import Filing, Laid, Placements, shard_of

_SUFFIX: Final = ".safetensors"


def folder_name(rank: int, ranks: int) -> str:
    """Return the name of a rank's folder.

    Examples:
        >>> folder_name(0, 8)
        'rank-00000-of-00008'
    """
    return f"rank-{rank:05}-of-{ranks:05}"


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of each rank."""
    return tuple(folder_name(rank, ranks) for rank in range(ranks))


def lay_out(placements: Placements) -> Laid:
    """Lay out the files of all ranks."""
    filing = Filing(len(placements.tensors))
    by_file: list[list[int]] = [[] for _ in placements.files]
    for index, tensor in enumerate(placements.tensors):
        by_file[tensor.file].append(index)
    kinds = [
        (id(cut), tensor.shape, tensor.code)
        for tensor, cut in zip(placements.tensors, placements.cuts, strict=True)
    ]
    for rank, folder in enumerate(homes(placements.ranks)):
        known: dict[tuple[int, tuple[int, ...], str], tuple[StoredTensor, list[Extent]]] = {}
        index_of: dict[str, str] = {}
        total = 0
        for file, members in zip(placements.files, by_file, strict=True):
            held = [i for i in members if placements.cuts[i].shards[rank] is not None]
            if not held and members:
                continue
            for i in held:
                if kinds[i] not in known:
                    tensor, cut = placements.tensors[i], placements.cuts[i]
                    known[kinds[i]] = shard_of(tensor, cut, rank), shard_extents(tensor, cut, rank, 0, 0)
            alike = [known[kinds[i]] for i in held]
            shards = [
                shard._replace(name=placements.tensors[i].name)
                for i, (shard, _) in zip(held, alike, strict=True)
            ]
            name = file.name if file.name.endswith(_SUFFIX) else file.name + _SUFFIX
            number, offsets = filing.add(f"{folder}/{name}", shards, file.metadata)
            for i, offset, (_, extents) in zip(held, offsets, alike, strict=True):
                filing.extents[i] += [Extent(0, e[1], e[2], number, offset + e[4], *e[5:]) for e in extents]
            index_of |= {shard.name: name for shard in shards}
            total += sum(shard.size for shard in shards)
        if set(index_of.values()) - {"model.safetensors"}:
            text = index_text(index_of, total)
            filing.files.append(TargetFile(f"{folder}/model{INDEX}", len(text), ((0, text),)))
    return filing.laid
