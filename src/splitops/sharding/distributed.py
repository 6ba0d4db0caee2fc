"""Distributed checkpoints that PyTorch wrote as safetensors, read without live ranks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from splitops.errors import PlanError, brief, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import Extent, Extents
from splitops.files.folders import INDEX, Other, find_other_files, format_index, name_piece
from splitops.files.formats import get_format
from splitops.files.formats.safetensors import make_tensor, read_index
from splitops.files.sources import LocalFile, Source
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor
from splitops.ground.reading import DataFolder
from splitops.sharding.boxes import Box, box_extents, prove_boxes
from splitops.sharding.checkpoint import Checkpoint, WholeFile, config_of
from splitops.sharding.copies import each_once
from splitops.sharding.documents import parse
from splitops.sharding.layouts.dcp import INFO, NAME, OFFSETS
from splitops.sharding.placements import laid_file

_SINGLE: Final = "model.safetensors"
_METADATA: Final = {"format": "pt"}
_PICKLED: Final = re.compile(r".*_rank\d+\.bin")
"""What accelerate names the shards of FSDP that it saves without PyTorch's distributed checkpoints."""


class _Saved(NamedTuple):
    """A tensor of a file, where it is in a whole, the position of its file, and the part that that is of."""

    tensor: StoredTensor
    box: Box
    source: int
    part: int


class _Text(Source):
    """A small file that is made anew, as a source."""

    def __init__(self, path: Path, text: bytes) -> None:
        self.path, self._text = path, text
        self.size = len(text)

    def read(self, offset: int, size: int) -> bytes:
        return self._text[offset : offset + size]

    def read_identity(self) -> list[Any]:
        return [str(self.path), self._text.decode()]


def is_distributed(path: Path) -> bool:
    """Return whether a path is a folder with files that PyTorch's writer names so."""
    return path.is_dir() and any(NAME.fullmatch(entry.name) for entry in path.iterdir())


def reject_pickled(path: Path) -> None:
    """Reject a folder with the pickled files of PyTorch's checkpoints, with what converts them."""
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    name, unread = shown_path(path), "which could run any code and are not read"
    if any(each.endswith(".distcp") for each in names):
        raise PlanError(
            f"{name} holds pickled .distcp files, {unread}: "
            f"`accelerate merge-weights {name} OUT` makes safetensors of them, `python -m "
            f"torch.distributed.checkpoint.format_utils dcp_to_torch {name} OUT.pt` a file of PyTorch"
        )
    if any(_PICKLED.fullmatch(each) for each in names):
        raise PlanError(
            f"{name} holds pickled .bin files of ranks, {unread}: load them with accelerate, and save the "
            "state with use_dcp=True or as FULL_STATE_DICT"
        )


def read_distributed(
    path: Path, *, like: Checkpoint | None = None, allow_links: bool = False, strict: bool = False
) -> Checkpoint:
    """Read a distributed checkpoint, as the files of ``like`` if there is one.

    Without it, a tensor ends where its last piece does: a lost file cannot be seen there. ``strict`` rejects
    a folder with other tensor files.
    """
    folder = DataFolder(path, allow_links)
    names = sorted(entry.name for entry in path.iterdir())
    files = [name for name in names if NAME.fullmatch(name)]
    raise_file_limit(len(files))
    sources = [LocalFile(name, folder) for name in files]
    pieces: dict[str, list[_Saved]] = {}
    for number, (name, source) in enumerate(zip(files, sources, strict=True)):
        for piece in _pieces(source, name, number):
            pieces.setdefault(piece.tensor.name, []).append(piece)
    others, left, strays = find_other_files(folder, names, files, [n for n in names if n.endswith(INDEX)])
    main = f"the distributed files of {shown_path(path)}"
    warnings = (*warn_of_strays(folder, strays, main, pieces, strict=strict), *left)
    if like is None:
        wholes, made, index = _laid_out(pieces, path)
        _prove_index(others, {tensor.name: tensor for tensor in wholes})
        others = (*(other for other in others if not other.name.endswith(INDEX)), *index)
    else:
        wholes, made, others = list(like.tensors), list(like.files), like.others
        _prove_like(pieces, like)
    found = [
        extent for index, tensor in enumerate(wholes) for extent in _held(index, tensor, pieces[tensor.name])
    ]
    return Checkpoint(
        shown_path(path),
        tuple(made),
        tuple(wholes),
        tuple(sources),
        each_once(wholes, Extents.from_extents(found), sources),
        others,
        config_of(others),
        warnings=(*warnings, *_lost(files)),
    )


