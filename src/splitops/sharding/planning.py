"""Public functions that plan the sharding, resharding and merge of checkpoints."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from splitops.errors import PlanError, count_of, shown, shown_path
from splitops.files.folders import is_model_file
from splitops.files.pickles import advise_on_pickles
from splitops.files.plan import FilePlan
from splitops.files.plan_types import MEMORY, DryRun, Report, RunOptions
from splitops.files.tensors import StoredTensor, pause_gc
from splitops.sharding.assembly import assemble_files
from splitops.sharding.auto import make_auto_plan
from splitops.sharding.checkpoint import Checkpoint, read_checkpoint
from splitops.sharding.distributed import is_distributed, read_distributed, reject_pickled
from splitops.sharding.documents import parse, read
from splitops.sharding.expressions import Names
from splitops.sharding.fitting import RankFit, fit_ranks, make_cuts, suggest_padding, warn_of_heads
from splitops.sharding.foreign import find_rank_files, read_foreign_ranks
from splitops.sharding.heads import HeadRule, find_head_rules
from splitops.sharding.layouts import get_layout
from splitops.sharding.manifest import MARK, SOURCE, has_manifest, make_manifest_files, read_ranks
from splitops.sharding.padding import make_padded_config, pad_sizes, separate_sizes
from splitops.sharding.placements import Placements, lay_out_checkpoint
from splitops.sharding.plan_language import Matches, ShardRule, match_rules, read_shard_rules
from splitops.sharding.quantised import find_group_size
from splitops.sharding.tables import check_known
from splitops.sharding.tensor_sharding import MAX_RANKS
from splitops.spec.sizes.dims import require_integer

AnyPath = str | os.PathLike[str]


class Runnable:
    """Base class of plans that write a folder."""

    def plan_files(self, out: AnyPath) -> FilePlan:
        """Return the plan of the files in the folder ``out``: which bytes are copied where."""
        raise NotImplementedError

    def dry_run(self, out: AnyPath, *, memory: int = MEMORY) -> DryRun:
        """Return the amount of work of :meth:`run`, without writing anything.

        ``memory`` is an option of :meth:`run`. The only entry of ``files`` is the folder, with its total
        size. The plan of :meth:`plan_files` lists the files in it as ``targets``.
        """
        return self.plan_files(out).dry_run(memory=memory)

    def run(self, out: AnyPath, **options: Unpack[RunOptions]) -> Report:
        """Write the folder ``out``. It appears when all of its files are complete.

        Args:
            out: the folder.
            **options: options of :meth:`splitops.files.FilePlan.run`.

        Raises:
            FileError: the folder exists and ``overwrite`` is not set, a file cannot be read or has changed,
                or the disk is full.
        """
        return self.plan_files(out).run(**options)


@dataclass(frozen=True)
class ShardPlan(Runnable):
    """A valid plan to shard a checkpoint, or to reshard ranks. Nothing has been written.

    Attributes:
        checkpoint: the unsharded checkpoint.
        placements: the part of each tensor on each rank.
        rules: rule of each tensor.
        layout: name of the layout of the ranks' files.
        document: the plan document.
        warnings: messages, for example about files that are not copied, tensors of rank 2 or more that only
            the closing rule replicates, padded sizes in ``config.json``, and split attention heads.
        config: ``config.json`` of the ranks, or None if it does not change.
    """

    checkpoint: Checkpoint
    placements: Placements
    rules: tuple[ShardRule, ...]
    layout: str
    document: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    config: bytes | None = None

    def __repr__(self) -> str:
        tensors, ranks = count_of(len(self.rules), "tensor"), count_of(self.ranks, "rank")
        return f"ShardPlan({tensors} over {ranks}, {self.layout})"

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.placements.ranks

    @cached_property
    def rank_bytes(self) -> tuple[int, ...]:
        """The bytes of tensors on each rank, including padding and copies, which ``dcp`` does not store."""
        return self.placements.sum_rank_bytes()

    def plan_files(self, out: AnyPath) -> FilePlan:
        """Return the plan of the files of all ranks, the manifest and the sidecar files."""
        layout = get_layout(self.layout)
        homes = [(SOURCE, True), *((home, False) for home in layout.list_sidecar_folders(self.ranks))]
        with pause_gc():
            written = make_manifest_files(self.placements, self.layout, self.checkpoint, self.document)
            changed = {} if self.config is None else {"config.json": self.config}
            laid = layout.lay_out(self.placements)
            return assemble_files(self.checkpoint, laid, written, homes, Path(out), changed)


@dataclass(frozen=True)
class MergePlan(Runnable):
    """A valid plan to merge ranks into the unsharded files. Nothing has been written.

    Attributes:
        checkpoint: the unsharded checkpoint, whose bytes are in the files of the ranks.
    """

    checkpoint: Checkpoint

    def __repr__(self) -> str:
        return f"MergePlan({count_of(len(self.checkpoint.tensors), 'tensor')})"

    def plan_files(self, out: AnyPath) -> FilePlan:
        """Return the plan that writes the unsharded files into the folder ``out``."""
        found = self.checkpoint
        return assemble_files(found, lay_out_checkpoint(found), (), [("", True)], Path(out))


def open_checkpoint(
    path: AnyPath,
    plan: Mapping[str, Any] | None = None,
    *,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> Checkpoint:
    """Read a checkpoint: an unsharded one, a folder with the files of its ranks, or a distributed checkpoint.

    ``plan`` is the plan of ranks without a manifest. ``like`` and ``strict`` are as in :func:`plan`.
    """
    found = Path(path)
    reject_pickled(found)
    if not has_manifest(found) and is_distributed(found):
        other = None if like is None else read_checkpoint(Path(like), allow_links=allow_links)
        return read_distributed(found, like=other, allow_links=allow_links, strict=strict)
    if like is not None:
        raise PlanError(f"like works only for distributed checkpoints, not for {shown_path(found)}")
    if has_manifest(found):
        return read_ranks(found, allow_links=allow_links, strict=strict)
    if files := find_rank_files(found):
        return read_foreign_ranks(found, files, plan, allow_links=allow_links, strict=strict)
    return _remove_mark(read_checkpoint(found, allow_links=allow_links, strict=strict))


def _remove_mark(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint without the ``rank.json`` of a rank. Raise PlanError if there are other ranks."""
    found = next(
        (each for each in checkpoint.others if each.name == MARK and each.source.size < 1 << 16), None
    )
    mark = None
    with contextlib.suppress(PlanError):  # an unrelated file with this name
        mark = found and parse(found.source.read(0, found.source.size), found.source.name)
    if not isinstance(mark, dict) or mark.keys() != {"run", "rank", "ranks"}:
        return checkpoint
    if mark["ranks"] != 1:
        what = (
            f"{checkpoint.name} is rank {shown(mark['rank'])} of {shown(mark['ranks'])}, not a complete model"
        )
        raise PlanError(f"{what}: pass the folder of all ranks (splitops reshard or merge)")
    warning = f"{shown(MARK)} is not copied: it marks the only rank of an earlier run"
    others = tuple(each for each in checkpoint.others if each is not found)
    return replace(checkpoint, others=others, warnings=(*checkpoint.warnings, warning))


