"""``hf``: one folder per rank, with safetensors files. Tensors keep their names, and so do safetensors files.

A folder has an index unless all its tensors are in ``model.safetensors``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from splitops.files.extents import Table
from splitops.files.folders import INDEX, format_index
from splitops.files.formats import TargetFile
from splitops.sharding.placements import (
    LaidFile,
    Placements,
    copy_extents,
    lay_out_file,
    make_rank_tensor,
    rename,
)

_SUFFIX: Final = ".safetensors"


def make_folder_name(rank: int, ranks: int) -> str:
    """Return the name of a rank's folder.

    Examples:
        >>> make_folder_name(0, 8)
        'rank-00000-of-00008'
    """
    return f"rank-{rank:05}-of-{ranks:05}"


def list_sidecar_folders(ranks: int) -> tuple[str, ...]:
    """Return the folder of each rank."""
    return tuple(make_folder_name(rank, ranks) for rank in range(ranks))


def iter_files(placements: Placements) -> Iterator[LaidFile]:
    """Lay out the files of all ranks, one at a time."""
    numbers, kinds = placements.kinds
    count = 0
    known: dict[tuple[object, ...], list[tuple[TargetFile, Table, Table]]] = {}
    for rank, folder in enumerate(list_sidecar_folders(placements.ranks)):
        shapes = tuple(cut.shape(tensor.shape, rank) for tensor, cut in kinds)
        if shapes not in known:  # ranks with equal shapes have equal files
            known[shapes] = _lay_out_rank(placements, rank)
        forms = placements.make_extents(rank)
        for file, members, places in known[shapes]:
            literals = (*file.literals, *placements.number_groups(rank, members, places))
            yield (
                replace(file, name=f"{folder}/{file.name}", literals=literals),
                copy_extents(forms, numbers[members], members, count, places),
            )
            count += 1


def _lay_out_rank(placements: Placements, rank: int) -> list[tuple[TargetFile, Table, Table]]:
    """Return the files of a rank, with the indices and the offsets of the tensors in each."""
    numbers, kinds = placements.kinds
    shards = [make_rank_tensor(*kind, rank) if kind[1].shards[rank] is not None else None for kind in kinds]
    every, some = (
        placements.find_members(keep) for keep in ([True] * len(kinds), [s is not None for s in shards])
    )
    names = [tensor.name for tensor in placements.tensors]
    made: list[tuple[TargetFile, Table, Table]] = []
    where: dict[str, str] = {}
    total = 0
    for file, own, members in zip(placements.files, every, some, strict=True):
        if not len(members) and len(own):
            continue
        found = [shard for i in numbers[members].tolist() if (shard := shards[i]) is not None]
        tensors = rename(found, [names[i] for i in members.tolist()])
        name = file.name if file.name.endswith(_SUFFIX) else file.name + _SUFFIX
        target, places = lay_out_file(name, tensors, file.metadata)
        made.append((target, members, places))
        where |= {tensor.name: name for tensor in tensors}
        total += sum(tensor.size for tensor in tensors)
    if set(where.values()) - {"model.safetensors"}:
        text, none = format_index(where, total), np.empty(0, np.int64)
        made.append((TargetFile(f"model{INDEX}", len(text), ((0, text),)), none, none))
    return made
