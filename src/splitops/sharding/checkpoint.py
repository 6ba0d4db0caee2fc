"""Read checkpoints: the tensors in a model's folder, and their places in files. Files are untrusted.

A folder contains a safetensors file, or an index with its shards, or one ONNX model with external data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, PlanError, SplitError, count_of, shown, shown_path
from splitops.files.extents import Column, Extent, Extents, make_contiguous
from splitops.files.folders import INDEX, SidecarFile, check_file_name, find_main_file, find_other_files
from splitops.files.formats import get_format
from splitops.files.formats.safetensors import read_shards
from splitops.files.pickles import advise_on_pickles
from splitops.files.sources import LocalFile, Source
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor, locate_tensors
from splitops.sharding.documents import parse

_MAX_GAPS: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A tensor file of the unsharded checkpoint.

    ``literals`` are the bytes outside of its tensors, with their offsets. Gaps of zeros are left out. In the
    layout ``hf``, the files of ranks have the same safetensors ``metadata``.
    """

    name: str
    size: int
    literals: tuple[tuple[int, bytes], ...]
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Checkpoint:
    """The unsharded tensors of a checkpoint, and the places of their bytes in its own files or in ranks.

    Attributes:
        name: name in messages.
        files: files of the unsharded checkpoint.
        tensors: the unsharded tensors, with safetensors types. ``file`` is an index into ``files``,
            ``offset`` an offset in that file.
        sources: files that store the bytes.
        held: extents from ``sources`` to tensors, sorted by target, which is the index of a tensor. None if
            ``sources`` are the ``files`` themselves: then ``tensors`` have the places of their bytes.
        others: sidecar files.
        config: content of ``config.json``, or the same sizes from Meta's ``params.json``; empty if there is
            neither.
        tied: maps the name of each tensor that shares all its bytes with one of ``tensors`` to that name.
        plan: the document of the plan by which ranks were sharded, or None.
        warnings: messages, for example about files that are not copied.
    """

    name: str
    files: tuple[WholeFile, ...]
    tensors: tuple[StoredTensor, ...]
    sources: tuple[Source, ...]
    held: Extents | None = None
    others: tuple[SidecarFile, ...] = ()
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tied: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    plan: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Checkpoint({self.name}: {count_of(len(self.tensors), 'tensor')})"

    def place_of(self, index: int) -> Extent:
        """Return the extent of a tensor that is stored in one piece, such as a scalar."""
        if self.held is None:
            tensor = self.tensors[index]
            return make_contiguous(tensor.file, tensor.offset, 0, 0, tensor.size)
        return self.held[int(np.searchsorted(self.held.table[:, Column.TARGET], index))]


def read_checkpoint(path: Path, *, allow_links: bool = False, strict: bool = False) -> Checkpoint:
    """Read the headers of an unsharded checkpoint: a folder or an .onnx file.

    ``strict`` rejects a folder with tensor files that do not belong to the model.
    """
    folder = DataFolder(path if path.is_dir() else path.parent, allow_links)
    if path.suffix == ".onnx" and not path.is_dir():
        return _read_onnx(LocalFile(path, allow_links=allow_links), (), strict=strict)
    if not path.is_dir():
        advice = advise_on_pickles([path.name])
        what = f"{shown_path(path)} is neither a checkpoint's folder nor an ONNX model"
        raise PlanError(f"{what}{'. ' * bool(advice)}{advice}")
    names = sorted(entry.name for entry in path.iterdir())
    main = find_main_file(path, [name for name in names if not name.endswith(".gguf")])
    models = [name for name in names if name.endswith(".onnx")]
    if main is None:
        if len(models) != 1:
            advice = advise_on_pickles(names)
            what = f"{shown_path(path)} contains no model.safetensors, no *{INDEX} and no ONNX model"
            raise PlanError(f"{what}{'. ' * bool(advice)}{advice}")
        return _read_onnx(LocalFile(models[0], folder), names, strict=strict)
    contents, said = read_shards(LocalFile(main, folder))
    files: list[WholeFile] = []
    tensors: list[StoredTensor] = []
    sources: list[Source] = []
    for number, (name, found) in enumerate(contents.items()):
        source = found.sources[0]
        files.append(WholeFile(name, source.size, _read_gaps(source, found.tensors), found.metadata))
        tensors += found.tensors if number == 0 else [t.move_to_file(number) for t in found.tensors]
        sources.append(source)
    others, left, strays = find_other_files(folder, names, contents, (main,))
    own = {tensor.name for tensor in tensors} if strays else ()
    warnings = (*said, *warn_of_strays(folder, strays, shown(main), own, strict=strict), *left)
    return Checkpoint(
        shown_path(path),
        tuple(files),
        tuple(tensors),
        tuple(sources),
        others=others,
        config=read_config(others),
        warnings=warnings,
    )


