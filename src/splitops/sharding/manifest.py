"""The manifest of a folder of ranks, from which the unsharded checkpoint is restored byte for byte.

It has the sharding of every tensor, but no offsets in the files of the ranks. A reader computes their layout
again, and checks that the files have the computed sizes and headers.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from splitops.common.integers import INT64_MAX
from splitops.common.json_values import read_values, to_json_values
from splitops.common.untrusted_files import DataFolder
from splitops.errors import PlanError, SplitError, brief, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import Extents
from splitops.files.folders import MAX_SMALL, SidecarFile, check_file_name, is_model_file
from splitops.files.formats import TargetFile
from splitops.files.formats.safetensors import make_tensor
from splitops.files.sources import LocalFile, Source
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor
from splitops.sharding.checkpoint import Checkpoint, WholeFile, read_config
from splitops.sharding.copies import deduplicate
from splitops.sharding.documents import read_inside, validate
from splitops.sharding.layouts import get_layout
from splitops.sharding.placements import Placements, check_cut
from splitops.sharding.tensor_sharding import MAX_RANKS, TensorSharding

MANIFEST: Final = "manifest.json"
SOURCE: Final = "source"
"""Name of the folder for the sidecar files of the source."""
MARK: Final = "rank.json"
"""Name of the file in a rank's folder with its number, the number of ranks and the id of the run."""
_LARGEST: Final = 1 << 30
_MAX_MODEL: Final = 1 << 31


def has_manifest(path: Path) -> bool:
    """Return whether a path is a folder of ranks with a manifest."""
    return (path / MANIFEST).is_file()


def make_manifest_files(
    placements: Placements, layout: str, checkpoint: Checkpoint, plan: Mapping[str, Any]
) -> list[TargetFile]:
    """Return the manifest, and the ``rank.json`` of each rank's folder, as files to write."""
    numbers, kinds = placements.kinds
    cuts = {cut: number for number, cut in enumerate(dict.fromkeys(cut for _, cut in kinds))}
    sources = (*checkpoint.sources, *(other.source for other in checkpoint.others))
    identities = json.dumps([source.read_identity() for source in sources])
    document = {
        "version": 1,
        "source": _compute_checksum(identities),
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
        "cuts": [{k: v for k, v in to_json_values(cut).items() if v is not None} for cut in cuts],
        "kinds": [
            {"dtype": tensor.code, "shape": list(tensor.shape), "cut": cuts[cut]} for tensor, cut in kinds
        ],
        "tensors": {
            "name": [tensor.name for tensor in placements.tensors],
            "kind": numbers.tolist(),
            "file": [tensor.file for tensor in placements.tensors],
            "offset": [tensor.offset for tensor in placements.tensors],
        },
        "tied": dict(checkpoint.tied),
        "plan": dict(plan),
    }
    text = json.dumps(document)
    run = _compute_checksum(text)
    files = [_make_file(MANIFEST, f'{{"run": "{run}", {text[1:]}')]
    for rank, home in enumerate(get_layout(layout).list_sidecar_folders(placements.ranks)):
        if home:
            mark = {"run": run, "rank": rank, "ranks": placements.ranks}
            files.append(_make_file(f"{home}/{MARK}", json.dumps(mark)))
    return files


def _compute_run(document: Mapping[str, Any]) -> str:
    """Return the id of a run: the checksum of its manifest without the id."""
    return _compute_checksum(json.dumps({k: v for k, v in document.items() if k != "run"}))


def _compute_checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _make_file(name: str, document: str) -> TargetFile:
    text = f"{document}\n".encode()
    return TargetFile(name, len(text), ((0, text),))


