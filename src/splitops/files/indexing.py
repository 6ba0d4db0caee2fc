"""Write the index of the safetensors files in a folder from their headers."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, format_list, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extent_tasks import ExtentCopies
from splitops.files.extents import Extents
from splitops.files.folders import (
    INDEX,
    PIECE,
    check_file_name,
    format_index,
    is_another_model,
    name_piece,
    stem_of,
)
from splitops.files.formats import TargetFile, get_format
from splitops.files.pickles import advise_on_pickles
from splitops.files.plan import FilePlan
from splitops.files.plan_types import Part
from splitops.files.sources import LocalFile, Source
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import pause_gc

_MAX_NAMED: Final = 8
"""Maximum number of missing files that a message names. Others are only counted."""


@pause_gc()
def plan_index(
    folder: str | os.PathLike[str],
    *,
    include: Sequence[str] = (),
    allow_missing: bool = False,
    allow_links: bool = False,
    strict: bool = False,
) -> FilePlan:
    """Plan the index of the safetensors files in a folder from their headers, without writing anything.

    The index lists the files of the only complete set of numbered files, such as
    ``model-00001-of-00003.safetensors``. If no file is numbered, it lists all files, except those whose names
    show that they belong to another model, such as ``model.fp16.safetensors``.

    Args:
        folder: the folder.
        include: globs that match the names of more files for the index.
        allow_missing: whether numbers of the set may be missing.
        allow_links: whether links to the files may lead out of their folder, as in the cache of a hub.
        strict: whether a file that does not belong to the model is an error instead of a warning. Files whose
            names show that they belong to another model are neither.

    Returns:
        The plan of the index. Its ``parts`` map each tensor to its file. If the folder already has an index
        that agrees with the files, the plan writes nothing. If it disagrees, there is a warning.

    Raises:
        FileError: there are no files, there are several sets and not exactly one is complete, a number is
            missing, a tensor is in two files, or a file is malformed.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.savez(folder / "x.npz", a=np.zeros(300), b=np.zeros(300))
        >>> report = splitops.files.plan_by_size(folder / "x.npz", folder, 3000, to="safetensors").run()
        >>> (folder / "x.safetensors.index.json").unlink()
        >>> [path.name for path, _ in plan_index(folder).run().files]
        ['x.safetensors.index.json']
    """
    given, door = Path(folder), DataFolder(Path(folder), allow_links)
    if not given.is_dir():
        raise FileError(f"{shown_path(given)} is not a folder")
    names = sorted(os.listdir(given))
    files = [name for name in names if name.endswith(".safetensors")]
    stems = {stem_of(Path(name)) for name in files}
    own = [name for name in files if not is_another_model(name, stems)]
    if not own:
        advice = advise_on_pickles(names)
        raise FileError(f"{shown_path(given)} has no safetensors file{'. ' * bool(advice)}{advice}")
    stem, chosen = _choose_files(own, allow_missing=allow_missing)
    for glob in include:
        if not fnmatch.filter(files, glob):
            raise FileError(f"no safetensors file in {shown_path(given)} matches {shown(glob)}")
        chosen += fnmatch.filter(files, glob)
    raise_file_limit(len(chosen))
    read = get_format("safetensors").read
    contents = {n: read(LocalFile(check_file_name(n), door)) for n in sorted({*chosen})}
    held = [(tensor, name) for name, each in contents.items() for tensor in each.tensors]
    where = {tensor.name: name for tensor, name in held}
    twice = [
        f"{t.label} is in {shown(n)} and in {shown(where[t.name])}" for t, n in held if where[t.name] != n
    ]
    if twice:
        raise FileError(f"{format_list(twice)}: move one of the files to another folder")
    index = stem + INDEX
    warnings = warn_of_strays(door, [n for n in own if n not in contents], shown(index), where, strict=strict)
    fault = _find_fault(LocalFile(index, door), where) if os.path.lexists(given / index) else ""
    text = format_index(where, sum(tensor.size for tensor, _ in held))
    made = () if fault is None else (TargetFile(index, len(text), ((0, text),)),)
    parts = [Part(given / n, t.name, 0, t.shape[0] if t.shape else 1, t.shape) for t, n in held]
    return FilePlan(
        index,
        given,
        tuple(each.sources[0] for each in contents.values()),
        (),
        made,
        ExtentCopies(Extents.from_extents(())),
        tuple(parts),
        warnings=(*([f"{shown(index)} is stale: {fault}"] if fault else []), *warnings),
    )


def _choose_files(files: Sequence[str], *, allow_missing: bool) -> tuple[str, list[str]]:
    """Return the stem of the index's name, and the names of the model's files."""
    sets: dict[tuple[str, int], dict[int, str]] = {}
    for name in files:
        if (piece := PIECE.fullmatch(name)) and 0 < int(piece[2]) <= int(piece[3]):
            sets.setdefault((piece[1], int(piece[3])), {})[int(piece[2])] = name
    if not sets:
        return stem_of(Path(files[0])) if len(files) == 1 else "model", [*files]
    complete = [key for key, held in sets.items() if len(held) == key[1]]
    if len(complete) != 1 and len(sets) > 1:
        said = format_list([shown(next(iter(held.values()))) for held in sets.values()])
        raise FileError(
            f"{len(complete)} of {len(sets)} sets of numbered files are complete. Move those of other "
            f"models to another folder. The sets begin with {said}"
        )
    stem, count = (complete or list(sets))[0]
    held = sets[stem, count]
    lost = [number for number in range(1, min(count, len(held) + _MAX_NAMED) + 1) if number not in held]
    if lost and not allow_missing:
        first = [shown(name_piece(stem, n, count, ".safetensors")) for n in lost]
        said = format_list(first, count - len(held))
        raise FileError(
            f"{count - len(held)} of {count} numbered files are missing: {said}. If the model is complete "
            "without them, pass --allow-missing (in Python: allow_missing=True)"
        )
    return stem, [*held.values()]


def _find_fault(index: Source, where: Mapping[str, str]) -> str | None:
    """Return why an index disagrees with the tensor files, or None if it agrees."""
    from splitops.files.formats.safetensors import read_shards

    try:
        contents, faults = read_shards(index)
    except FileError as error:
        return error.message
    found = {tensor.name: name for name, each in contents.items() for tensor in each.tensors}
    others = [shown(name) for name in found.keys() ^ where.keys()]
    if others:
        return f"only the index or only the files have {format_list(others)}"
    return next(iter(faults), None)
