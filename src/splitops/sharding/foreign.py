"""Read checkpoints of one set of files per rank without a manifest, as other programs write them.

How the tensors were sharded is taken from the given plan or, without one, from file names, tensor names and
``config.json``. The sizes of the whole tensors are computed from the plan, ``config.json`` and the parts on
all ranks. Files are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.common.untrusted_files import DataFolder
from splitops.errors import PlanError, brief, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import Extents
from splitops.files.folders import INDEX, find_other_files
from splitops.files.formats import get_format
from splitops.files.max_size import group_by_size
from splitops.files.sources import LocalFile
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor
from splitops.sharding.auto import make_rank_plan
from splitops.sharding.checkpoint import Checkpoint, read_config
from splitops.sharding.copies import deduplicate
from splitops.sharding.distributed import lay_out_files
from splitops.sharding.documents import read_inside
from splitops.sharding.expressions import Names
from splitops.sharding.heads import KEYS, QUERIES
from splitops.sharding.layouts.vllm import unfuse_rank
from splitops.sharding.placements import Placements, copy_extents
from splitops.sharding.plan_language import assign_rules, read_shard_rules
from splitops.sharding.roles import find_missing
from splitops.sharding.tensor_sharding import MAX_RANKS
from splitops.sharding.whole_shapes import Parts, ShapeSolver

_ENGINE: Final = r"model-rank-(\d{1,6})-part-(\d{1,9})\.safetensors"
_PIECES: Final = r"tp_(\d{1,6})_(\d{1,9})\.safetensors"
_FILES: Final = {
    _ENGINE: "vllm",
    r"consolidated\.(\d{1,6})\.safetensors": "meta",
    r"mp_rank_(\d{1,6})/(?!distrib_optim\.)[^/]+\.safetensors": "megatron",
    r"(?:.*[._-])?mp_rank_(\d{1,6})(?:_model_states)?\.safetensors": "deepspeed",
    _PIECES: "autotp",
    r"rank-(\d{1,6})-of-\d+/[^/]+\.safetensors": "hf",
}
"""Patterns of file names, with the program or layout that they belong to."""
_FOLDER: Final = r"(?:mp_rank_|rank-)(\d{1,6})(?:-of-(\d{1,6}))?"
_PARTS: Final = re.compile(r"mp_rank_\d+(_\d+)+|zero_pp_rank_\d+_mp_rank_\d+_model_states\.safetensors")
"""Pattern of names of Megatron-LM's pipeline stages and expert-parallel ranks, and of DeepSpeed's ZeRO-3."""
_PARAMS: Final = {"hidden_size": "dim", QUERIES: "n_heads", KEYS: "n_kv_heads", "vocab_size": "vocab_size"}
"""Keys of ``config.json``, with the corresponding keys of ``params.json`` in Meta's models."""
_MAX_DOUBTS: Final = 20
"""Maximum number of messages about tensors that may be missing or wrong. Others are only counted."""


def find_rank_files(path: Path) -> Mapping[str, int]:
    """Return the rank of each tensor file in a folder of ranks, keyed by name. Empty for any other path.

    Raise PlanError if the ranks are not only those of tensor parallelism, or if the folder of a rank is a
    symbolic link.
    """
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    if "model.safetensors" in names or any(name.endswith(INDEX) for name in names):
        return {}
    if (part := next(filter(_PARTS.fullmatch, names), None)) is not None:
        raise PlanError(
            f"{shown_path(path / part)} is from pipeline parallelism, expert parallelism or ZeRO-3, but only "
            "ranks of tensor parallelism can be merged: convert it with the program that wrote it"
        )
    for home in filter(re.compile(_FOLDER).fullmatch, tuple(names)):
        if (path / home).is_symlink():
            raise PlanError(f"{shown_path(path / home)} is a symbolic link: put the folder itself there")
        if (path / home).is_dir():
            names += sorted(f"{home}/{entry.name}" for entry in (path / home).iterdir())
    for pattern in _FILES:
        found = {name: int(match[1]) for name in names if (match := re.fullmatch(pattern, name))}
        if found and [*found] != ["consolidated.00.safetensors"]:  # a complete model in one file
            return found
    return {}