def plan(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    ranks: int,
    pad_for: int | None = None,
    layout: str | None = None,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> ShardPlan:
    """Plan how to shard a checkpoint over ranks, or how to reshard ranks, without writing anything.

    Args:
        path: a folder with ``model.safetensors`` or an index and its shards, an ONNX model with external
            data, a folder of ranks, or a distributed checkpoint that PyTorch has written as safetensors.
        plan: a file of rules in TOML or JSON, or its content; ``"auto"`` derives rules from ``config.json``.
            None selects the plan that is stored with the ranks or, without one, ``"auto"``. Ranks without a
            manifest are also read by these rules. For them, ``"auto"`` uses names of files and tensors, too.
        ranks: number of ranks.
        pad_for: number of ranks for which intermediate and vocabulary sizes are padded with zeros, so that
            each rank gets an equal part of complete units, such as quantised groups. With ``ranks=1``, the
            only rank is a complete model for an engine that shards it itself. None means no padding,
            except that of the plan.
        layout: layout of the ranks' files. None selects that of the plan or, without one, ``"hf"``.
        like: folder of an unsharded checkpoint with the same tensors. A distributed checkpoint is read as if
            its tensors were in these files, and with the sidecar files of this folder.
        allow_links: whether links may lead out of the folder, as in the cache of a hub.
        strict: whether a tensor file in the folder that the checkpoint does not use is an error. Otherwise
            it is not copied, and there is a warning. Likewise, tensors that may be missing or wrong in ranks
            without a manifest are errors, or cause warnings.

    Returns:
        The plan. ``dry_run(out)`` returns its amount of work, and ``run(out)`` writes the files.

    Raises:
        PlanError: the checkpoint or the plan is missing or malformed, or a tensor cannot be sharded over this
            number of ranks. In the latter case, the message lists possible numbers, if there are any.
        FileError: a tensor file is missing or malformed, or ``strict`` rejects one.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.savez(folder / "x.npz", w=np.arange(12.0).reshape(6, 2))
        >>> _ = splitops.files.split(
        ...     folder / "x.npz", folder, num_outputs=1, prefix="model",
        ...     to=splitops.files.get_format("safetensors"),
        ... )
        >>> _ = (folder / "model.0.safetensors").rename(folder / "model.safetensors")
        >>> cut = splitops.sharding.plan(folder, {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=4)
        >>> [shard.size for shard in cut.placements.cuts[0].shards], cut.rank_bytes
        ([2, 2, 2, 0], (32, 32, 32, 0))
    """
    ranks = _check_ranks(ranks)
    pad_for = None if pad_for is None else _check_ranks(pad_for, "pad_for")
    pad = pad_for is not None
    found = _match(
        path, plan, layout, pad=pad, separate=pad, like=like, allow_links=allow_links, strict=strict
    )
    checkpoint, (matches, unpadded) = found.checkpoint, found.pad(ranks, pad_for)
    with pause_gc():
        cuts = make_cuts(matches, ranks)
        own = tuple([cuts[kind] for kind in matches.numbers.tolist()])
    found.check_named()
    group = find_group_size(checkpoint.config)
    placements = Placements(ranks, checkpoint.files, checkpoint.tensors, own, group)
    heads = warn_of_heads(matches, found.heads, ranks, cuts)
    whole = (f'replicated on all ranks, since only the closing rule "*" matches: {found.unnamed}',)
    config = make_padded_config(matches, cuts, checkpoint.config, found.layout)
    warnings = (*checkpoint.warnings, *(whole if found.unnamed else ()), *config.warnings, *unpadded, *heads)
    return ShardPlan(
        checkpoint, placements, matches.rules, found.layout, found.document, warnings, config.text
    )


def find_ranks(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    ranks: Iterable[int] = range(1, 65),
    pad: bool = False,
    layout: str | None = None,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> tuple[RankFit, ...]:
    """Find the numbers of ranks over which a plan can shard a checkpoint, without writing anything.

    Args:
        path: as in :func:`plan`.
        plan: as in :func:`plan`.
        ranks: numbers of ranks to try.
        pad: whether sizes are padded for each number, as with ``pad_for`` of :func:`plan`.
        layout: as in :func:`plan`.
        like: as in :func:`plan`.
        allow_links: as in :func:`plan`.
        strict: as in :func:`plan`.

    Returns:
        The result for each number: whether the plan fits, repeats units such as heads, pads, or is impossible
        for one of the tensors. With ``pad``, it is impossible if :func:`plan` with ``pad_for`` fails. No
        padding of attention heads is suggested, as that could change the results.

    Raises:
        PlanError: the checkpoint or the plan is missing or malformed, no rule matches a tensor, or a number
            of ranks is out of range.
        FileError: a tensor file is missing or malformed, or ``strict`` rejects one.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.savez(folder / "x.npz", w=np.zeros((6, 4)))
        >>> _ = splitops.files.plan_one_file(folder / "x.npz", folder / "model.safetensors").run()
        >>> rules = {"version": 1, "rule": [{"match": "*", "axis": 0, "unit": 2}]}
        >>> [(found.ranks, found.verdict) for found in find_ranks(folder, rules, ranks=range(1, 5))]
        [(1, 'fits'), (2, 'pads'), (3, 'fits'), (4, 'fits')]
        >>> print(find_ranks(folder, rules, ranks=[2])[0].note)
        needs pad_to = 4 in rule 1 (6 to 8)
        >>> print(find_ranks(folder, rules, ranks=[4])[0].note)
        leaves ranks without elements (rule 1)
    """
    numbers = [*map(_check_ranks, ranks)]
    found = _match(
        path, plan, layout, pad=pad, separate=True, like=like, allow_links=allow_links, strict=strict
    )
    found.check_named()
    return tuple(found.fit(each, pad=pad) for each in numbers)


def _check_ranks(number: int, name: str = "ranks") -> int:
    return require_integer(number, name, PlanError, 1, MAX_RANKS)


class _Matched(NamedTuple):
    """A checkpoint, a plan, and the matches of its rules. ``unnamed`` is from :func:`_find_unmatched`."""

    checkpoint: Checkpoint
    document: Mapping[str, Any]
    layout: str
    matches: Matches
    heads: tuple[HeadRule, ...]
    unnamed: str

    def pad(self, ranks: int, pad_for: int | None) -> tuple[Matches, Sequence[str]]:
        """Return the matches with padded sizes, and warnings. Without ``pad_for``, nothing is padded."""
        if pad_for is None:
            return self.matches, ()
        return pad_sizes(self.matches, self.checkpoint.config, pad_for, ranks)

    def fit(self, ranks: int, *, pad: bool) -> RankFit:
        """Return whether and how the plan fits a number of ranks, for which ``pad`` pads sizes first."""
        try:
            matches, _ = self.pad(ranks, ranks if pad else None)
        except PlanError as error:
            return RankFit(ranks, "impossible", error.message)
        found = fit_ranks(matches, self.heads, ranks)
        if pad and found.reason:  # all that can be padded is padded
            return RankFit(ranks, "impossible", f"{found.reason}{suggest_padding(found)}")
        return found

    def check_named(self) -> None:
        """Raise PlanError if the layout needs rules for tensors of rank 2 or more that only ``*`` matches."""
        if self.unnamed and self.layout == "vllm":
            what = "layout vllm requires a rule for each tensor of rank 2 or more. There is none for"
            raise PlanError(f"{what} {self.unnamed}")


def _match(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None,
    layout: str | None,
    *,
    pad: bool,
    separate: bool,
    like: AnyPath | None,
    allow_links: bool,
    strict: bool,
) -> _Matched:
    """Read a checkpoint and a plan, and match them. ``separate`` divides kinds by :func:`separate_sizes`."""
    document, called = _read_plan(plan)
    checkpoint = open_checkpoint(path, document, like=like, allow_links=allow_links, strict=strict)
    names = [tensor.name for tensor in checkpoint.tensors]
    if document is None and (plan is None or not has_manifest(Path(path))):
        document = checkpoint.plan
    if document is None:
        document = make_auto_plan(checkpoint.config, names, layout or "hf")
    rules = read_shard_rules(document, called)
    known = Names(document.get("vars", {}), checkpoint.config)
    chosen = get_layout(layout or document.get("layout", "hf")).name
    if chosen == "vllm":
        check_known(checkpoint.config, names)
    with pause_gc():
        matches = match_rules(rules, checkpoint.tensors, known)
        matches = separate_sizes(matches, checkpoint.tensors) if separate else matches
    if pad and chosen == "dcp":
        raise PlanError("layout dcp has no padding: use hf or vllm (--layout)")
    unnamed = _find_unmatched(rules, matches.rules, checkpoint.tensors)
    heads = find_head_rules(matches, checkpoint.tensors, known) if chosen == "hf" else ()
    return _Matched(checkpoint, document, chosen, matches, heads, unnamed)


def _read_plan(plan: str | os.PathLike[str] | Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return the document of a plan (None for the default and ``"auto"``), and its name in messages."""
    if plan is None or isinstance(plan, Mapping):
        return plan, "the plan"
    return None if plan == "auto" else read(Path(plan)), shown_path(plan)


def _find_unmatched(
    rules: Sequence[ShardRule], matched: Sequence[ShardRule], tensors: Sequence[StoredTensor]
) -> str:
    """Return text that lists the tensors of rank 2 or more that only a closing rule ``*`` replicates.

    Raise PlanError if there are other rules, but none of them matches a tensor.
    """
    last = rules[-1] if rules else None
    if last is None or "*" not in last.match or last.cuts:
        return ""
    closing = [tensor for rule, tensor in zip(matched, tensors, strict=True) if rule is last]
    if len(rules) > 1 and tensors and len(closing) == len(tensors):
        first = rules[0].match[0]
        raise PlanError(
            f'only the closing rule "*" of the plan matches tensors: the plan has names such as '
            f"{shown(first)}, the checkpoint has {shown(tensors[0].name)}"
        )
    counts = Counter(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", each.name) for each in closing if len(each.shape) > 1)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def merge(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> MergePlan:
    """Plan the merge of ranks into the unsharded files, without writing anything.

    Args:
        path: a folder of ranks with or without a manifest, or a distributed checkpoint of PyTorch.
        plan: rules by which ranks without a manifest were sharded, as in :func:`plan`. None and ``"auto"``
            select those of the program that wrote the ranks.
        like: as in :func:`plan`. Without it, a distributed checkpoint is merged into at most one file per
            part. Ranks without a manifest are merged into files with at most 5 GiB of tensors, or a single
            larger one.
        allow_links: as in :func:`plan`.
        strict: as in :func:`plan`.

    Raises:
        PlanError: the manifest is malformed, a rank is missing or from another run, pieces of a tensor are
            missing or overlap, sizes do not match ``config.json``, or ``plan`` is set although the folder has
            a manifest or is a distributed checkpoint.
        FileError: a file cannot be read, or ``strict`` rejects one.
    """
    check_ranks(path)
    if plan is not None and (has_manifest(Path(path)) or is_distributed(Path(path))):
        raise PlanError(f"plan works only for ranks without a manifest, not for {shown_path(path)}")
    rules, _ = _read_plan(plan)
    return MergePlan(open_checkpoint(path, rules, like=like, allow_links=allow_links, strict=strict))


def check_ranks(path: AnyPath) -> None:
    """Check that a path is a folder of ranks. If not, the PlanError suggests what to do."""
    reject_pickled(Path(path))
    if not is_rank_folder(Path(path)):
        usage = f"To shard a checkpoint, use splitops shard {path} ... To merge the parts of a tensor, name "
        usage += "their files. To merge a model into one file, use --out with .safetensors or .gguf"
        folder = Path(path)
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else [folder.name]
        names += [f"{entry.parent.name}/{entry.name}" for entry in folder.glob("mp_rank_*/*.pt")]
        inner = sorted(entry.parent.name for entry in folder.glob("*/mp_rank_*"))
        usage = f"The ranks are in its folder {shown(inner[-1])}" if inner else usage
        advice = "" if any(map(is_model_file, names)) else advise_on_pickles(names)
        raise PlanError(f"{shown_path(path)} is not a folder of ranks. {advice or usage}")


def is_rank_folder(path: Path) -> bool:
    """Return whether a path is a sharded checkpoint: a folder of ranks, or a distributed one of PyTorch."""
    return has_manifest(path) or is_distributed(path) or bool(find_rank_files(path))