def _pieces(source: Source, file: str, number: int) -> Iterable[_Saved]:
    """Yield the pieces in a file, with where they begin by its metadata."""
    contents = get_format("safetensors").read(source)
    stated = contents.metadata.get(INFO)
    info = parse(stated.encode(), f"{source.name}: {INFO}") if stated is not None else None
    if not isinstance(info, dict):
        raise PlanError(f"{source.name} has no {INFO}: it is of no distributed checkpoint")
    match = NAME.fullmatch(file)
    assert match is not None
    for tensor in contents.tensors:
        entry = info.get(tensor.name)
        begin = entry.get(OFFSETS) if isinstance(entry, dict) else None
        if not (
            isinstance(begin, list)
            and len(begin) == len(tensor.shape)
            and all(type(at) is int and 0 <= at < 1 << 62 for at in begin)
        ):
            raise PlanError(
                f"{source.name}: {tensor.label} of shape {brief(tensor.shape)} begins at {shown(begin)}"
            )
        yield _Saved(tensor, Box(tuple(begin), tensor.shape), number, int(match[2]))


def _whole(pieces: Sequence[_Saved]) -> StoredTensor:
    """Return the tensor that pieces make up, at no place yet."""
    first = pieces[0].tensor
    for piece in pieces:
        if (piece.tensor.code, len(piece.box.shape)) != (first.code, len(first.shape)):
            raise PlanError(
                f"{first.label} is {first.code} of rank {len(first.shape)} in one file, and not in another"
            )
    shape = tuple(max(ends) for ends in zip(*(piece.box.end for piece in pieces), strict=True))
    try:
        return make_tensor(first.name, first.code, list(shape), 0)
    except ValueError as error:
        raise PlanError(str(error)) from error


def _laid_out(
    pieces: dict[str, list[_Saved]], path: Path
) -> tuple[list[StoredTensor], list[WholeFile], list[Other]]:
    """Return the tensors in files of their own: one for each part, and the index of several."""
    by_part: dict[int, list[StoredTensor]] = {}
    for found in pieces.values():
        by_part.setdefault(min(piece.part for piece in found), []).append(_whole(found))
    files: list[WholeFile] = []
    tensors: list[StoredTensor] = []
    where: dict[str, str] = {}
    for number, (_, members) in enumerate(sorted(by_part.items())):
        count = len(by_part)
        name = _SINGLE if count == 1 else name_piece("model", number + 1, count, ".safetensors")
        file, places = laid_file(name, members, _METADATA)
        files.append(WholeFile(name, file.size, file.literals, _METADATA))
        tensors += [
            t._replace(file=number, offset=at) for t, at in zip(members, places.tolist(), strict=True)
        ]
        where |= {tensor.name: name for tensor in members}
    if len(files) == 1:
        return tensors, files, []
    text = format_index(where, sum(tensor.size for tensor in tensors))
    return tensors, files, [Other(f"model{INDEX}", _Text(path / f"model{INDEX}", text), shared=False)]


def _held(index: int, tensor: StoredTensor, pieces: Sequence[_Saved]) -> Iterator[Extent]:
    """Yield the bytes of a tensor, also those that several pieces have."""
    try:
        prove_boxes(tuple(sorted({piece.box for piece in pieces})), tensor.shape)
        for piece in pieces:
            for extent in box_extents(tensor, piece.box, piece.source, piece.tensor.offset):
                yield extent._replace(target=index)
    except PlanError as error:
        raise PlanError(f"{tensor.label}: {error.message}") from error


def _prove_names(found: Collection[str], wanted: Collection[str], where: str) -> None:
    missing = next((name for name in wanted if name not in found), None)
    if missing is not None:
        raise PlanError(f"tensor {shown(missing)} of {where} is in no file")


def _prove_like(pieces: dict[str, list[_Saved]], like: Checkpoint) -> None:
    own = {tensor.name: tensor for tensor in like.tensors}
    for name, found in pieces.items():
        if name not in own:
            raise PlanError(f"tensor {shown(name)} is not in {like.name}")
        whole = _whole(found)
        if (whole.code, len(whole.shape)) != (own[name].code, len(own[name].shape)):
            raise PlanError(f"{own[name].label} is {own[name].code} {brief(own[name].shape)} in {like.name}")
    _prove_names(pieces, own, like.name)


def _prove_index(others: Sequence[Other], tensors: dict[str, StoredTensor]) -> None:
    """Compare what was found with the index beside it, if there is one."""
    for other in others:
        if not other.name.endswith(INDEX):
            continue
        stated, total = read_index(other.source)
        _prove_names(tensors, stated, other.source.name)
        held = sum(tensors[name].size for name in stated)
        if type(total) is int and total != held:
            raise PlanError(
                f"{other.source.name} declares {total} bytes of tensors, and the files have {held}"
            )


def _lost(files: Sequence[str]) -> list[str]:
    """Return the missing numbers in the names of the files, which may be none."""
    matches = [match for name in files if (match := NAME.fullmatch(name)) is not None]
    ranks = {int(match[1]) for match in matches}
    holes = sorted(set(range(1, min(max(ranks), 1 << 16) + 1)) - ranks)
    return [f"no file of ranks {brief(holes)}, which may have held nothing"] if holes else []
