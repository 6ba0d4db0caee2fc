"""``dcp``: the safetensors of PyTorch's distributed checkpoints, which it loads on any mesh of devices.

Each piece is a tensor of the whole's name; the metadata of its file say where it begins. A name appears once
in a file, so the second piece that a rank has of a tensor goes to a file of its own.
"""

from __future__ import annotations

import json
import re
from typing import Final

from splitops.files.extents import Extent, Extents
from splitops.files.formats import TargetFile
from splitops.files.tensors import StoredTensor
from splitops.sharding.cuts import Cut, Piece, Shard, shard_extents
from splitops.sharding.placements import Laid, Placements, laid_file, named, shard_of, spread

NAME: Final = re.compile(r"shard-(\d{5,})-model-(\d{5,})-of-(\d{5,})\.safetensors")
"""The files of a distributed checkpoint: the rank from 1 on, the part, how many parts there are."""
INFO: Final = "DCP_SHARDING_INFO"
OFFSETS: Final = "saved_offsets"


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of all ranks."""
    return ("",)


def lay_out(placements: Placements) -> Laid:
    """Lay out the files of all ranks."""
    numbers, kinds = placements.kinds
    turns: dict[tuple[int, int], dict[int, tuple[StoredTensor, list[Extent], list[int]]]] = {}
    for kind, (tensor, cut) in enumerate(kinds):
        for rank, turn, alone, begin in _alone(cut):
            at = [begin if axis == alone.axis else 0 for axis in range(len(tensor.shape))]
            found = shard_of(tensor, alone, 0), shard_extents(tensor, alone, 0), at
            turns.setdefault((rank, turn), {})[kind] = found
    held = [
        (rank, turn * len(placements.files) + number, own, members)
        for (rank, turn), own in sorted(turns.items(), key=lambda item: item[0])
        for number, members in enumerate(placements.members(kind in own for kind in range(len(kinds))))
        if len(members)
    ]
    parts = max((part for _, part, _, _ in held), default=0) + 1
    files: list[TargetFile] = []
    extents: list[Extents] = []
    for rank, part, own, members in held:
        some = [own[kind] for kind in numbers[members].tolist()]
        pieces = named([each[0] for each in some], [placements.tensors[i].name for i in members.tolist()])
        info = {piece.name: {OFFSETS: each[2]} for piece, each in zip(pieces, some, strict=True)}
        metadata = {"format": "pt", "DCP_VERSION": "1.0", INFO: json.dumps(info, ensure_ascii=False)}
        name = f"shard-{rank + 1:05}-model-{part + 1:05}-of-{parts:05}.safetensors"
        file, places = laid_file(name, pieces, metadata)
        forms = [own[kind][1] if kind in own else [] for kind in range(len(kinds))]
        extents.append(spread(forms, numbers[members], members, len(files), places))
        files.append(file)
    return Laid(files, Extents.all(extents))


def _alone(cut: Cut) -> list[tuple[int, int, Cut, int]]:
    """Return of each piece the first rank that holds it, how many that one has before, its cut and begin."""
    found: list[tuple[int, int, Cut, int]] = []
    turns: dict[int, int] = {}
    for rank, piece in cut.holders or ((0, None),):  # a tensor of no size has no pieces
        turn = turns[rank] = turns.get(rank, -1) + 1
        if piece is None:
            found.append((rank, turn, Cut(None, (Shard(),)), 0))
        else:
            shard = Shard(piece.size, (Piece(piece.begin, piece.size, 0),))
            found.append((rank, turn, Cut(cut.axis, (shard,)), piece.begin))
    return found
