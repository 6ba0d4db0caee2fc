"""What users plan: a checkpoint cut into ranks, ranks cut anew, ranks merged."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from splitops.errors import PlanError, count_of, shown, shown_path
from splitops.files.folders import is_model_file
from splitops.files.pickles import advise_on_pickles
from splitops.files.planned import MEMORY, DryRun, Report, RunOptions
from splitops.files.plans import FilePlan
from splitops.files.tensors import StoredTensor, without_collector
from splitops.sharding.assembly import file_plan
from splitops.sharding.auto import auto_plan
from splitops.sharding.checkpoint import Checkpoint, read_checkpoint
from splitops.sharding.cuts import MAX_RANKS
from splitops.sharding.distributed import is_distributed, read_distributed, reject_pickled
from splitops.sharding.documents import read
from splitops.sharding.expressions import Names
from splitops.sharding.fitting import RankFit, cuts_or_advice, fit, head_warnings
from splitops.sharding.heads import HeadRule, head_rules
from splitops.sharding.layouts import layout_named
from splitops.sharding.manifest import SOURCE, has_manifest, manifest_files, read_ranks
from splitops.sharding.padding import padded_config
from splitops.sharding.placements import Placements, whole_files
from splitops.sharding.plan_language import Matches, ShardRule, match_rules, rules_of
from splitops.sharding.tables import prove_known

AnyPath = str | os.PathLike[str]


class Runnable:
    """What can be run: each kind of plan."""

    def file_plan(self, out: AnyPath) -> FilePlan:
        """Return which bytes of which files go where."""
        raise NotImplementedError

    def dry_run(self, out: AnyPath, *, memory: int = MEMORY) -> DryRun:
        """Return what a run would do; nothing is written."""
        return self.file_plan(out).dry_run(memory=memory)

    def run(self, out: AnyPath, **options: Unpack[RunOptions]) -> Report:
        """Write the folder ``out``, which appears whole or not at all.

        Args:
            out: the folder.
            **options: those of :meth:`splitops.files.FilePlan.run`.

        Raises:
            FileError: the folder exists, a file cannot be read or has changed, the disk is full.
        """
        return self.file_plan(out).run(**options)


@dataclass(frozen=True)
class ShardPlan(Runnable):
    """Which rank gets which bytes of every tensor: integers and names, proved to fit, nothing written yet.

    Attributes:
        checkpoint: what is cut.
        placements: what each rank holds.
        rules: of each tensor, the rule that says so.
        layout: how the files of the ranks are written.
        document: the plan as it was read.
        warnings: in words, what the ranks do not get, which tensors of rank 2 or more no rule names, so that
            each rank has them whole, which sizes of ``config.json`` padding changes, and which rules cut
            through heads of attention.
        config: the ``config.json`` of the ranks; None if it is that of the checkpoint.
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
        """How many ranks there are."""
        return self.placements.ranks

    @cached_property
    def rank_bytes(self) -> tuple[int, ...]:
        """The bytes of each rank's tensors, padding included."""
        return self.placements.rank_bytes()

    def file_plan(self, out: AnyPath) -> FilePlan:
        """Return which bytes of which files go where."""
        layout = layout_named(self.layout)
        homes = [(SOURCE, True), *((home, False) for home in layout.homes(self.ranks))]
        with without_collector():
            written = manifest_files(self.placements, self.layout, self.checkpoint, self.document)
            changed = {} if self.config is None else {"config.json": self.config}
            laid = layout.lay_out(self.placements)
            return file_plan(self.checkpoint, laid, written, homes, Path(out), changed)


@dataclass(frozen=True)
class MergePlan(Runnable):
    """Ranks merged into the files that they were cut from.

    Attributes:
        checkpoint: the whole, as the ranks hold it.
    """

    checkpoint: Checkpoint

    def __repr__(self) -> str:
        return f"MergePlan({count_of(len(self.checkpoint.tensors), 'tensor')})"

    def file_plan(self, out: AnyPath) -> FilePlan:
        """Return which bytes of which files go where."""
        found = self.checkpoint
        return file_plan(found, whole_files(found), (), [("", True)], Path(out))


