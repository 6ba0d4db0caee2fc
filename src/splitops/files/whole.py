"""Whole tensors in files of bounded size, with their index, and back in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

from splitops.errors import FileError, shown, shown_path
from splitops.files.addresses import is_address, target_path
from splitops.files.extents import stretches_to
from splitops.files.folders import INDEX, PIECE, Other, files_beside, main_file, piece_name, stem_of
from splitops.files.formats import Contents, Format, ShardedFormat, chosen_format, format_of, target_format
from splitops.files.pickles import pickle_advice
from splitops.files.planned import Part
from splitops.files.planning import AnyPath, Targets, open_source, read, taken
from splitops.files.plans import FilePlan
from splitops.files.strays import warnings_of_strays
from splitops.files.streams import is_compressed, plain_path
from splitops.files.tensors import column, stretches_of, without_collector
from splitops.ground.reading import DataFolder


@without_collector()
def read_whole(
    path: AnyPath, *, allow_links: bool = False, strict: bool = False
) -> tuple[Contents, tuple[Other, ...], tuple[str, ...]]:
    """Return all tensors that a path stands for, the small files beside them, and what is left behind there.

    The path is a folder with an index, numbered files or a single file; an index; one of numbered files; or
    any other tensor file. Links out of its folder, as in the cache of a hub, are followed where allowed.
    ``strict`` rejects a folder with tensor files that do not belong to the model.
    """
    given = Path(path)
    if is_address(given) or not given.is_dir() or given.suffix == ".zarr":
        return _read(given, None, allow_links=allow_links), (), ()
    folder = DataFolder(given, allow_links)
    names = sorted(entry.name for entry in given.iterdir())
    main = main_file(given, names)
    if main is None:
        advice = pickle_advice(names)
        raise FileError(
            f"{shown_path(given)} holds no *{INDEX}, no safetensors file and no GGUF file"
            f"{'. ' * bool(advice)}{advice}"
        )
    contents = _read(Path(main), folder)
    files = {source.path.relative_to(given).as_posix() for source in contents.sources}
    others, left, strays = files_beside(folder, names, files, (main,))
    tensors = set(column(contents.tensors, "name"))
    found = warnings_of_strays(folder, strays, shown(main), tensors, strict=strict)
    return contents, tuple(other for other in others if other.shared), (*found, *left)


def _read(path: Path, folder: DataFolder | None, *, allow_links: bool = False) -> Contents:
    form = format_of(path) if is_one_of_several(path) else None
    if isinstance(form, ShardedFormat):
        return form.whole(open_source(path, form, folder, allow_links=allow_links))
    return read(path, folder=folder, allow_links=allow_links)


def is_one_of_several(path: Path) -> bool:
    """Return whether a file, by its name, is an index or one of numbered files."""
    return path.name.endswith(INDEX) or PIECE.fullmatch(path.name) is not None


def are_all_of_several(paths: Sequence[Path]) -> bool:
    """Return whether files, by their names, are all the numbered files of one set."""
    found = [PIECE.fullmatch(path.name) for path in paths]
    sets = {
        (path.parent, piece[1], piece[3], piece[4]) for path, piece in zip(paths, found, strict=True) if piece
    }
    numbers = sorted(int(piece[2]) for piece in found if piece)
    return len(sets) == 1 and numbers == list(range(1, int(next(iter(sets))[2]) + 1)) and None not in found


def plan_by_size(
    source: AnyPath,
    out: AnyPath,
    max_size: int,
    *,
    to: Format | str | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> FilePlan:
    """Plan files of at most a size that hold the whole tensors of a model; nothing is written.

    Safetensors get the index that transformers and diffusers read, GGUF files the split keys of llama.cpp.
    The small files of a folder, such as its configuration, are copied.

    Args:
        source: a model's folder, an index, one of numbered files, or any tensor file.
        out: the folder of the files, made if it is not there.
        max_size: the most bytes of a file. A larger tensor has a file of its own.
        to: the format of the files, ``"safetensors"`` or ``"gguf"``; None is that of the source.
        allow_links: whether links to the files may lead out of their folder, as in the cache of a hub.
        strict: whether a tensor file in the folder that the model does not name is an error. Otherwise it is
            left out, with one of the plan's ``warnings``.

    Returns:
        The plan; its ``parts`` say which tensor is in which file.

    Raises:
        FileError: a file is missing or malformed, files do not fit together, the format cannot hold a tensor.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.savez(folder / "x.npz", a=np.zeros(300), b=np.zeros(300), c=np.zeros(5))
        >>> plan = plan_by_size(folder / "x.npz", folder, 4000, to="safetensors")
        >>> [(part.tensor, part.path.name) for part in plan.parts]
        [('a', 'x-00001-of-00002.safetensors'), ('b', 'x-00002-of-00002.safetensors'), \
('c', 'x-00002-of-00002.safetensors')]
        >>> [path.name for path, _ in plan.run().files][2]
        'x.safetensors.index.json'
        >>> plan_one_file(folder / "x.safetensors.index.json", folder / "y.safetensors").dry_run().bytes
        4840
    """
    contents, others, warnings = read_whole(source, allow_links=allow_links, strict=strict)
    stem = stem_of(plain_path(contents.sources[0].path))
    form = chosen_format(to)
    return by_size_plan(contents, out, max_size, stem=stem, to=form, others=others, warnings=warnings)


def groups_of(sizes: Iterable[int], most: int, first: int = 0, later: int = 0) -> list[list[int]]:
    """Return positions in groups of at most so many bytes, in their order; a larger one is alone.

    The first group and the later ones have so many bytes besides.

    Examples:
        >>> groups_of([3, 4, 20, 1], 8)
        [[0, 1], [2], [3]]
    """
    groups: list[list[int]] = [[]]
    total = first
    for index, size in enumerate(sizes):
        if groups[-1] and total + size > most:
            groups.append([])
            total = later
        groups[-1].append(index)
        total += size
    return groups


@without_collector()
def by_size_plan(
    contents: Contents,
    folder: AnyPath,
    max_size: int,
    *,
    stem: str,
    to: Format | None = None,
    others: Sequence[Other] = (),
    warnings: tuple[str, ...] = (),
) -> FilePlan:
    """Return the plan of :func:`plan_by_size`, for files whose names begin with ``stem``."""
    to = to or contents.format
    if not isinstance(to, ShardedFormat):
        raise FileError(f"tensors in several files are safetensors or GGUF, not {to.name}: choose with --to")
    if max_size < 1:
        raise FileError(f"a file of at most {max_size} bytes holds no tensor")
    tensors = taken(contents.tensors, contents, to)
    headers = [to.lay_out([], to.like_shard(contents, number, 2), "").files[0].size + 64 for number in (0, 1)]
    sizes = [tensor.size + to.entry_bytes(tensor, contents) for tensor in tensors]
    groups = groups_of(sizes, max_size, *headers)
    ending = to.suffixes[0]
    names = [piece_name(stem, number, len(groups), ending) for number in range(1, len(groups) + 1)]
    names = names if len(groups) > 1 else [stem + ending]
    return _plan(contents, folder, groups, names, to, stem, others, warnings)


@without_collector()
def plan_one_file(
    source: AnyPath,
    out: AnyPath,
    *,
    to: Format | str | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> FilePlan:
    """Plan one file with all tensors of a model, which may be in several files; nothing is written.

    Args:
        source: as in :func:`plan_by_size`.
        out: the file to write, or its address.
        to: its format; None goes by its name.
        allow_links: as in :func:`plan_by_size`.
        strict: as in :func:`plan_by_size`.

    Raises:
        FileError: as :func:`plan_by_size`.
    """
    contents, _, warnings = read_whole(source, allow_links=allow_links, strict=strict)
    found = Path(out)
    if is_compressed(found):
        raise FileError(f"{shown(found.name)}: compressed files are read, and not written")
    form = target_format(found, chosen_format(to))
    every = [list(range(len(contents.tensors)))]
    return _plan(contents, found.parent, every, [found.name], form, found.stem, (), warnings)


def _plan(
    contents: Contents,
    out: AnyPath,
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    to: Format,
    stem: str,
    others: Sequence[Other],
    warnings: tuple[str, ...],
) -> FilePlan:
    folder = target_path(Path(out))
    targets = Targets([], [], [])
    tensors = taken(contents.tensors, contents, to)
    parts: list[Part] = []
    where: dict[str, str] = {}
    several = to if isinstance(to, ShardedFormat) and len(groups) > 1 else None
    for number, (group, name) in enumerate(zip(groups, names, strict=True)):
        held = [tensors[i] for i in group]
        like = several.like_shard(contents, number, len(groups)) if several else contents
        layout = to.lay_out(held, like, name)
        first = targets.add(layout)
        targets.extents.append(stretches_to(stretches_of(held), layout.places, first))
        path = folder / name
        own, shapes = list(column(held, "name")), list(column(held, "shape"))
        sizes = [shape[0] if shape else 1 for shape in shapes]
        parts += map(Part._make, zip(repeat(path), own, repeat(0), sizes, shapes, strict=False))
        where |= dict.fromkeys(own, name)
    if several is not None:
        index = several.index(stem, where, sum(column(tensors, "size")))
        targets.files += [index] if index is not None else []
    made = targets.plan(stem, folder, contents.sources, contents.tensors, parts, others)
    return replace(made, warnings=warnings)