def read_ranks(path: Path, *, allow_links: bool = False, strict: bool = False) -> Checkpoint:
    """Read the unsharded checkpoint from a folder of ranks with a manifest.

    Each file must exist before the next one is laid out, so that a manifest without ranks cannot exhaust the
    memory. ``strict`` rejects a folder with other tensor files.
    """
    name, folder = shown_path(path / MANIFEST), DataFolder(path, allow_links)
    document = read_inside(folder, MANIFEST, limit=_LARGEST)
    validate(document, "manifest", name)
    with _add_name(name):
        placements = _read_placements(document)
        layout = get_layout(document["layout"])
    homes = layout.list_sidecar_folders(placements.ranks)
    _check_marks(folder, document, homes)
    raise_file_limit(placements.ranks * (len(placements.files) + 1) + len(document["others"]))
    sources: list[Source] = []
    found: list[Extents] = []
    names: set[str] = set()
    files = layout.iter_files(placements)
    while True:
        with _add_name(name):
            laid = next(files, None)
        if laid is None:
            break
        sources.append(_open_rank_file(folder, laid[0]))
        found.append(laid[1])
        names.add(laid[0].name)
    held = deduplicate(placements.tensors, Extents.concatenate(found).invert(), sources)
    others = tuple(_open_other(folder, each) for each in document["others"])
    if document["run"] != _compute_run(document):
        raise PlanError(f"{name} has been changed: restore it, or shard the source again")
    return Checkpoint(
        shown_path(path),
        placements.files,
        placements.tensors,
        tuple(sources),
        held,
        others,
        read_config(others),
        MappingProxyType(document["tied"]),
        document["plan"],
        _find_warnings(folder, homes, names, {tensor.name for tensor in placements.tensors}, strict=strict),
    )


def _open_other(folder: DataFolder, stated: Mapping[str, Any]) -> SidecarFile:
    """Open a sidecar file of the source. Only one that is not shared, such as an ONNX model, may be large."""
    name, shared = check_file_name(stated["name"]), stated["shared"]
    source = LocalFile(f"{SOURCE}/{name}", folder)
    limit = MAX_SMALL if shared else _MAX_MODEL
    if source.size > limit:
        raise PlanError(f"{source.name} has {source.size} bytes, but at most {limit} are copied")
    return SidecarFile(name, source, shared)


@contextlib.contextmanager
def _add_name(name: str) -> Iterator[None]:
    """Prefix the messages of errors in the block with ``name``, that of the manifest."""
    try:
        yield
    except SplitError as error:
        raise PlanError(f"{name}: {error.message}") from error


def _find_warnings(
    folder: DataFolder,
    homes: Sequence[str],
    files: Collection[str],
    tensors: Collection[str],
    *,
    strict: bool,
) -> tuple[str, ...]:
    """Return warnings about tensor files in ``folder`` and the folders of ranks that do not belong to a rank.

    If ``strict``, raise FileError instead.
    """
    strays = []
    for home in dict.fromkeys(("", *homes)):
        prefix = f"{home}/" if home else ""
        names = sorted(f"{prefix}{entry.name}" for entry in (folder.path / home).iterdir())
        others = [each for each in names if each not in files and is_model_file(each)]
        strays += [each for each in others if (folder.path / each).is_file()]
    return warn_of_strays(folder, strays, shown(MANIFEST), tensors, strict=strict)


def _read_placements(document: Mapping[str, Any]) -> Placements:
    ranks = document["ranks"]
    if ranks > MAX_RANKS:
        raise PlanError(f"ranks = {shown(ranks)}: the maximum is {MAX_RANKS}")
    files = tuple(
        WholeFile(
            check_file_name(each["name"]),
            _read_size(each),
            _read_literals(each),
            MappingProxyType(each["metadata"]),
        )
        for each in document["files"]
    )
    cuts = [read_values(TensorSharding, {"axis": None, **each}) for each in document["cuts"]]
    proved: set[tuple[int, int]] = set()
    kinds = [_read_kind(each, cuts, ranks, proved) for each in document["kinds"]]
    columns = document["tensors"]
    rows = [columns[key] for key in ("name", "kind", "file", "offset")]
    if len({*map(len, rows)}) > 1:
        raise PlanError(f"the columns of tensors have different lengths: {brief([*map(len, rows)])}")
    for what, key, count in (("has", "kind", len(kinds)), ("is in", "file", len(files))):
        strange = next((i for i, at in enumerate(columns[key]) if at >= count), None)
        if strange is not None:
            name = shown(columns["name"][strange])
            raise PlanError(
                f"tensor {name} {what} {key} {shown(columns[key][strange])}, but there are only {count}"
            )
    tensors = [
        kinds[kind][0]._replace(name=name, file=file, offset=offset)
        for name, kind, file, offset in zip(*rows, strict=True)
    ]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise PlanError("a tensor appears twice")
    _reject_overlaps(files, tensors)
    return Placements(ranks, files, tuple(tensors), tuple(kinds[kind][1] for kind in rows[1]))


