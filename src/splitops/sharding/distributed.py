"""Read distributed checkpoints that PyTorch has written as safetensors files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from splitops.common.untrusted_files import DataFolder
from splitops.errors import PlanError, brief, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import Extent, Extents
from splitops.files.folders import INDEX, SidecarFile, find_other_files, format_index, name_piece
from splitops.files.formats import get_format
from splitops.files.formats.safetensors import make_tensor, read_index
from splitops.files.sources import LocalFile, Source
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor
from splitops.sharding.boxes import Box, check_boxes, locate_box
from splitops.sharding.checkpoint import Checkpoint, WholeFile, read_config
from splitops.sharding.copies import deduplicate
from splitops.sharding.documents import parse
from splitops.sharding.layouts.dcp import INFO, NAME, OFFSETS
from splitops.sharding.placements import lay_out_file

_SINGLE: Final = "model.safetensors"
_METADATA: Final = {"format": "pt"}
_PICKLED: Final = re.compile(r".*_rank\d+\.bin")
"""Pattern of accelerate's file names for FSDP shards that are not distributed checkpoints of PyTorch."""


class _Saved(NamedTuple):
    """A stored piece, its box in the complete tensor, and the index and the part number of its file."""

    tensor: StoredTensor
    box: Box
    source: int
    part: int


class _Text(Source):
    """The content of a new sidecar file, as a source."""

    def __init__(self, path: Path, text: bytes) -> None:
        self.path, self._text = path, text
        self.size = len(text)

    def read(self, offset: int, size: int) -> bytes:
        return self._text[offset : offset + size]

    def read_identity(self) -> list[Any]:
        return [str(self.path), self._text.decode()]


def is_distributed(path: Path) -> bool:
    """Return whether a path is a folder with a file named as in distributed checkpoints of PyTorch."""
    return path.is_dir() and any(NAME.fullmatch(entry.name) for entry in path.iterdir())


def reject_pickled(path: Path) -> None:
    """Raise PlanError for a folder with pickled .distcp files or .bin files of ranks.

    The message explains how to convert them.
    """
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    name, unread = shown_path(path), "which are not read, since they could run any code"
    if any(each.endswith(".distcp") for each in names):
        raise PlanError(
            f"{name} contains pickled .distcp files, {unread}: convert them to safetensors with "
            f"`accelerate merge-weights {name} OUT`, or to a file of PyTorch with `python -m "
            f"torch.distributed.checkpoint.format_utils dcp_to_torch {name} OUT.pt`"
        )
    if any(_PICKLED.fullmatch(each) for each in names):
        raise PlanError(
            f"{name} contains pickled .bin files of ranks, {unread}: load them with accelerate, and save the "
            "state with use_dcp=True or as FULL_STATE_DICT"
        )


def read_distributed(
    path: Path, *, like: Checkpoint | None = None, allow_links: bool = False, strict: bool = False
) -> Checkpoint:
    """Read a distributed checkpoint as if it had the unsharded files and the sidecar files of ``like``.

    Without ``like``, there is at most one unsharded file per part, and a tensor ends with its last piece. If
    this piece is missing, the total size in an index may be the only sign of it. ``strict`` rejects a folder
    with other tensor files.
    """
    folder = DataFolder(path, allow_links)
    names = sorted(entry.name for entry in path.iterdir())
    files = [name for name in names if NAME.fullmatch(name)]
    raise_file_limit(len(files))
    sources = [LocalFile(name, folder) for name in files]
    pieces: dict[str, list[_Saved]] = {}
    for number, (name, source) in enumerate(zip(files, sources, strict=True)):
        for piece in _iter_pieces(source, name, number):
            pieces.setdefault(piece.tensor.name, []).append(piece)
    others, left, strays = find_other_files(folder, names, files, [n for n in names if n.endswith(INDEX)])
    main = f"the distributed files of {shown_path(path)}"
    warnings = (*warn_of_strays(folder, strays, main, pieces, strict=strict), *left)
    if like is None:
        by_part: dict[int, list[StoredTensor]] = {}
        for own in pieces.values():
            by_part.setdefault(min(piece.part for piece in own), []).append(_join_pieces(own))
        wholes, made, index = lay_out_files([members for _, members in sorted(by_part.items())], path)
        _check_index(others, {tensor.name: tensor for tensor in wholes})
        others = (*(other for other in others if not other.name.endswith(INDEX)), *index)
    else:
        wholes, made, others = list(like.tensors), list(like.files), like.others
        _check_like(pieces, like)
    found = [
        extent
        for index, tensor in enumerate(wholes)
        for extent in _iter_extents(index, tensor, pieces[tensor.name])
    ]
    return Checkpoint(
        shown_path(path),
        tuple(made),
        tuple(wholes),
        tuple(sources),
        deduplicate(wholes, Extents.from_extents(found), sources),
        others,
        read_config(others),
        warnings=(*warnings, *_warn_of_missing(files)),
    )