def _read_gaps(source: Source, tensors: Sequence[StoredTensor]) -> tuple[tuple[int, bytes], ...]:
    """Return the bytes outside of a file's tensors with their offsets, except for gaps of zeros."""
    places = locate_tensors([tensor for tensor in tensors if tensor.size])[:, 1:]
    places = places[np.argsort(places[:, 0])]
    begins = np.append(places[:, 0], source.size)
    reached = np.maximum.accumulate(np.append(0, places.sum(1)))
    gaps = np.flatnonzero(begins > reached)
    total = int((begins - reached)[gaps].sum())
    if total > _MAX_GAPS + 2 * 100_000_000:
        raise PlanError(f"{source.name} has at least {total} bytes outside of its tensors")
    stretches = zip(reached[gaps].tolist(), begins[gaps].tolist(), strict=True)
    found = [(at, source.read(at, end - at)) for at, end in stretches]
    return tuple((at, data) for at, data in found if data.strip(b"\0"))


def read_config(others: Sequence[SidecarFile]) -> Mapping[str, Any]:
    """Return the content of ``config.json`` among sidecar files, or an empty mapping if there is none."""
    for other in others:
        if other.name == "config.json":
            content = other.source.read(0, other.source.size)
            found = parse(content, other.source.name, infinite=True)  # transformers writes Infinity
            if not isinstance(found, dict):
                raise PlanError(f"{other.source.name} is not a JSON object")
            return found
    return {}


def _read_onnx(model: LocalFile, names: Sequence[str], *, strict: bool) -> Checkpoint:
    """Read an ONNX model. Its external initializers are the tensors, and the model itself is a sidecar file.

    ``names`` lists the files in its folder among which other sidecar files are found.
    """
    path = model.path
    try:
        contents = get_format("onnx").read(model)
    except SplitError as error:
        raise error if isinstance(error, FileError) else FileError(str(error)) from error
    form = get_format("safetensors")
    used = sorted({tensor.file for tensor in contents.tensors})
    if not used:
        raise PlanError(f"{shown_path(path)} has no external tensors")
    position = {file: number for number, file in enumerate(used)}
    files = []
    for file in used:
        source = contents.sources[file]
        name = _name_in(path, source)
        own = [tensor for tensor in contents.tensors if tensor.file == file]
        files.append(WholeFile(check_file_name(name), source.size, _read_gaps(source, own)))
    tensors = [form.adapt(tensor)._replace(file=position[tensor.file]) for tensor in contents.tensors]
    tied = _find_tied(tensors)
    inside = len(contents.metadata["model"].graph.initializer) - len(tensors)
    what = "splitops does not shard"
    warnings = [f"{what} {count_of(inside, 'tensor')} inside of {shown(path.name)}"] if inside else []
    inner, of = len(contents.metadata["inner"]), "of subgraphs, functions or node attributes"
    warnings += [f"{what} {count_of(inner, 'tensor')} {of}"] if inner else []
    folder = DataFolder(path.parent, model.allow_links)
    # The model refers to these files, too, for tensors of subgraphs, functions and node attributes.
    rest = [source for file, source in enumerate(contents.sources) if file not in used]
    kept = [SidecarFile(check_file_name(_name_in(path, source)), source, shared=False) for source in rest]
    main = [other.name for other in kept] + [file.name for file in files]
    others, left, strays = find_other_files(folder, names, main)
    warnings += warn_of_strays(folder, strays, shown(path.name), {t.name for t in tensors}, strict=strict)
    return Checkpoint(
        shown_path(path),
        tuple(files),
        tuple(tensor for tensor in tensors if tensor.name not in tied),
        tuple(contents.sources[file] for file in used),
        others=(*kept, *others),
        config=read_config(others),
        tied=tied,
        warnings=(*warnings, *left),
    )


def _name_in(model: Path, source: Source) -> str:
    """Return the path of a source relative to the folder of a model."""
    return source.path.relative_to(model.parent).as_posix()


def _find_tied(tensors: Sequence[StoredTensor]) -> dict[str, str]:
    """Map the names of tensors that share all their bytes to the first of these names in sorted order.

    The first name itself is left out. Raise PlanError if tensors share bytes, but differ in type or shape.
    """
    ordered = sorted((t for t in tensors if t.size), key=lambda t: (t.file, t.offset, t.name))
    tied: dict[str, str] = {}
    for before, tensor in pairwise(ordered):
        if (before.file, before.offset) == (tensor.file, tensor.offset):
            if (before.shape, before.code) != (tensor.shape, tensor.code):
                raise PlanError(f"{tensor.label} and {before.label} share bytes, but differ in type or shape")
            tied[tensor.name] = tied.get(before.name, before.name)
    return tied
