"""Public functions that plan to fuse or unfuse the tensors of a checkpoint."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from splitops.common.untrusted_files import DataFolder
from splitops.errors import PlanError, count_of, shown, shown_path
from splitops.files.folders import INDEX, MAX_SMALL
from splitops.files.formats import TargetFile
from splitops.files.plan import FilePlan
from splitops.files.tensors import StoredTensor, number_keys, pause_gc
from splitops.sharding.adapters import CONFIG, Adapter, Change, copy_all, is_adapter
from splitops.sharding.assembly import assemble_files
from splitops.sharding.checkpoint import Checkpoint
from splitops.sharding.copies import check_equal
from splitops.sharding.documents import parse, read, read_inside
from splitops.sharding.expressions import Names
from splitops.sharding.fusing import Copied, Fusions, read_fusion_rules
from splitops.sharding.globs import match_glob
from splitops.sharding.placements import FileLayout, copy_extents, lay_out_file
from splitops.sharding.planning import Runnable, open_checkpoint
from splitops.sharding.tables import find_fusions

AnyPath = str | os.PathLike[str]


class RebuiltTensor(NamedTuple):
    """A tensor of the new checkpoint.

    Attributes:
        stored: name, type, shape and size. ``file`` is the index of the file of its first source.
        copied: index of each source tensor, and the extents from it.
    """

    stored: StoredTensor
    copied: Sequence[Copied]


@dataclass(frozen=True)
class FusePlan(Runnable):
    """A valid plan to unfuse or fuse the tensors of a checkpoint. Nothing has been written.

    Attributes:
        checkpoint: the checkpoint to read.
        tensors: tensors of the new checkpoint, in the order of the old ones. In an adapter, LoRA tensors come
            first, sorted by name in each module.
        changed: for each rule that matches, its fused name, and the number of tensors before and after.
        adapter_config: the new ``adapter_config.json`` of a LoRA adapter, or None.
    """

    checkpoint: Checkpoint
    tensors: tuple[RebuiltTensor, ...]
    changed: tuple[tuple[str, int, int], ...]
    adapter_config: bytes | None = None

    def __repr__(self) -> str:
        return (
            f"FusePlan({count_of(len(self.tensors), 'tensor')}, {count_of(len(self.changed), 'rule')} used)"
        )

    @pause_gc()
    def plan_files(self, out: AnyPath) -> FilePlan:
        """Return the plan that writes the new tensors and the sidecar files into the folder ``out``."""
        source = self.checkpoint
        indexed = any(other.name.endswith(INDEX) for other in source.others)
        old = {tensor.file for tensor in source.tensors}
        files: list[TargetFile] = []
        where: dict[str, str] = {}
        places = np.zeros(len(self.tensors), np.int64)
        file_of = np.array([tensor.stored.file for tensor in self.tensors], np.int64)
        target_of = np.zeros_like(file_of)
        for number, file in enumerate(source.files):
            members = np.flatnonzero(file_of == number)
            if not len(members) and number in old and indexed:
                continue  # the index would not list this file
            held = [self.tensors[i].stored for i in members.tolist()]
            laid, places[members] = lay_out_file(file.name, held, file.metadata)
            target_of[members] = len(files)
            files.append(laid)
            where |= {tensor.name: file.name for tensor in held}
        copied = [(made, *each) for made, tensor in enumerate(self.tensors) for each in tensor.copied]
        form, firsts = number_keys(id(each) for _, _, each in copied)
        made, index = np.array([each[:2] for each in copied], np.int64).reshape(-1, 2).T
        extents = copy_extents([copied[i][2] for i in firsts], form, index, target_of[made], places[made])
        total = sum(tensor.stored.size for tensor in self.tensors)
        written = [
            _make_index(other.name, other.source.read(0, other.source.size), where, total)
            for other in source.others
            if other.name.endswith(INDEX)
        ]
        others = tuple(other for other in source.others if not other.name.endswith(INDEX))
        if (text := self.adapter_config) is not None:
            written.append(TargetFile(CONFIG, len(text), ((0, text),)))
            others = tuple(other for other in others if other.name != CONFIG)
        return assemble_files(
            replace(source, others=others), FileLayout(files, extents), written, [("", True)], Path(out)
        )


def _make_index(name: str, text: bytes, where: Mapping[str, str], total: int) -> TargetFile:
    """Return an index with a new map of tensors to files, formatted as transformers does.

    ``total`` replaces the total size, if the index declares one. Scalars of fused tensors change it.
    """
    document = {**parse(text, name), "weight_map": where}
    if isinstance(metadata := document.get("metadata"), dict) and "total_size" in metadata:
        document["metadata"] = {**metadata, "total_size": total}
    new = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()
    new += b"\n" if text.endswith(b"\n") else b""
    return TargetFile(name, len(new), ((0, new),))


def fuse(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] = "auto",
    *,
    base: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> FusePlan:
    """Plan to fuse tensors of a checkpoint or of a LoRA adapter, without writing anything.

    Args:
        path: folder of a model with safetensors files, or of an adapter with ``adapter_config.json``.
        plan: a file of rules in TOML or JSON, or its content; ``"auto"`` selects rules by ``config.json``.
        base: folder of an adapter's base model, whose ``config.json`` selects the rules and sets the sizes.
        allow_links: whether links may lead out of the folder, as in the cache of a hub.
        strict: as in :func:`plan`.

    Returns:
        The plan. ``dry_run(out)`` returns its amount of work, and ``run(out)`` writes the files.

    Raises:
        PlanError: there are no rules for this model, the rules are malformed, match no tensor or do not match
            the shape of a tensor, or a part is missing.
        FileError: a tensor file is missing or malformed, or ``strict`` rejects one.
    """
    return _plan(path, plan, base, allow_links, strict, to_fused=True)


def unfuse(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] = "auto",
    *,
    base: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> FusePlan:
    """Plan to unfuse the fused tensors of a checkpoint, without writing anything.

    The arguments, the result and the errors are those of :func:`fuse`.
    """
    return _plan(path, plan, base, allow_links, strict, to_fused=False)


def _plan(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any],
    base: AnyPath | None,
    allow_links: bool,
    strict: bool,
    *,
    to_fused: bool,
) -> FusePlan:
    checkpoint = open_checkpoint(path, allow_links=allow_links, strict=strict)
    strange = next((file.name for file in checkpoint.files if not file.name.endswith(".safetensors")), None)
    if strange is not None:
        raise PlanError(f"{shown(strange)} is not a safetensors file, which fuse and unfuse require")
    config, adapter = checkpoint.config, None
    lora = next((each for each in checkpoint.others if each.name == CONFIG and is_adapter(checkpoint)), None)
    if base is not None:
        found = read_inside(DataFolder(Path(base), allow_links), "config.json", limit=MAX_SMALL)
        config = found if isinstance(found, dict) else {}
    if lora is not None:  # LoRA is not quantised
        config = {key: value for key, value in config.items() if key != "quantization_config"}
    if lora is not None and plan == "auto" and not config:
        raise PlanError(f"{checkpoint.name} is an adapter: pass the folder of its base model (--base FOLDER)")
    if plan == "auto":
        document: Any = {"version": 1, "rule": find_fusions(config)}
    else:
        document = plan if isinstance(plan, Mapping) else read(Path(plan))
    name = "the plan" if isinstance(plan, Mapping) else shown_path(plan)
    rules = read_fusion_rules(document, name)
    fusions = Fusions(rules, Names(document.get("vars", {}), config))
    iter_changes = partial(_iter_fused if to_fused else _iter_unfused, fusions, checkpoint)
    if lora is not None:
        stated = parse(lora.source.read(0, lora.source.size), lora.source.name)
        adapter = Adapter(checkpoint, stated, fusions)
        iter_changes = partial(adapter.iter_changes, to_fused=to_fused)
    if to_fused and plan == "auto" and "quantization_config" in config:
        lone = (tensor for tensor in checkpoint.tensors if tensor.shape == (1,))
        scale = next((tensor for tensor in lone if fusions.group_parts([tensor.name]) != [0]), None)
        if scale is not None:
            raise PlanError(
                f"{scale.label} may be the scale of one row or of all rows: write a plan (--plan FILE)"
            )
    tensors: list[RebuiltTensor] = []
    counts: dict[int, tuple[int, int]] = {}
    with pause_gc():
        for rule, before, made in iter_changes():
            tensors += map(RebuiltTensor._make, made)
            if rule is not None:
                replaced, by = counts.get(rule, (0, 0))
                counts[rule] = replaced + before, by + len(made)
    if not counts:
        ways = [[each for rule in rules for each in rule.parts], [rule.fused for rule in rules]]
        globs, others = ways if to_fused else ways[::-1]
        done = any(match_glob(glob, tensor.name) for tensor in checkpoint.tensors for glob in others)
        raise PlanError(
            f"no tensor of {checkpoint.name} matches the plan, which has names such as {shown(globs[0])}"
            + (f": it is already {'fused' if to_fused else 'unfused'}" if done else "")
        )
    doubled = Counter(tensor.stored.name for tensor in tensors).most_common(1)[0]
    if doubled[1] > 1:
        raise PlanError(f"{doubled[1]} tensors would have the name {shown(doubled[0])}")
    changed = [(rules[number].fused, *count) for number, count in sorted(counts.items())]
    text = None if adapter is None else adapter.format_config()
    return FusePlan(checkpoint, tuple(tensors), tuple(changed), text)


def _iter_unfused(fusions: Fusions, checkpoint: Checkpoint) -> Iterator[Change]:
    for index, tensor in enumerate(checkpoint.tensors):
        found = fusions.unfuse(tensor)
        if found is None:
            yield None, 1, [(tensor, [(index, copy_all(tensor.size))])]
        else:
            yield found[0], 1, [(stored, [(index, form)]) for stored, form in found[1]]


def _iter_fused(fusions: Fusions, checkpoint: Checkpoint) -> Iterator[Change]:
    tensors = checkpoint.tensors

    def prove(one: int, other: int) -> None:
        kept, copy = checkpoint.place_of(one), checkpoint.place_of(other)
        check_equal(
            tensors[one].label, checkpoint.sources[kept.source], kept, checkpoint.sources[copy.source], copy
        )

    for group in fusions.group_parts([tensor.name for tensor in tensors]):
        if isinstance(group, int):
            yield None, 1, [(tensors[group], [(group, copy_all(tensors[group].size))])]
        else:
            yield group.rule, len(group.members), [fusions.fuse(group, tensors, prove)]
