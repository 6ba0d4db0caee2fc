"""The manifest of a folder of ranks: what restores the whole checkpoint, byte by byte.

It says how every tensor is cut, and not where its pieces are: the layout is laid out again, and the files of
the ranks must have the sizes and headers that this gives.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from splitops.errors import PlanError, SplitError, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import inverse
from splitops.files.folders import Other, open_file, safe_name
from splitops.files.formats import TargetFile
from splitops.files.formats.safetensors import stated_tensor
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor
from splitops.ground.reading import DataFolder
from splitops.ground.records import read_values, values_of
from splitops.sharding.checkpoint import Checkpoint, WholeFile, config_of
from splitops.sharding.copies import each_once
from splitops.sharding.cuts import MAX_RANKS, Cut
from splitops.sharding.documents import read, validate
from splitops.sharding.layouts import layout_named
from splitops.sharding.placements import Placements, prove_cut

MANIFEST: Final = "manifest.json"
SOURCE: Final = "source"
"""The folder of the small files of the source."""
MARK: Final = "rank.json"
"""In the folder of a rank, says of which run it is."""
_LARGEST: Final = 1 << 30
_MAX_FILE: Final = (1 << 63) - 1


def has_manifest(path: Path) -> bool:
    """Return whether a path is a folder of ranks with a manifest."""
    return (path / MANIFEST).is_file()


def manifest_files(
    placements: Placements, layout: str, checkpoint: Checkpoint, plan: Mapping[str, Any]
) -> list[TargetFile]:
    """Return the manifest, and the marks of the ranks' folders."""
    cuts = list(dict.fromkeys(placements.cuts))
    numbers = {cut: number for number, cut in enumerate(cuts)}
    identities = [
        source.identity() for source in (*checkpoint.sources, *(o.source for o in checkpoint.others))
    ]
    document: dict[str, Any] = {
        "version": 1,
        "run": "",
        "source": hashlib.sha256(json.dumps(identities).encode()).hexdigest()[:32],
        "layout": layout,
        "ranks": placements.ranks,
        "files": [
            {
                "name": file.name,
                "size": file.size,
                "metadata": dict(file.metadata),
                "literals": [
                    {"offset": offset, "base64": base64.b64encode(data).decode()}
                    for offset, data in file.literals
                ],
            }
            for file in placements.files
        ],
        "others": [{"name": other.name, "shared": other.shared} for other in checkpoint.others],
        "cuts": [{k: v for k, v in values_of(cut).items() if v is not None} for cut in cuts],
        "tensors": [
            {
                "name": tensor.name,
                "file": tensor.file,
                "dtype": tensor.code,
                "shape": list(tensor.shape),
                "offset": tensor.offset,
                "cut": numbers[cut],
            }
            for tensor, cut in zip(placements.tensors, placements.cuts, strict=True)
        ],
        "tied": dict(checkpoint.tied),
        "plan": dict(plan),
    }
    document["run"] = _run_of(document)
    files = [_file(MANIFEST, document)]
    for rank, home in enumerate(layout_named(layout).homes(placements.ranks)):
        if home:
            mark = {"run": document["run"], "rank": rank, "ranks": placements.ranks}
            files.append(_file(f"{home}/{MARK}", mark))
    return files