def _iter_pieces(source: Source, file: str, number: int) -> Iterable[_Saved]:
    """Yield the pieces in file ``number``, named ``file``. Its metadata has their offsets in the tensors."""
    contents = get_format("safetensors").read(source)
    stated = contents.metadata.get(INFO)
    info = parse(stated.encode(), f"{source.name}: {INFO}") if stated is not None else None
    if not isinstance(info, dict):
        raise PlanError(f"{source.name} has no {INFO}: it is not part of a distributed checkpoint")
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
                f"{source.name}: {tensor.label} of shape {brief(tensor.shape)} has the invalid offsets "
                f"{shown(begin)}"
            )
        yield _Saved(tensor, Box(tuple(begin), tensor.shape), number, int(match[2]))


def _join_pieces(pieces: Sequence[_Saved]) -> StoredTensor:
    """Return the complete tensor to which pieces belong. Its place in a file is not set."""
    first = pieces[0].tensor
    for piece in pieces:
        if (piece.tensor.code, len(piece.box.shape)) != (first.code, len(first.shape)):
            raise PlanError(
                f"{first.label} is {first.code} of rank {len(first.shape)} in one file, but not in another"
            )
    shape = tuple(max(ends) for ends in zip(*(piece.box.end for piece in pieces), strict=True))
    try:
        return make_tensor(first.name, first.code, list(shape), 0)
    except ValueError as error:
        raise PlanError(str(error)) from error


def lay_out_files(
    groups: Sequence[Sequence[StoredTensor]], path: Path
) -> tuple[list[StoredTensor], list[WholeFile], list[SidecarFile]]:
    """Lay out one file for each group of tensors.

    Return the tensors with their places, the files, and their index in a list, which is empty for one file.
    """
    files: list[WholeFile] = []
    tensors: list[StoredTensor] = []
    where: dict[str, str] = {}
    for number, members in enumerate(groups):
        count = len(groups)
        name = _SINGLE if count == 1 else name_piece("model", number + 1, count, ".safetensors")
        file, places = lay_out_file(name, members, _METADATA)
        files.append(WholeFile(name, file.size, file.literals, _METADATA))
        tensors += [
            t._replace(file=number, offset=at) for t, at in zip(members, places.tolist(), strict=True)
        ]
        where |= {tensor.name: name for tensor in members}
    if len(files) == 1:
        return tensors, files, []
    text = format_index(where, sum(tensor.size for tensor in tensors))
    return tensors, files, [SidecarFile(f"model{INDEX}", _Text(path / f"model{INDEX}", text), shared=False)]


def _iter_extents(index: int, tensor: StoredTensor, pieces: Sequence[_Saved]) -> Iterator[Extent]:
    """Yield the extents from all pieces to a tensor. Pieces may overlap only if they have the same box."""
    try:
        check_boxes(tuple(sorted({piece.box for piece in pieces})), tensor.shape)
        for piece in pieces:
            for extent in locate_box(tensor, piece.box, piece.source, piece.tensor.offset):
                yield extent._replace(target=index)
    except PlanError as error:
        raise PlanError(f"{tensor.label}: {error.message}") from error


def _check_names(found: Collection[str], wanted: Collection[str], where: str) -> None:
    missing = next((name for name in wanted if name not in found), None)
    if missing is not None:
        raise PlanError(f"tensor {shown(missing)} of {where} is missing in all files")


def _check_like(pieces: dict[str, list[_Saved]], like: Checkpoint) -> None:
    own = {tensor.name: tensor for tensor in like.tensors}
    for name, found in pieces.items():
        if name not in own:
            raise PlanError(f"tensor {shown(name)} is not in {like.name}")
        whole = _join_pieces(found)
        if (whole.code, len(whole.shape)) != (own[name].code, len(own[name].shape)):
            kinds = [f"{each.code} {brief(each.shape)}" for each in (whole, own[name])]
            raise PlanError(f"{own[name].label} is {kinds[0]}, but {kinds[1]} in {like.name}")
    _check_names(pieces, own, like.name)


def _check_index(others: Sequence[SidecarFile], tensors: dict[str, StoredTensor]) -> None:
    """Check that the tensors of each index among sidecar files exist, and that a declared total is right."""
    for other in others:
        if not other.name.endswith(INDEX):
            continue
        stated, total = read_index(other.source)
        _check_names(tensors, stated, other.source.name)
        held = sum(tensors[name].size for name in stated)
        if type(total) is int and total != held:
            raise PlanError(
                f"{other.source.name} declares {total} bytes of tensors, but the files have {held}"
            )


def _warn_of_missing(files: Sequence[str]) -> list[str]:
    """Return a list with a warning if the file names skip ranks. Otherwise, the list is empty."""
    matches = [match for name in files if (match := NAME.fullmatch(name)) is not None]
    ranks = {int(match[1]) for match in matches}
    holes = sorted(set(range(1, min(max(ranks), 1 << 16) + 1)) - ranks)
    text = f"there are no files of ranks {brief(holes)}, which may have had no tensors"
    return [text] if holes else []
