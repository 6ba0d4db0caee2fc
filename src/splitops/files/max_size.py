"""Plans for all tensors of a model: spread over files of limited size, or joined in one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, count_of, shown, shown_path
from splitops.files.extents import extents_from_ranges
from splitops.files.folders import (
    INDEX,
    PIECE,
    SidecarFile,
    find_main_file,
    find_other_files,
    name_piece,
    stem_of,
)
from splitops.files.formats import (
    Contents,
    Format,
    Layout,
    ShardedFormat,
    choose_format,
    detect_format,
    to_format,
)
from splitops.files.formats.onnx import FORMAT as ONNX
from splitops.files.pickles import advise_on_pickles
from splitops.files.plan import FilePlan
from splitops.files.plan_builder import AnyPath, Targets, adapt, open_source, read
from splitops.files.plan_types import Part
from splitops.files.strays import warn_of_leftovers, warn_of_strays
from splitops.files.streams import is_compressed, strip_compression
from splitops.files.tensors import StoredTensor, iter_field, locate_tensors, pause_gc
from splitops.files.urls import is_url, resolve_target
from splitops.spec.sizes.dims import require_integer


@pause_gc()
def read_all_tensors(
    path: AnyPath, *, allow_links: bool = False, strict: bool = False
) -> tuple[Contents, tuple[SidecarFile, ...], tuple[str, ...]]:
    """Return the tensors of a model, the small files next to them, and warnings about other files.

    The path is an index, one of several numbered files, any other tensor file, or a folder with an index,
    safetensors or GGUF files, or a single ONNX model. With ``allow_links``, links may lead out of the folder.
    With ``strict``, a tensor file in the folder that does not belong to the model is an error, unless its
    name shows that it belongs to another model.
    """
    given = Path(path)
    if is_url(given) or not given.is_dir() or given.suffix == ".zarr":
        return _read(given, None, allow_links=allow_links), (), ()
    folder = DataFolder(given, allow_links)
    names = sorted(entry.name for entry in given.iterdir())
    models = [name for name in names if name.endswith(".onnx")]
    main = find_main_file(given, names) or (models[0] if len(models) == 1 else None)
    if main is None:
        advice = advise_on_pickles(names)
        raise FileError(
            f"{shown_path(given)} has no *{INDEX}, no safetensors file, no GGUF file and no single ONNX model"
            f"{'. ' * bool(advice)}{advice}"
        )
    contents = _read(Path(main), folder)
    files = {source.path.relative_to(given).as_posix() for source in contents.sources}
    others, left, strays = find_other_files(folder, names, files, (main,))
    tensors = set(iter_field(contents.tensors, "name"))
    found = warn_of_strays(folder, strays, shown(main), tensors, strict=strict)
    return contents, tuple(other for other in others if other.shared), (*found, *left)


def _read(path: Path, folder: DataFolder | None, *, allow_links: bool = False) -> Contents:
    form = detect_format(path) if is_shard_name(path) else None
    if isinstance(form, ShardedFormat):
        return form.read_all_shards(open_source(path, form, folder, allow_links=allow_links))
    return read(path, folder=folder, allow_links=allow_links)


def is_shard_name(path: Path) -> bool:
    """Return whether a file, judged by its name, is an index or one of several numbered files."""
    return path.name.endswith(INDEX) or PIECE.fullmatch(path.name) is not None


def are_all_shards(paths: Sequence[Path]) -> bool:
    """Return whether files, judged by their names, are exactly the numbered files of one set."""
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
    """Plan files of limited size for the tensors of a model, without writing anything.

    Each tensor is in one file. Several safetensors files get the index that transformers and diffusers read.
    Several GGUF files get the split keys of llama.cpp. An ONNX model refers to data files of limited size. If
    the source is a folder, its small files, such as the configuration, are copied.

    Args:
        source: folder of a model, an index, one of several numbered files, or any tensor file.
        out: folder of the files, created if it does not exist.
        max_size: maximum size of a file in bytes. A larger tensor gets a file of its own. If an ONNX model
            itself is larger, the plan has a warning.
        to: format of the files, ``"safetensors"``, ``"gguf"`` or ``"onnx"``; None for the format of the
            source.
        allow_links: whether links to the files may lead out of their folder, as in the cache of a hub.
        strict: whether a tensor file in the folder that is not part of the model is an error, unless its name
            shows that it belongs to another model. Otherwise it is not copied, and the plan has a warning.

    Returns:
        The plan. Its ``parts`` map each tensor to its file.

    Raises:
        FileError: a file is missing or malformed, the files do not match, or the format does not support a
            tensor.

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
    contents, others, warnings = read_all_tensors(source, allow_links=allow_links, strict=strict)
    stem = stem_of(strip_compression(contents.sources[0].path))
    form = to_format(to)
    return plan_contents_by_size(
        contents, out, max_size, stem=stem, to=form, others=others, warnings=warnings
    )


