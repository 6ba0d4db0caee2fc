"""Read checkpoints that other programs have written as one set of files per rank, without a manifest.

How the tensors were sharded is taken from the given plan or, without one, from file names, tensor names and
``config.json``. The sizes of the whole tensors are computed from the plan, ``config.json`` and the parts on
all ranks. Files are untrusted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from splitops.common.untrusted_files import DataFolder
from splitops.errors import PlanError, SplitError, brief, shown, shown_path
from splitops.files.descriptors import raise_file_limit
from splitops.files.extents import Extents
from splitops.files.folders import INDEX, find_other_files
from splitops.files.formats import get_format
from splitops.files.formats.safetensors import make_tensor
from splitops.files.max_size import group_by_size
from splitops.files.sources import LocalFile
from splitops.files.strays import warn_of_strays
from splitops.files.tensors import StoredTensor
from splitops.sharding.auto import make_auto_plan
from splitops.sharding.checkpoint import Checkpoint, read_config
from splitops.sharding.copies import deduplicate
from splitops.sharding.distributed import lay_out_files
from splitops.sharding.documents import read_inside
from splitops.sharding.expressions import Names
from splitops.sharding.globs import match_glob
from splitops.sharding.heads import KEYS, QUERIES
from splitops.sharding.layouts.vllm import unfuse_rank
from splitops.sharding.padding import SIZE_KEYS, classify_axis, iter_sizes
from splitops.sharding.placements import Placements, copy_extents
from splitops.sharding.plan_language import (
    ShardRule,
    assign_rules,
    find_axis,
    make_axis_sharding,
    read_shard_rules,
)
from splitops.sharding.roles import Roles, find_missing
from splitops.sharding.tables import read_table
from splitops.sharding.tensor_sharding import (
    MAX_RANKS,
    AxisSharding,
    Piece,
    Shard,
    TensorSharding,
    shard_axis,
)

_ENGINE: Final = r"model-rank-(\d{1,6})-part-(\d{1,9})\.safetensors"
_PIECES: Final = r"tp_(\d{1,6})_(\d{1,9})\.safetensors"
_FILES: Final = (
    _ENGINE,
    r"consolidated\.(\d{1,6})\.safetensors",
    r"mp_rank_(\d{1,6})/[^/]+\.safetensors",
    r"(?:.*[._-])?mp_rank_(\d{1,6})(?:_model_states)?\.safetensors",
    _PIECES,
    r"rank-(\d{1,6})-of-\d+/[^/]+\.safetensors",
)
"""File name patterns of vLLM, Meta's Llama, Megatron-LM, DeepSpeed (two patterns), and the layout ``hf``."""
_FOLDER: Final = r"(?:mp_rank_|rank-)(\d{1,6})(?:-of-\d+)?"
_PARAMS: Final = {"hidden_size": "dim", QUERIES: "n_heads", KEYS: "n_kv_heads", "vocab_size": "vocab_size"}
"""Keys of ``config.json``, with the corresponding keys of ``params.json`` in Meta's models."""
_MAX_DOUBTS: Final = 20
"""Maximum number of messages about tensors that may be missing. Others are only counted."""
_Parts = Sequence[StoredTensor | None]
"""The part of a tensor on each rank. It is None if the rank does not have the tensor."""
_Solved = tuple[tuple[int, ...], TensorSharding]
"""The shape of an unsharded tensor, and its sharding."""