def open_checkpoint(
    path: AnyPath, *, like: AnyPath | None = None, allow_links: bool = False, strict: bool = False
) -> Checkpoint:
    """Read a checkpoint, or the one that a folder of ranks holds.

    ``strict`` rejects a folder with tensor files that do not belong to it.
    """
    found = Path(path)
    reject_pickled(found)
    if not has_manifest(found) and is_distributed(found):
        other = None if like is None else read_checkpoint(Path(like), allow_links=allow_links)
        return read_distributed(found, like=other, allow_links=allow_links, strict=strict)
    if like is not None:
        raise PlanError(f"{shown_path(found)} says itself what the whole is like")
    if has_manifest(found):
        return read_ranks(found, allow_links=allow_links, strict=strict)
    return read_checkpoint(found, allow_links=allow_links, strict=strict)


def plan(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    ranks: int,
    layout: str | None = None,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> ShardPlan:
    """Plan how a checkpoint is cut into ranks, or ranks into other ranks; nothing is written.

    Args:
        path: a folder with ``model.safetensors`` or an index and its shards, an ONNX model with external
            data, a folder of ranks, or a distributed checkpoint that PyTorch wrote as safetensors.
        plan: a file of rules in TOML or JSON, or what it says; ``"auto"`` goes by ``config.json``. None is
            the plan of ranks that are cut anew, else ``"auto"``.
        ranks: how many ranks there are to be.
        layout: how their files are written; None is what the plan says, else ``"hf"``.
        like: of a distributed checkpoint, the folder of another one whose files the whole is to have.
        allow_links: whether links in the folder may lead out of it, as in the cache of a hub.
        strict: whether a tensor file in the folder that the checkpoint does not name is an error. Otherwise
            it is left out, with a warning.

    Returns:
        The plan: ``dry_run(out)`` says what it would do, ``run(out)`` does it.

    Raises:
        PlanError: the checkpoint or the plan is malformed, or a tensor cannot be cut so; the numbers that
            would do are named.
        FileError: a file is missing or malformed.

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
    if not 1 <= ranks <= MAX_RANKS:
        raise PlanError(f"{shown(ranks)} ranks, and it must be 1 to {MAX_RANKS}")
    found = _matched(path, plan, layout, like=like, allow_links=allow_links, strict=strict)
    checkpoint, matches = found.checkpoint, found.matches
    with without_collector():
        cuts = cuts_or_advice(matches, ranks)
        own = tuple([cuts[kind] for kind in matches.numbers.tolist()])
    found.prove_named()
    placements = Placements(ranks, checkpoint.files, checkpoint.tensors, own)
    heads = head_warnings(matches, found.heads, ranks, cuts)
    whole = (f'whole on every rank, as no rule but the closing "*" names them: {found.unnamed}',)
    config = padded_config(matches, cuts, checkpoint.config, found.layout)
    warnings = (*checkpoint.warnings, *(whole if found.unnamed else ()), *config.warnings, *heads)
    return ShardPlan(
        checkpoint, placements, matches.rules, found.layout, found.document, warnings, config.text
    )


def find_ranks(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    ranks: Iterable[int] = range(1, 65),
    layout: str | None = None,
    like: AnyPath | None = None,
    allow_links: bool = False,
    strict: bool = False,
) -> tuple[RankFit, ...]:
    """Return which numbers of ranks a plan allows for a whole checkpoint; nothing is written.

    Args:
        path: as in :func:`plan`.
        plan: as in :func:`plan`.
        ranks: the numbers of ranks to try.
        layout: as in :func:`plan`.
        like: as in :func:`plan`.
        allow_links: as in :func:`plan`.
        strict: as in :func:`plan`.

    Returns:
        For each number whether the plan fits, repeats units such as heads, pads, or is impossible, by all
        rules and tensors together.

    Raises:
        PlanError: the checkpoint or the plan is malformed, or no rule matches a tensor.
        FileError: a file is missing or malformed.

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
        leaves ranks without a part (rule 1)
    """
    numbers = list(ranks)
    wrong = next((each for each in numbers if not 1 <= each <= MAX_RANKS), None)
    if wrong is not None:
        raise PlanError(f"{shown(wrong)} ranks, and it must be 1 to {MAX_RANKS}")
    found = _matched(path, plan, layout, like=like, allow_links=allow_links, strict=strict)
    found.prove_named()
    return tuple(fit(found.matches, found.heads, each) for each in numbers)


class _Matched(NamedTuple):
    """A checkpoint with the plan that matches its tensors, and what follows from both for any ranks."""

    checkpoint: Checkpoint
    document: Mapping[str, Any]
    layout: str
    matches: Matches
    heads: tuple[HeadRule, ...]
    unnamed: str

    def prove_named(self) -> None:
        """Reject tensors without a rule for a layout that needs one."""
        if self.unnamed and self.layout == "vllm":
            what = "layout vllm needs a rule for each tensor of rank 2 or more, and these have none"
            raise PlanError(f"{what}: {self.unnamed}")


def _matched(
    path: AnyPath,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None,
    layout: str | None,
    *,
    like: AnyPath | None,
    allow_links: bool,
    strict: bool,
) -> _Matched:
    """Read a checkpoint and a plan, and match them."""
    checkpoint = open_checkpoint(path, like=like, allow_links=allow_links, strict=strict)
    names = [tensor.name for tensor in checkpoint.tensors]
    if plan is None:
        plan = checkpoint.plan or "auto"
    document: Any
    if isinstance(plan, Mapping):
        document, called = plan, "the plan"
    else:
        automatic = plan == "auto"
        document = auto_plan(checkpoint.config, names, layout or "hf") if automatic else read(Path(plan))
        called = shown_path(plan)
    rules = rules_of(document, called)
    known = Names(document.get("vars", {}), checkpoint.config)
    chosen = layout_named(layout or document.get("layout", "hf")).name
    if chosen == "vllm":
        prove_known(checkpoint.config, names)
    with without_collector():
        matches = match_rules(rules, checkpoint.tensors, known)
    unnamed = _unnamed(rules, matches.rules, checkpoint.tensors)
    heads = head_rules(matches, checkpoint.tensors, known) if chosen == "hf" else ()
    return _Matched(checkpoint, document, chosen, matches, heads, unnamed)


def _unnamed(
    rules: Sequence[ShardRule], matched: Sequence[ShardRule], tensors: Sequence[StoredTensor]
) -> str:
    """Return the tensors of rank 2 or more that only a closing ``*`` matches, which leaves them whole."""
    last = rules[-1] if rules else None
    if last is None or "*" not in last.match or last.cuts:
        return ""
    closing = [tensor for rule, tensor in zip(matched, tensors, strict=True) if rule is last]
    if len(rules) > 1 and tensors and len(closing) == len(tensors):
        first = rules[0].match[0]
        raise PlanError(
            f'no rule of the plan but the closing "*" matches a tensor: the plan has names such as '
            f"{shown(first)}, and the checkpoint {shown(tensors[0].name)}"
        )
    counts = Counter(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", each.name) for each in closing if len(each.shape) > 1)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def merge(
    path: AnyPath, *, like: AnyPath | None = None, allow_links: bool = False, strict: bool = False
) -> MergePlan:
    """Plan the merge of ranks into the files that they were cut from; nothing is written.

    Args:
        path: the folder of the ranks, with their manifest, or a distributed checkpoint of PyTorch's.
        like: as in :func:`plan`; without it, a distributed checkpoint has files of our own choice.
        allow_links: as in :func:`plan`.
        strict: as in :func:`plan`.

    Raises:
        PlanError: the manifest is malformed, a rank is missing or is of another run, pieces of a tensor are
            missing or overlap.
        FileError: a file cannot be read.
    """
    prove_ranks(path)
    return MergePlan(open_checkpoint(path, like=like, allow_links=allow_links, strict=strict))


def prove_ranks(path: AnyPath) -> None:
    """Reject what is not a folder of ranks."""
    reject_pickled(Path(path))
    if not are_ranks(Path(path)):
        cure = (
            f"To cut a checkpoint, use splitops shard {path} ... To merge the parts of a tensor, give their "
        )
        cure += "files; to make one file of a model, end --out with .safetensors or .gguf"
        folder = Path(path)
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else [folder.name]
        advice = "" if any(map(is_model_file, names)) else advise_on_pickles(names)
        raise PlanError(f"{shown_path(path)} is not a folder of ranks. {advice or cure}")


def are_ranks(path: Path) -> bool:
    """Return whether a path is a folder of ranks, with a manifest or as PyTorch writes them."""
    return has_manifest(path) or is_distributed(path)