def group_by_size(sizes: Iterable[int], most: int, first: int = 0, later: int = 0) -> list[list[int]]:
    """Group consecutive indices so that the sizes of each group sum to at most ``most``.

    A larger size gets a group of its own. ``first`` is added to the sum of the first group, ``later`` to the
    sum of each other group.

    Examples:
        >>> group_by_size([3, 4, 20, 1], 8)
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


@pause_gc()
def plan_contents_by_size(
    contents: Contents,
    folder: AnyPath,
    max_size: int,
    *,
    stem: str,
    to: Format | None = None,
    others: Sequence[SidecarFile] = (),
    warnings: tuple[str, ...] = (),
) -> FilePlan:
    """Plan files of limited size, as :func:`plan_by_size` does, for contents that are already open.

    File names begin with ``stem``.
    """
    to = to or contents.format
    max_size = require_integer(max_size, "max_size", FileError, 1)
    if to is ONNX:
        _require_external_data(contents)
        lay_out = partial(ONNX.lay_out_data_files, max_size=max_size)
        every, name = [range(len(contents.tensors))], stem + to.suffixes[0]
        made = _plan(contents, folder, every, [name], to, stem, others, warnings, lay_out)
        size = next(target.size for target in made.targets if target.name == name)
        if size > max_size:
            what = f"{shown(name)} has {size} bytes, more than {max_size}"
            why = "tensors inside the model are not moved to data files"
            made = replace(made, warnings=(*made.warnings, f"{what}: {why}"))
        return made
    if not isinstance(to, ShardedFormat):
        raise FileError(
            f"{to.name} files cannot be limited in size: choose --to safetensors, --to gguf or --to onnx"
        )
    tensors = adapt(contents.tensors, contents, to)
    headers = [
        to.lay_out([], to.describe_shard(contents, number, 2), "").files[0].size + 64 for number in (0, 1)
    ]
    sizes = [tensor.size + to.compute_max_entry_bytes(tensor, contents) for tensor in tensors]
    groups = group_by_size(sizes, max_size, *headers)
    ending = to.suffixes[0]
    names = [name_piece(stem, number, len(groups), ending) for number in range(1, len(groups) + 1)]
    names = names if len(groups) > 1 else [stem + ending]
    return _plan(contents, folder, groups, names, to, stem, others, warnings, to.lay_out)


@pause_gc()
def plan_one_file(
    source: AnyPath,
    out: AnyPath,
    *,
    to: Format | str | None = None,
    external_data: bool = False,
    allow_links: bool = False,
    strict: bool = False,
) -> FilePlan:
    """Plan one file with all tensors of a model, without writing anything.

    The tensors of an ONNX model are written into the model. If it would exceed 2 GiB, which ONNX does not
    allow, they are written to one data file, named like the model with ``.data`` appended.

    Args:
        source: as in :func:`plan_by_size`.
        out: path or URL of the file to write.
        to: format of the file; None to infer it from the file name.
        external_data: whether to write the tensors to one data file even if they fit into the ONNX model.
            This is always done if the source is not ONNX. It is an error if the target is not ONNX.
        allow_links: as in :func:`plan_by_size`.
        strict: as in :func:`plan_by_size`.

    Raises:
        FileError: as in :func:`plan_by_size`.
    """
    contents, _, warnings = read_all_tensors(source, allow_links=allow_links, strict=strict)
    found = Path(out)
    if is_compressed(found):
        raise FileError(f"{shown(found.name)}: compressed files cannot be written. Leave out {found.suffix}")
    form = choose_format(found, to_format(to))
    every = [range(len(contents.tensors))]
    if external_data and form is not ONNX:
        raise FileError(f"{form.name} files have no external data: leave out --external-data")
    if external_data:
        _require_external_data(contents)
    embedded = None
    if form is ONNX and contents.format is ONNX and not external_data:
        embedded = ONNX.lay_out_embedded(contents.tensors, contents, found.name)
        if embedded is None:
            reason = "in one file, the model would exceed 2 GiB, which ONNX does not allow"
            warnings = (*warnings, f"the tensors are written to {shown(found.name + '.data')}: {reason}")
    lay_out = form.lay_out if embedded is None else lambda tensors, like, name: embedded
    return _plan(contents, found.parent, every, [found.name], form, found.stem, (), warnings, lay_out)


def _require_external_data(contents: Contents) -> None:
    """Raise FileError if no tensor of an ONNX model can be written to a data file."""
    if contents.tensors or contents.format is not ONNX:
        return
    model, inner = contents.sources[0], len(contents.metadata["inner"])
    if inner:
        count = count_of(inner, "tensor")
        raise FileError(
            f"{model.name}: no initializer of the main graph has external data, only {count} of subgraphs, "
            "functions or node attributes. That data is written into the model: merge it into one file, "
            "without --max-size and --external-data"
        )
    raise FileError(
        f"{model.name} has no external data: its tensors are in the model. Write a copy with external data "
        f"first: onnx.save(onnx.load({model.name}), 'new.onnx', save_as_external_data=True)"
    )


def _plan(
    contents: Contents,
    out: AnyPath,
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    to: Format,
    stem: str,
    others: Sequence[SidecarFile],
    warnings: tuple[str, ...],
    lay_out: Callable[[Sequence[StoredTensor], Contents, str], Layout],
) -> FilePlan:
    if contents.format is ONNX and to is not ONNX:
        left = len(contents.metadata["model"].graph.initializer) - len(contents.tensors)
        left += len(contents.metadata["inner"])
        if left:
            what = f"{contents.sources[0].name} has {count_of(left, 'more tensor')} that will not be written"
            why = "only initializers of the main graph with external data are"
            warnings = (*warnings, f"{what}: {why}")
    folder = resolve_target(Path(out))
    targets = Targets([], [], [])
    tensors = adapt(contents.tensors, contents, to)
    parts: list[Part] = []
    where: dict[str, str] = {}
    several = to if isinstance(to, ShardedFormat) and len(groups) > 1 else None
    for number, (group, name) in enumerate(zip(groups, names, strict=True)):
        held = [tensors[i] for i in group]
        like = several.describe_shard(contents, number, len(groups)) if several else contents
        layout = lay_out(held, like, name)
        first = targets.add(layout)
        ranges = np.column_stack([locate_tensors(held), layout.places])
        paths: Iterable[Path] = repeat(folder / name)
        if to is ONNX:
            ranges = np.unique(ranges, axis=0)  # tensors that share bytes are copied once
            paths = (folder / layout.files[file].name for file in layout.places[:, 0])
        targets.extents.append(extents_from_ranges(ranges[:, :3], ranges[:, 3:], first))
        own, shapes = list(iter_field(held, "name")), list(iter_field(held, "shape"))
        sizes = [shape[0] if shape else 1 for shape in shapes]
        parts += map(Part._make, zip(paths, own, repeat(0), sizes, shapes, strict=False))
        where |= dict.fromkeys(own, name)
    if several is not None:
        index = several.make_index(stem, where, sum(iter_field(tensors, "size")))
        targets.files += [index] if index is not None else []
    made = targets.plan(stem, folder, contents.sources, contents.tensors, parts, others)
    endings = [*to.suffixes, INDEX] if to.name == "safetensors" else to.suffixes
    ending = "|".join(map(re.escape, [".onnx.data"] if to is ONNX else endings))
    whole = rf"{re.escape(stem)}(-\d{{5}}-of-\d{{5}})?({ending})"
    return warn_of_leftovers(replace(made, warnings=warnings), whole)