def find_rank_files(path: Path) -> Mapping[str, int]:
    """Return the rank of each tensor file in a folder of ranks, keyed by name. Empty for any other path."""
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    if "model.safetensors" in names or any(name.endswith(INDEX) for name in names):
        return {}
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
    homes = [int(match[1]) for name in names if (match := re.fullmatch(_FOLDER, name))]
    ranks = max(*found.values(), *homes, 0) + 1
    if ranks > MAX_RANKS or len({*found.values()}) < ranks:
        raise PlanError(
            f"{shown_path(path)} has only the ranks {brief(sorted({*found.values()}))} of {ranks}"
        )
    files = [*found, *(name for name in names if name == "non-tp.safetensors")]  # shared by all ranks
    numbered = _check_numbers(path, found)
    raise_file_limit(len(files))
    sources = [LocalFile(name, folder) for name in files]
    others, left, strays = find_other_files(folder, names, files)
    config = read_config(others)
    stated = read_inside(folder, "params.json", limit=1 << 20) if "params.json" in names else None
    if isinstance(stated, dict) and not config:
        config = {key: stated[own] for key, own in _PARAMS.items() if own in stated}
    engine = plan is None and re.fullmatch(_ENGINE, files[0]) is not None
    on = [[found[name]] if name in found else range(ranks) for name in files]
    parts = _read_parts(sources, on, ranks, config if engine else None)
    document = plan if plan is not None else _make_plan(config, parts, "vllm" if engine else "hf")
    solver = _Solver(config, Names(document.get("vars", {}), config), automatic=plan is None)
    firsts = [next(part for part in own if part is not None) for own in parts.values()]
    known = read_shard_rules(document)
    rules = assign_rules(known, firsts)[1]
    doubts = [*find_missing(parts, config)]
    if doubts and numbered and plan is None:
        raise PlanError(
            f"{shown_path(path)}: {doubts[0]}. Files are missing on all ranks: copy them there, or set a "
            "plan (--plan FILE) if the model is complete"
        )
    if plan is not None:
        used = {rule.number for rule in rules}
        doubts += [
            f"{each.label} matches no tensor"
            for each in known
            if each.number not in used | _list_closing(known)
        ]
    solved = [solver.solve(rule, own) for rule, own in zip(rules, parts.values(), strict=True)]
    groups = group_by_size([tensor.size for tensor, _ in solved], 5 << 30)
    wholes, made, index = lay_out_files([[solved[i][0] for i in group] for group in groups], path)
    placements = Placements(ranks, tuple(made), tuple(wholes), tuple(cut for _, cut in solved))
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
            *solver.warnings,
            *_warn(path, [*doubts, *solver.doubts], strict=strict),
        ),
    )


def _read_parts(
    sources: Sequence[LocalFile],
    on: Sequence[Sequence[int]],
    ranks: int,
    engine_config: Mapping[str, Any] | None,
) -> dict[str, list[StoredTensor | None]]:
    """Read the part of each tensor on each rank. ``on`` lists the ranks of each source.

    ``engine_config`` is the configuration if the files are from vLLM, whose fused tensors are unfused.
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
    """Return whether the files of ranks are numbered. Raise PlanError if a rank lacks a number."""
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


def _list_closing(rules: Sequence[ShardRule]) -> set[int]:
    """Return a set with the number of the closing rule ``*``, which may match nothing, or an empty set."""
    return {rule.number for rule in rules[-1:] if "*" in rule.match}


def _warn(path: Path, doubts: Sequence[str], *, strict: bool) -> Sequence[str]:
    """Return the first 20 ``doubts`` as warnings, and a count of the rest. Raise PlanError if ``strict``."""
    if doubts and strict:
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        raise PlanError(
            f"{shown_path(path)}: {doubts[0]}{more}. Leave out --strict (in Python: strict=True) to merge it"
        )
    hidden = [f"{len(doubts) - _MAX_DOUBTS} more such messages"] if len(doubts) > _MAX_DOUBTS else []
    return [*doubts[:_MAX_DOUBTS], *hidden]


def _make_plan(config: Mapping[str, Any], parts: Mapping[str, _Parts], layout: str) -> Mapping[str, Any]:
    """Return the plan that the tensor names imply or, if they are unknown, the auto plan for ``layout``."""
    shapes = {name: own[0].shape for name, own in parts.items() if own[0] is not None}
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    ranks = len(next(iter(parts.values())))
    for known in read_table("foreign.toml")["plan"]:
        found = [[s for n, s in matrices.items() if match_glob(known[key], n)] for key in ("up", "down")]
        if all(found):
            inner = found[1][0][1]
            is_fused = found[0][0][0] == 2 * inner
            _check_pairs(matrices, known, 2 if is_fused else 1)
            weight = {"hf": "packed_colwise"} if is_fused else {"axis": 0}
            bias = {"axis": 0} | ({"sections": [inner * ranks] * 2} if is_fused else {})
            up = known["up"], known["up"].replace(".weight", ".bias")
            cut = [{"match": known[key], "axis": axis} for axis, key in enumerate(("columns", "rows"))]
            fused = [{"match": match, **rule} for match, rule in zip(up, (weight, bias), strict=True)]
            return {"version": 1, "rule": [*fused, *cut, {"match": "*", "replicate": True}]}
    return make_auto_plan(config, [*parts], layout)


def _check_pairs(shapes: Mapping[str, Sequence[int]], known: Mapping[str, Any], times: int) -> None:
    """Check that each ``up`` matrix has ``times`` as many rows as the same layer's ``down`` has columns."""
    up, down = (known[key].rpartition("*")[2] for key in ("up", "down"))
    for name, shape in shapes.items():
        reader = name.removesuffix(up) + down
        if name.endswith(up) and reader in shapes and shape[0] != times * shapes[reader][1]:
            raise PlanError(
                f"{shown(name)} of rank 0 has {shape[0]} rows, not {times} x {shapes[reader][1]} as the "
                f"columns of {shown(reader)} require: write a plan (--plan FILE) if this is right"
            )


