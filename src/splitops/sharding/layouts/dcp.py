"""``dcp``: the safetensors of PyTorch's distributed checkpoints, which it loads on any mesh of devices.

Each piece is a tensor of the whole's name; the metadata of its file say where it begins. A name appears once
in a file, so the second piece that a rank has of a tensor goes to a file of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from splitops.files.tensors import StoredTensor
from splitops.sharding.cuts import Cut, Piece, Shard, shard_extents
from splitops.sharding.placements import Filing, Laid, Placements, shard_of

NAME: Final = re.compile(r"shard-(\d{5,})-model-(\d{5,})-of-(\d{5,})\.safetensors")
"""The files of a distributed checkpoint: the rank from 1 on, the part, how many parts there are."""
INFO: Final = "DCP_SHARDING_INFO"
OFFSETS: Final = "saved_offsets"


def homes(ranks: int) -> tuple[str, ...]:
    """Return the folder of all ranks."""
    return ("",)


def lay_out(placements: Placements) -> Laid:
    """Lay out the files of all ranks."""
    held = _members(placements)
    parts = max((part for _, part in held), default=0) + 1
    filing = Filing(len(placements.tensors))
    for (rank, part), members in sorted(held.items()):
        pieces = [shard_of(placements.tensors[i], cut, 0) for i, cut, _ in members]
        begins = [begin for _, _, begin in members]
        name = f"shard-{rank + 1:05}-model-{part + 1:05}-of-{parts:05}.safetensors"
        number, offsets = filing.add(name, pieces, _metadata(pieces, begins))
        for (i, cut, _), offset in zip(members, offsets, strict=True):
            filing.extents[i] += shard_extents(placements.tensors[i], cut, 0, number, offset)
    return filing.laid


_Member = tuple[int, Cut, tuple[int, ...]]


def _members(placements: Placements) -> dict[tuple[int, int], list[_Member]]:
    """Return by rank and part of its files the tensors, the cut of each one's piece, and where it begins."""
    held: dict[tuple[int, int], list[_Member]] = {}
    count = max(1, len(placements.files))
    known: dict[Cut, list[tuple[int, int, Cut, int]]] = {}
    for index, (tensor, cut) in enumerate(zip(placements.tensors, placements.cuts, strict=True)):
        if cut not in known:
            known[cut] = _alone(cut)
        for rank, turn, alone, begin in known[cut]:
            at = tuple(begin if axis == alone.axis else 0 for axis in range(len(tensor.shape)))
            held.setdefault((rank, turn * count + tensor.file), []).append((index, alone, at))
    return held


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


def _metadata(pieces: Sequence[StoredTensor], offsets: Sequence[tuple[int, ...]]) -> Mapping[str, str]:
    info = {piece.name: {OFFSETS: list(begin)} for piece, begin in zip(pieces, offsets, strict=True)}
    return {"format": "pt", "DCP_VERSION": "1.0", INFO: json.dumps(info, ensure_ascii=False)}
