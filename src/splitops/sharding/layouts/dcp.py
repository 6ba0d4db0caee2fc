"""``dcp``: PyTorch's distributed checkpoints in safetensors files. PyTorch loads them on any device mesh.

Each piece has the name of its tensor; the metadata of the file has its offsets. A name can appear only once
in a file, so the second piece of a tensor on a rank is stored in another file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Final

from splitops.files.extents import Extent, Table
from splitops.files.tensors import StoredTensor
from splitops.sharding.placements import (
    LaidFile,
    Placements,
    copy_extents,
    lay_out_file,
    make_rank_tensor,
    rename,
)
from splitops.sharding.tensor_sharding import Piece, Shard, TensorSharding, shard_extents

NAME: Final = re.compile(r"shard-(\d{5,})-model-(\d{5,})-of-(\d{5,})\.safetensors")
"""Pattern of file names. The groups are the rank (from 1), the part, and the number of parts."""
INFO: Final = "DCP_SHARDING_INFO"
OFFSETS: Final = "saved_offsets"


def list_sidecar_folders(ranks: int) -> tuple[str, ...]:
    """Return only the common folder, which all ranks share."""
    return ("",)


def iter_files(placements: Placements) -> Iterator[LaidFile]:
    """Lay out the files of all ranks, one at a time."""
    numbers, kinds = placements.kinds
    # In each turn, a rank stores one piece of each tensor. Keyed by rank and turn, then by the id of a
    # sharding: the sharding of this piece alone, and the offset of the piece.
    turns: dict[tuple[int, int], dict[int, tuple[TensorSharding, int]]] = {}
    for cut in {id(cut): cut for _, cut in kinds}.values():
        for rank, turn, alone, begin in _isolate_pieces(cut):
            turns.setdefault((rank, turn), {})[id(cut)] = alone, begin
    several = len(placements.files)
    last = max((turn for _, turn in turns), default=0)
    late = {cut for (_, turn), own in turns.items() if turn == last for cut in own}
    ends = [number for number, found in enumerate(_find_members(placements, late)) if len(found)]
    parts = last * several + max(ends, default=0) + 1
    count = 0
    for rank, turn in sorted(turns):
        cuts = turns[rank, turn]
        own: dict[int, tuple[StoredTensor, list[Extent], list[int]]] = {}
        for kind, (tensor, cut) in enumerate(kinds):
            if id(cut) in cuts:
                alone, begin = cuts[id(cut)]
                at = [begin if axis == alone.axis else 0 for axis in range(len(tensor.shape))]
                own[kind] = make_rank_tensor(tensor, alone, 0), shard_extents(tensor, alone, 0), at
        forms = [own[kind][1] if kind in own else [] for kind in range(len(kinds))]
        for number, members in enumerate(_find_members(placements, cuts)):
            if not len(members):
                continue
            some = [own[kind] for kind in numbers[members].tolist()]
            names = [placements.tensors[i].name for i in members.tolist()]
            pieces = rename([each[0] for each in some], names)
            info = {piece.name: {OFFSETS: each[2]} for piece, each in zip(pieces, some, strict=True)}
            metadata = {"format": "pt", "DCP_VERSION": "1.0", INFO: json.dumps(info, ensure_ascii=False)}
            name = f"shard-{rank + 1:05}-model-{turn * several + number + 1:05}-of-{parts:05}.safetensors"
            file, places = lay_out_file(name, pieces, metadata)
            yield file, copy_extents(forms, numbers[members], members, count, places)
            count += 1


def _find_members(placements: Placements, cuts: Collection[int]) -> list[Table]:
    """Return, for each file, the indices of the tensors whose sharding has one of the ids ``cuts``."""
    return placements.find_members(id(cut) in cuts for _, cut in placements.kinds[1])


def _isolate_pieces(cut: TensorSharding) -> list[tuple[int, int, TensorSharding, int]]:
    """Return, for each piece, its first rank, its number there, its own sharding, and its offset."""
    found: list[tuple[int, int, TensorSharding, int]] = []
    turns: dict[int, int] = {}
    for rank, piece in cut.holders or ((0, None),):  # an empty tensor has no pieces
        turn = turns[rank] = turns.get(rank, -1) + 1
        if piece is None:
            found.append((rank, turn, TensorSharding(None, (Shard(),)), 0))
        else:
            shard = Shard(piece.size, (Piece(piece.begin, piece.size, 0),))
            found.append((rank, turn, TensorSharding(cut.axis, (shard,)), piece.begin))
    return found