def _collect_extents(placements: Placements, parts: Sequence[_Parts]) -> Extents:
    """Return the extents from the files of the ranks to the unsharded tensors."""
    numbers, found = placements.kinds[0], []
    for rank in range(placements.ranks):
        own = [(i, each[rank], each[0] if rank else None) for i, each in enumerate(parts)]
        rows = [(i, p.file, p.offset) for i, p, first in own if p is not None and p is not first]
        table = np.array(rows, np.int64).reshape(-1, 3)
        forms = placements.make_extents(rank)
        found.append(copy_extents(forms, numbers[table[:, 0]], table[:, 0], table[:, 1], table[:, 2]))
    return Extents.concatenate(found).invert()


class _Solver:
    """Finds the unsharded shapes of tensors, and how they were sharded.

    With an ``automatic`` plan, embeddings may be padded, replicated, or sharded along the other axis.
    """

    def __init__(self, config: Mapping[str, Any], names: Names, *, automatic: bool) -> None:
        self._config, self._names, self._automatic = config, names, automatic
        self._sizes = [(place[-1], size) for place, size in iter_sizes(config)]
        self._roles = Roles(config, names)
        self._known: dict[tuple[object, ...], _Solved] = {}
        self.warnings: list[str] = []
        self.doubts: list[str] = []

    def solve(self, rule: ShardRule, parts: _Parts) -> tuple[StoredTensor, TensorSharding]:
        """Return the unsharded tensor of ``parts``, without a place in a file, and its sharding."""
        first = next(part for part in parts if part is not None)
        kinds = tuple(None if part is None else (part.code, part.shape) for part in parts)
        axes = range(len(first.shape))
        counts = tuple(classify_axis(first, axis) for axis in axes)
        roles = tuple(frozenset(self._roles.find_sizes(first, axis)) for axis in axes)
        named = first.name if "vocabulary" in counts else ""  # each gets its own warning about padding
        key = rule.number, "place" in rule.fields, kinds, counts, roles, named
        try:
            if key not in self._known:
                self._known[key] = self._solve(rule, first, parts)
            shape, cut = self._known[key]
            self._check_shape(rule, first, shape)
            return make_tensor(first.name, first.code, list(shape), 0), cut
        except (SplitError, ValueError) as error:
            raise PlanError(f"{first.label}, {rule.label_for(first.name)}: {error}") from error

    def _check_shape(self, rule: ShardRule, first: StoredTensor, shape: Sequence[int]) -> None:
        """Check the sizes of an unsharded tensor against ``config.json``.

        If they differ, raise PlanError for an automatic plan. For the plan of a caller, add a warning, unless
        its rule sets the size in ``sections``.
        """
        for axis, size in enumerate(shape):
            known = sorted(self._roles.find_sizes(first, axis))
            stated = (
                not self._automatic and "sections" in rule.fields and axis == find_axis(rule, first.shape)
            )
            if known and size not in known and not stated:
                what = f"axis {axis} has size {size} when merged, but config.json requires {brief(known)}"
                if self._automatic:
                    raise PlanError(f"{what}. If it is right, write a plan (--plan FILE)")
                self.doubts.append(f"{first.label}: {what}")

    def _solve(self, rule: ShardRule, first: StoredTensor, parts: _Parts) -> _Solved:
        placed = "place" in rule.fields
        axis = None if placed else self._find_axis(rule, first, parts)
        for rank, part in enumerate(parts):
            if part is None and not placed:
                raise PlanError(f"it is missing on rank {rank}")
            pair = [first, first if part is None else part]
            rest = {(p.code, p.shape[:axis], p.shape[axis + 1 :] if axis is not None else ()) for p in pair}
            if len(rest) > 1:
                one, other = (f"{p.code} {brief(p.shape)}" for p in pair)
                raise PlanError(f"{one} does not fit {other} on rank {rank}")
        if axis is None:
            return first.shape, TensorSharding(None, tuple(None if p is None else Shard() for p in parts))
        return self._fit(rule, first, axis, [part.shape[axis] for part in parts if part is not None])

    def _find_axis(self, rule: ShardRule, first: StoredTensor, parts: _Parts) -> int | None:
        """Return the axis along which a tensor is sharded, or None if it is replicated.

        With an automatic plan, the axis of an embedding is inferred from its shape and ``config.json``.
        """
        axis, shape = find_axis(rule, first.shape), first.shape
        if not self._automatic or axis is None or len(shape) != 2 or len(parts) == 1:
            return axis
        if classify_axis(first, axis) != "vocabulary":
            return axis
        if ("hidden_size", len(parts) * shape[1 - axis]) in self._sizes:
            return 1 - axis
        return None if ("vocab_size", shape[axis]) in self._sizes else axis

    def _fit(self, rule: ShardRule, first: StoredTensor, axis: int, sizes: list[int]) -> _Solved:
        """Return the shape of the whole tensor whose parts have ``sizes`` along an axis, and its sharding."""
        counts, total, fields = classify_axis(first, axis), sum(sizes), rule.fields
        known = [*self._list_sizes(rule, first, axis)] if axis == find_axis(rule, first.shape) else []
        smaller = [size for size in known if size < total]
        if not known and axis == find_axis(rule, first.shape):
            self._check_padding(rule, first, counts, total)
        size = total if total in known or not known else max(smaller, default=min(known))
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        own = make_axis_sharding(rule, shape, self._names)
        assert own is not None  # the rule has an axis
        two = counts == KEYS and size == total and any(total % other == 0 for other in smaller)
        repeats = "replicate" in fields or (counts == KEYS and self._automatic)
        if len(sizes) > 1 and (two or (repeats and not known)):
            raise PlanError(
                f"it is unknown whether ranks of sizes {brief(sizes)} repeat units: set sections in the plan"
            )
        if own.sections is None and total == size:
            self._check_sizes(
                rule, own, sizes, is_known=total in {*known, *self._roles.find_sizes(first, axis)}
            )
            places = zip(accumulate(sizes, initial=0), sizes, strict=False)
            shards = [Shard(n, (Piece(begin, n, 0),) if n else ()) for begin, n in places]
            return shape, TensorSharding(axis, tuple(shards))
        if own.sections is None and not own.replicate:
            if "pad_to" in fields or (counts == "vocabulary" and self._automatic):
                own = AxisSharding(axis, pad_to=total)
            elif counts == KEYS:
                own = AxisSharding(axis, unit=sizes[0], replicate=frozenset({0}))
        with contextlib.suppress(SplitError):
            cut = shard_axis(own, size, len(sizes))
            if [shard and shard.size for shard in cut.shards] == sizes:
                if cut.padded:
                    self.warnings.append(f"{first.label}: {cut.padded - size} padded rows are removed")
                return shape, cut
        pads = counts == "vocabulary" and total > size
        advice = f". If the rest is padding, set pad_to = {total}" if pads else ""
        raise PlanError(
            f"the sizes {brief(sizes)} of the ranks along axis {axis} sum to {total}, but the plan and "
            f"config.json require {brief(known or [size])}{advice}"
        )

    def _check_padding(self, rule: ShardRule, first: StoredTensor, counts: str, total: int) -> None:
        """Reject a plan that pads an axis of unknown size, or warn that a vocabulary may stay padded."""
        if "pad_to" in rule.fields and "sections" not in rule.fields:
            raise PlanError(
                f"it is unknown whether the size {total} includes padding: set sections in the plan, or the "
                "size in config.json"
            )
        if self._automatic and counts == "vocabulary":
            self.warnings.append(f"{first.label}: any padding remains, as config.json has no vocab_size")

    def _check_sizes(self, rule: ShardRule, own: AxisSharding, sizes: list[int], *, is_known: bool) -> None:
        """Reject parts of unequal sizes, unless the plan allows them.

        A caller's plan allows sizes that its rule produces, or any sizes with ``even = false``. An automatic
        plan allows sizes whose sum ``is_known`` from ``config.json``.
        """
        if len({*sizes}) == 1 or rule.fields.get("even") is False or (is_known and self._automatic):
            return
        if not self._automatic and (is_known or "even" not in rule.fields):
            with contextlib.suppress(SplitError):
                shards = shard_axis(own, sum(sizes), len(sizes)).shards
                if [shard and shard.size for shard in shards] == sizes:
                    return
        advice = "set even = false in its rule" if not self._automatic else "write a plan with even = false"
        raise PlanError(
            f"ranks of unequal sizes {brief(sizes)} along axis {own.axis} may be incomplete: if they are "
            f"complete, {advice}"
        )

    def _list_sizes(self, rule: ShardRule, first: StoredTensor, axis: int) -> Iterator[int]:
        """Yield the sizes that the unsharded axis may have according to the plan or ``config.json``."""
        sections = rule.fields.get("sections", [-1])
        if -1 not in sections:
            yield sum(map(self._names.evaluate, sections))
            return
        counts, pack = classify_axis(first, axis), self._names.evaluate(rule.fields.get("pack", 1))
        if pack == 1 and (own_sizes := self._roles.find_sizes(first, axis)):
            yield from sorted(own_sizes)
            return
        if counts in (QUERIES, KEYS) and re.search(r"\.([qkvo]_proj|w[qkvo])\.", first.name):
            with contextlib.suppress(PlanError):
                own = {size for key, size in self._sizes if "head_dim" in key}
                own.add(self._names.evaluate("head_dim"))
                heads = [size for key, size in self._sizes if counts.removeprefix("num_") in key]
                times = (1, 2) if counts == QUERIES else (1,)  # 2 with a fused gate
                yield from {n * size * each // pack for n in heads for size in own for each in times}
        elif counts in ("vocabulary", "inner"):
            found = [size for key, size in self._sizes if SIZE_KEYS[counts].search(key)]
            more = [*_iter_integers(self._config)] if found and counts == "inner" else []
            yield from {-(-n * size // pack) for size in more for n in (1, 2, 4)} or {
                -(-n // pack) for n in found
            }


def _iter_integers(value: Any) -> Iterator[int]:
    """Yield all positive integers in a JSON document. Some sizes have keys that :data:`SIZE_KEYS` lacks."""
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from (each,) * (each > 0) if type(each) is int else _iter_integers(each)
