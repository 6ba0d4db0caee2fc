"""``dcp``: the safetensors of PyTorch's distributed checkpoints, which it loads on any mesh of devices.

Each piece is a tensor of the whole's name; the metadata of its file say where it begins. A name appears once
in a file, so the second piece that a rank has of a tensor goes to a file of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Final

from splitops.files.extents import Extent, Table
from splitops.files.tensors import StoredTensor
from splitops.sharding.cuts import Cut, Piece, Shard, shard_extents
from splitops.sharding.placements import LaidFile, Placements, laid_file, named, shard_of, spread

NAME: Final = re.compile(r"shard-(\d{5,})-model-(\d{5,})-of-(\d{5,})\.safetensors")
"""The files of a distributed checkpoint: the rank from 1 on, the part, how many parts there are."""
INFO: Final = "DCP_SHARDING_INFO"
OFFSETS: Final = "saved_offsets"


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of all ranks."""
    return ("",)


def files(placements: Placements) -> Iterator[LaidFile]:
    """Yield the files of all ranks."""
    numbers, kinds = placements.kinds
    # By rank and turn, for each cut (by its id): the piece alone, and where it begins.
    turns: dict[tuple[int, int], dict[int, tuple[Cut, int]]] = {}
    for cut in {id(cut): cut for _, cut in kinds}.values():
        for rank, turn, alone, begin in _alone(cut):
            turns.setdefault((rank, turn), {})[id(cut)] = alone, begin
    several = len(placements.files)
    last = max((turn for _, turn in turns), default=0)
    late = {cut for (_, turn), own in turns.items() if turn == last for cut in own}
    ends = [number for number, found in enumerate(_members(placements, late)) if len(found)]
    parts = last * several + max(ends, default=0) + 1
    count = 0
    for rank, turn in sorted(turns):
        cuts = turns[rank, turn]
        own: dict[int, tuple[StoredTensor, list[Extent], list[int]]] = {}
        for kind, (tensor, cut) in enumerate(kinds):
            if id(cut) in cuts:
                alone, begin = cuts[id(cut)]
                at = [begin if axis == alone.axis else 0 for axis in range(len(tensor.shape))]
                own[kind] = shard_of(tensor, alone, 0), shard_extents(tensor, alone, 0), at
        forms = [own[kind][1] if kind in own else [] for kind in range(len(kinds))]
        for number, members in enumerate(_members(placements, cuts)):
            if not len(members):
                continue
            some = [own[kind] for kind in numbers[members].tolist()]
            pieces = named([each[0] for each in some], [placements.tensors[i].name for i in members.tolist()])
            info = {piece.name: {OFFSETS: each[2]} for piece, each in zip(pieces, some, strict=True)}
            metadata = {"format": "pt", "DCP_VERSION": "1.0", INFO: json.dumps(info, ensure_ascii=False)}
            name = f"shard-{rank + 1:05}-model-{turn * several + number + 1:05}-of-{parts:05}.safetensors"
            file, places = laid_file(name, pieces, metadata)
            yield file, spread(forms, numbers[members], members, count, places)
            count += 1


def _members(placements: Placements, cuts: Collection[int]) -> list[Table]:
    """Return of each file the positions of its tensors that have some cuts, given by their ids."""
    return placements.members(id(cut) in cuts for _, cut in placements.kinds[1])


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