def read_foreign_ranks(
    path: Path,
    found: Mapping[str, int],
    plan: Mapping[str, Any] | None,
    *,
    allow_links: bool = False,
    strict: bool = False,
) -> Checkpoint:
    """Read the unsharded checkpoint from the files of ranks in ``path``.

    ``found`` is the result of :func:`find_rank_files`. ``plan`` is the one by which the files were sharded.
    None infers it from file and tensor names and from ``config.json``. Copies of an element on several ranks
    must be equal. ``strict`` rejects other tensor files, and tensors that may be missing or wrong.
    """
    folder = DataFolder(path, allow_links)
    names = sorted(entry.name for entry in path.iterdir())
    ranks, numbered = _count_ranks(path, found, names), _check_numbers(path, found)
    files = [*found, *(name for name in names if name == "non-tp.safetensors")]  # shared by all ranks
    raise_file_limit(len(files))
    sources = [LocalFile(name, folder) for name in files]
    others, left, strays = find_other_files(folder, names, files)
    config = read_config(others)
    stated = read_inside(folder, "params.json", limit=1 << 20) if "params.json" in names else None
    if isinstance(stated, dict) and not config:
        config = {key: stated[own] for key, own in _PARAMS.items() if own in stated}
    writer = next(writer for pattern, writer in _FILES.items() if re.fullmatch(pattern, files[0]))
    on = [[found[name]] if name in found else range(ranks) for name in files]
    parts = _read_parts(sources, on, ranks, config if plan is None and writer == "vllm" else None)
    firsts = [next(filter(None, own)) for own in parts.values()]
    document = make_rank_plan(config, firsts, ranks, writer) if plan is None else plan
    solver = ShapeSolver(config, Names(document.get("vars", {}), config), automatic=plan is None)
    known = read_shard_rules(document)
    rules = assign_rules(known, firsts)[1]
    doubts = [*find_missing(parts, config)]
    if doubts and numbered and plan is None:
        raise PlanError(
            f"{shown_path(path)}: {doubts[0]}. Files are missing on all ranks: copy them there, or set a "
            "plan (--plan FILE) if the model is complete"
        )
    if plan is not None:
        used = {rule.number for rule in rules} | {rule.number for rule in known[-1:] if "*" in rule.match}
        doubts += [f"{rule.label} matches no tensor" for rule in known if rule.number not in used]
    solved = [solver.solve(rule, own) for rule, own in zip(rules, parts.values(), strict=True)]
    solver.check_copies(sources)
    groups = group_by_size([tensor.size for tensor, _ in solved], 5 << 30)
    wholes, made, index = lay_out_files([[solved[i][0] for i in group] for group in groups], path)
    placements = Placements(ranks, tuple(made), tuple(wholes), tuple(cut for _, cut in solved))
    unchecked = "there is no config.json: the sizes of tensors and the number of ranks are not checked"
    return Checkpoint(
        shown_path(path),
        placements.files,
        placements.tensors,
        tuple(sources),
        deduplicate(wholes, _collect_extents(placements, list(parts.values())), sources),
        (*others, *index),
        config,
        plan=document,
        warnings=(
            *warn_of_strays(folder, strays, f"the ranks of {shown_path(path)}", parts, strict=strict),
            *left,
            *([unchecked] if plan is None and not config else []),
            *solver.warnings,
            *_warn(path, [*doubts, *solver.doubts], strict=strict),
        ),
    )


def _count_ranks(path: Path, found: Mapping[str, int], names: Sequence[str]) -> int:
    """Return the number of ranks, judging by the names of files and folders. All ranks must have files."""
    homes = [match for name in names if (match := re.fullmatch(_FOLDER, name))]
    ranks = max([*found.values(), *(int(match[1]) for match in homes)]) + 1
    ranks = max([ranks, *(int(match[2]) for match in homes if match[2])])
    if ranks > MAX_RANKS:
        raise PlanError(f"{shown_path(path)} has files of {ranks} ranks; the limit is {MAX_RANKS}")
    own = sorted({*found.values()})
    if len(own) < ranks:
        raise PlanError(f"{shown_path(path)} has only the ranks {brief(own)} of {ranks}")
    return ranks


def _read_parts(
    sources: Sequence[LocalFile],
    on: Sequence[Sequence[int]],
    ranks: int,
    engine_config: Mapping[str, Any] | None,
) -> dict[str, list[StoredTensor | None]]:
    """Read the part of each tensor on each rank. ``on`` lists the ranks of each source.

    ``engine_config`` is the configuration by which fused tensors of vLLM are unfused, or None.
    """
    parts: dict[str, list[StoredTensor | None]] = {}
    for number, (source, own_ranks) in enumerate(zip(sources, on, strict=True)):
        tensors = get_format("safetensors").read(source).tensors
        for tensor in tensors if engine_config is None else unfuse_rank(tensors, engine_config, ranks):
            part, own = tensor.move_to_file(number), parts.setdefault(tensor.name, [None] * ranks)
            for rank in own_ranks:
                if own[rank] is not None:
                    raise PlanError(f"{tensor.label} appears twice on rank {rank}, again in {source.name}")
                own[rank] = part
    return parts


def _check_numbers(path: Path, found: Mapping[str, int]) -> bool:
    """Return whether the files of each rank are numbered. Raise PlanError if a number is missing."""
    numbers: dict[int, set[int]] = {}
    for name, rank in found.items():
        if (match := re.fullmatch(f"{_ENGINE}|{_PIECES}", name)) is not None:
            numbers.setdefault(rank, set()).add(int(match[2] or match[4]))
    for rank, own in numbers.items():
        if (gap := next(number for number in range(len(own) + 1) if number not in own)) < len(own):
            raise PlanError(
                f"{shown_path(path)} has the files {brief(sorted(own))} of rank {rank}: file {gap} is missing"
            )
    return bool(numbers)


def _warn(path: Path, doubts: Sequence[str], *, strict: bool) -> Sequence[str]:
    """Return the first 20 ``doubts`` as warnings, and a count of the rest. If ``strict``, any is an error."""
    if doubts and strict:
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        raise PlanError(
            f"{shown_path(path)}: {doubts[0]}{more}. Leave out --strict (in Python: strict=True) to merge it"
        )
    hidden = [f"{len(doubts) - _MAX_DOUBTS} more such messages"] if len(doubts) > _MAX_DOUBTS else []
    return [*doubts[:_MAX_DOUBTS], *hidden]


def _collect_extents(placements: Placements, parts: Sequence[Parts]) -> Extents:
    """Return the extents from the files of the ranks to the unsharded tensors."""
    numbers, found = placements.kinds[0], []
    for rank in range(placements.ranks):
        own = [(i, each[rank], each[0] if rank else None) for i, each in enumerate(parts)]
        rows = [(i, p.file, p.offset) for i, p, first in own if p is not None and p is not first]
        table = np.array(rows, np.int64).reshape(-1, 3)
        forms = placements.make_extents(rank)
        found.append(copy_extents(forms, numbers[table[:, 0]], table[:, 0], table[:, 1], table[:, 2]))
    return Extents.concatenate(found).invert()