def _read_kind(
    stated: Mapping[str, Any], cuts: Sequence[TensorSharding], ranks: int, proved: set[tuple[int, int]]
) -> tuple[StoredTensor, TensorSharding]:
    """Return a tensor of a kind, without a name and a place, and its sharding.

    ``proved`` caches which shardings were checked for which sizes: many kinds share a sharding, and a check
    iterates over all ranks.
    """
    if stated["cut"] >= len(cuts):
        raise PlanError(f"a kind of tensors has cut {shown(stated['cut'])}, but there are {len(cuts)}")
    try:
        tensor = make_tensor("", stated["dtype"], stated["shape"], 0)
    except ValueError as error:
        raise PlanError(str(error)) from error
    cut = cuts[stated["cut"]]
    size = tensor.shape[cut.axis] if cut.axis is not None and cut.axis < len(tensor.shape) else -1
    if size < 0 or (stated["cut"], size) not in proved:
        check_cut(cut, tensor.shape, ranks)
        proved.add((stated["cut"], size))
    return tensor, cut


def _read_size(file: Mapping[str, Any]) -> int:
    size: int = file["size"]
    if size > INT64_MAX:
        raise PlanError(f"{shown(file['name'])} has {shown(size)} bytes: the maximum is {INT64_MAX}")
    return size


def _read_literals(file: Mapping[str, Any]) -> tuple[tuple[int, bytes], ...]:
    try:
        return tuple(
            (each["offset"], base64.b64decode(each["base64"], validate=True)) for each in file["literals"]
        )
    except ValueError as error:  # not base64, or not ASCII
        raise PlanError(f"the literals of {shown(file['name'])} are not base64") from error


def _reject_overlaps(files: Sequence[WholeFile], tensors: Sequence[StoredTensor]) -> None:
    places = [(t.file, t.offset, t.offset + t.size, t.label) for t in tensors]
    for number, file in enumerate(files):
        places += [(number, offset, offset + len(data), "a literal") for offset, data in file.literals]
    for number, _, end, label in places:
        if end > files[number].size:
            raise PlanError(f"{label} extends past the end of {shown(files[number].name)}")
    for before, after in pairwise(sorted(place for place in places if place[1] < place[2])):
        if before[0] == after[0] and after[1] < before[2]:
            name = shown(files[after[0]].name)
            raise PlanError(f"{before[3]} and {after[3]} overlap at byte {after[1]} of {name}")


def _check_marks(folder: DataFolder, document: Mapping[str, Any], homes: Sequence[str]) -> None:
    for rank, home in enumerate(homes):
        if not home:
            continue
        if not (folder.path / home).is_dir():
            raise PlanError(
                f"rank {rank} of {document['ranks']} is missing: there is no folder {shown(home)}"
            )
        found = read_inside(folder, f"{home}/{MARK}", limit=1 << 16)
        wanted = {"run": document["run"], "rank": rank, "ranks": document["ranks"]}
        if found != wanted:
            raise PlanError(f"{shown_path(folder.path / home)} and {MANIFEST} are from different runs")


def _open_rank_file(folder: DataFolder, wanted: TargetFile) -> LocalFile:
    """Open a file of a rank, and check that it has the size and the header that the layout requires."""
    found = LocalFile(wanted.name, folder)
    if found.size != wanted.size:
        raise PlanError(f"{found.name} has {found.size} bytes, not {wanted.size}: it is from another run")
    for offset, data in wanted.literals:
        if found.read(offset, len(data)) != data:
            raise PlanError(f"{found.name} has an unexpected header: it was changed or is from another run")
    return found