def _run_of(document: Mapping[str, Any]) -> str:
    """Return the name of a run: the checksum of all else in its manifest."""
    text = json.dumps({**document, "run": ""}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _file(name: str, document: Mapping[str, Any]) -> TargetFile:
    text = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    return TargetFile(name, len(text), ((0, text),))


def read_ranks(path: Path, *, allow_links: bool = False) -> Checkpoint:
    """Return the whole checkpoint that a folder of ranks with a manifest holds.

    Raises:
        PlanError: the manifest is malformed or was changed, a rank is missing or is of another run, copies of
            ranks differ.
        FileError: a file cannot be read.
    """
    name = shown_path(path / MANIFEST)
    document = read(path / MANIFEST, limit=_LARGEST)
    validate(document, "manifest", name)
    try:
        placements = _placements(document)
        layout = layout_named(document["layout"])
        laid = layout.lay_out(placements)
    except SplitError as error:
        raise PlanError(f"{name}: {error.message}") from error
    folder = DataFolder(path, allow_links)
    _prove_marks(folder, document, layout.homes(placements.ranks))
    raise_file_limit(len(laid.files) + len(document["others"]))
    sources: list[Source] = [_proved(folder, file) for file in laid.files]
    held = [
        each_once(tensor.label, map(inverse, extents), sources)
        for tensor, extents in zip(placements.tensors, laid.extents, strict=True)
    ]
    others = tuple(
        Other(
            safe_name(each["name"]), open_file(folder, f"{SOURCE}/{safe_name(each['name'])}"), each["shared"]
        )
        for each in document["others"]
    )
    if document["run"] != _run_of(document):
        raise PlanError(f"{name} is not as its run wrote it; shard the source again, or restore this file")
    return Checkpoint(
        shown_path(path),
        placements.files,
        placements.tensors,
        tuple(sources),
        tuple(held),
        others,
        config_of(others),
        MappingProxyType(document["tied"]),
        document["plan"],
    )


def _placements(document: Mapping[str, Any]) -> Placements:
    ranks = document["ranks"]
    if ranks > MAX_RANKS:
        raise PlanError(f"{ranks} ranks are more than {MAX_RANKS}")
    files = tuple(
        WholeFile(safe_name(each["name"]), _size(each), _literals(each), MappingProxyType(each["metadata"]))
        for each in document["files"]
    )
    cuts = [read_values(Cut, {"axis": None, **each}) for each in document["cuts"]]
    tensors, chosen = [], []
    proved = set()
    for each in document["tensors"]:
        tensor = _tensor(each, files)
        if each["cut"] >= len(cuts):
            raise PlanError(f"{tensor.label} has cut {each['cut']} of {len(cuts)}")
        key = each["cut"], tensor.shape
        if key not in proved:
            prove_cut(cuts[each["cut"]], tensor.shape, ranks)
            proved.add(key)
        tensors.append(tensor)
        chosen.append(cuts[each["cut"]])
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise PlanError("a tensor appears twice")
    _reject_overlaps(files, tensors)
    return Placements(ranks, files, tuple(tensors), tuple(chosen))


def _size(file: Mapping[str, Any]) -> int:
    size: int = file["size"]
    if size > _MAX_FILE:
        raise PlanError(f"{shown(file['name'])} would have {size} bytes, more than a file can have")
    return size


def _literals(file: Mapping[str, Any]) -> tuple[tuple[int, bytes], ...]:
    try:
        return tuple(
            (each["offset"], base64.b64decode(each["base64"], validate=True)) for each in file["literals"]
        )
    except ValueError as error:  # also of what is not ASCII
        raise PlanError(f"the literals of {shown(file['name'])} are not base64") from error


def _tensor(stated: Mapping[str, Any], files: Sequence[WholeFile]) -> StoredTensor:
    name = stated["name"]
    if stated["file"] >= len(files):
        raise PlanError(f"tensor {shown(name)} is in file {stated['file']} of {len(files)}")
    file = files[stated["file"]]
    begin = stated["offset"]
    try:
        tensor = stated_tensor(name, stated["dtype"], stated["shape"], begin)
    except ValueError as error:
        raise PlanError(str(error)) from error
    if begin + tensor.size > file.size:
        raise PlanError(f"{tensor.label} extends past the end of {shown(file.name)}")
    return tensor._replace(file=stated["file"])


def _reject_overlaps(files: Sequence[WholeFile], tensors: Sequence[StoredTensor]) -> None:
    taken: list[tuple[int, int, int]] = [(t.file, t.offset, t.offset + t.size) for t in tensors if t.size]
    for number, file in enumerate(files):
        taken += [(number, offset, offset + len(data)) for offset, data in file.literals]
        if any(offset + len(data) > file.size for offset, data in file.literals):
            raise PlanError(f"a literal extends past the end of {shown(file.name)}")
    taken.sort()
    for before, after in pairwise(taken):
        if before[0] == after[0] and after[1] < before[2]:
            raise PlanError(f"two things are at byte {after[1]} of {shown(files[after[0]].name)}")


def _prove_marks(folder: DataFolder, document: Mapping[str, Any], homes: Sequence[str]) -> None:
    for rank, home in enumerate(homes):
        if not home:
            continue
        if not (folder.path / home).is_dir():
            raise PlanError(f"rank {rank} of {document['ranks']} is missing: no folder {shown(home)}")
        found = read(folder.path / home / MARK, limit=1 << 16)
        wanted = {"run": document["run"], "rank": rank, "ranks": document["ranks"]}
        if found != wanted:
            raise PlanError(f"{shown_path(folder.path / home)} is of another run than {MANIFEST}")


def _proved(folder: DataFolder, wanted: TargetFile) -> LocalFile:
    """Open a file of a rank, proved to have the size and the headers that the layout gives it."""
    found = open_file(folder, wanted.name)
    if found.size != wanted.size:
        raise PlanError(f"{found.name} has {found.size} bytes, and not {wanted.size}: it is of another run")
    for offset, data in wanted.literals:
        if found.read(offset, len(data)) != data:
            raise PlanError(f"{found.name} has another header than its run wrote")
    return found
