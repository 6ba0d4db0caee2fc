"""Fuse and unfuse LoRA adapters of PEFT like the modules of their base model.

An adapter adds ``scale * B @ A`` to the weight of a module. Each unfused part gets A and its rows of B. A
fused module gets the A of its parts if all are equal. Otherwise, it gets all A, stacked by rows, and its B
has the B of each part in separate columns and zeros elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from splitops.errors import PlanError, brief, shown
from splitops.files.extents import Extent, make_contiguous
from splitops.files.tensors import BYTE, StoredTensor
from splitops.sharding.checkpoint import Checkpoint
from splitops.sharding.copies import check_equal
from splitops.sharding.fusing import Copied, Form, FusedGroup, Fusions

CONFIG: Final = "adapter_config.json"
_A, _B, _MAGNITUDE = "lora_A.weight", "lora_B.weight", "lora_magnitude_vector"
_MAX_RUNS: Final = 1 << 20
_NAME: Final = re.compile(r"(base_model\.model\.)?(.+)\.(lora_(?:[AB]\.weight|B\.bias|magnitude_vector))")
"""Pattern of LoRA tensor names. The groups are the prefix, the module and the rest (``lora_A.weight``)."""

Change = tuple[int | None, int, list[tuple[StoredTensor, Sequence[Copied]]]]
"""Index of a rule (None if none matches), number of old tensors, and the new tensors with their sources."""


class Adapter:
    """A LoRA adapter to fuse or unfuse. Each of its modules has tensors such as ``lora_A.weight``."""

    def __init__(self, checkpoint: Checkpoint, config: Any, fusions: Fusions) -> None:
        """Find the modules and check their shapes. ``config`` is the content of ``adapter_config.json``."""
        if not isinstance(config, dict) or config.get("peft_type") != "LORA":
            raise PlanError(f"{checkpoint.name}: {CONFIG} does not set peft_type = 'LORA'")
        self._checkpoint, self._config, self._fusions = checkpoint, config, fusions
        self._others: list[int] = []
        self._modules: dict[str, dict[str, int]] = {}
        self._scales: dict[str, tuple[int, Fraction]] = {}
        """Rank and scale of each new module. The scale is squared with ``use_rslora``."""
        names = [_NAME.fullmatch(tensor.name) for tensor in checkpoint.tensors]
        prefixes = {found[1] or "" for found in names if found}
        if checkpoint.held is not None:
            raise PlanError(f"{checkpoint.name} is a sharded adapter: merge its ranks first (splitops merge)")
        if len(prefixes) > 1:
            some = "only some names of LoRA tensors begin with 'base_model.model.'"
            raise PlanError(f"{checkpoint.name}: {some}: rename all or none")
        self._prefix = next(iter(prefixes))
        for index, found in enumerate(names):
            if found:
                self._modules.setdefault(found[2], {})[found[3]] = index
            else:
                self._others.append(index)
        for module, leaves in self._modules.items():
            shapes = {leaf: checkpoint.tensors[index].shape for leaf, index in leaves.items()}
            packed = any(checkpoint.tensors[index].unit.elements > 1 for index in leaves.values())
            a, b = shapes.pop(_A, ()), shapes.pop(_B, ())
            if packed or not len(a) == len(b) == 2 or not a[0] == b[1] > 0 or {*shapes.values()} - {b[:1]}:
                said = f"module {shown(module)} has shapes {brief([a, b, *shapes.values()])}"
                raise PlanError(f"{said}, which are not those of the LoRA of a linear module")

    def iter_changes(self, *, to_fused: bool) -> Iterator[Change]:
        """Yield changes that fuse (``to_fused``) or unfuse LoRA modules, then the other tensors unchanged."""
        modules, fusions, tensors = list(self._modules), self._fusions, self._checkpoint.tensors
        # Each B is represented by a vector with one byte per row, which is fused and unfused like a weight.
        b = [tensors[leaves[_B]] for leaves in self._modules.values()]
        rows = [
            each._replace(name=f"{module}.weight", shape=each.shape[:1], size=each.shape[0], unit=BYTE)
            for module, each in zip(modules, b, strict=True)
        ]
        rule: int | None
        for group in fusions.group_parts([each.name for each in rows]) if to_fused else range(len(rows)):
            if isinstance(group, FusedGroup):
                own = {part: modules[index] for (_, part), index in group.members.items()}
                rule, (whole, forms) = group.rule, fusions.fuse_rows(group, rows)
                parts = [(whole, [(own[part], form) for part, form in forms if part in own])]
            else:
                found = None if to_fused else fusions.unfuse(rows[group])
                rule, pieces = found or (None, [(rows[group], copy_all(rows[group].size))])
                parts = [(piece, [(modules[group], form)]) for piece, form in pieces]
            used = None if rule is None else fusions.rules[rule]
            if used is not None and (used.stack or used.axis):
                raise PlanError(f"rule {shown(used.fused)} does not divide the outputs of a module")
            made = [tensor for part, sources in parts for tensor in self._build(part, sources)]
            yield rule, sum(len(self._modules[old]) for old in {old for _, s in parts for old, _ in s}), made
        for index in self._others:
            if fusions.has_rule(tensors[index].name.removeprefix(self._prefix), to_fused=to_fused):
                raise PlanError(
                    f"{tensors[index].label} matches a rule, but is not part of a linear module's LoRA"
                )
            yield None, 1, [(tensors[index], [(index, copy_all(tensors[index].size))])]

    def _build(
        self, rows: StoredTensor, sources: Sequence[tuple[str, Form]]
    ) -> Iterator[tuple[StoredTensor, Sequence[Copied]]]:
        """Yield the tensors of the new module that ``rows`` names, each with the extents that fill it.

        ``sources`` lists the old modules, each with the extents from its rows to ``rows``.
        """
        module, tensors = rows.name.removesuffix(".weight"), self._checkpoint.tensors
        held = [self._modules[name] for name, _ in sources]
        a = [tensors[leaves[_A]] for leaves in held]
        ranks, inputs = [each.shape[0] for each in a], {each.shape[1] for each in a}
        scales = [self._find_scale(name, rank) for (name, _), rank in zip(sources, ranks, strict=True)]
        values = [math.sqrt(each) if self._config.get("use_rslora") else float(each) for each in scales]
        if module == rows.name:
            raise PlanError(
                f"the plan makes {shown(rows.name)}, but the name of a module's weight must end in .weight"
            )
        if len(inputs) > 1 or not math.isclose(min(values), max(values), rel_tol=1e-12):
            raise PlanError(
                f"cannot make {shown(rows.name)} from modules with {brief(sorted(inputs))} inputs and scales "
                f"{brief(values)}: the inputs and the scales must be equal"
            )
        same = self._are_equal([leaves[_A] for leaves in held])
        starts = [0] * len(a) if same else [*accumulate(ranks, initial=0)][:-1]
        rank, row = starts[-1] + ranks[-1], a[0].size // ranks[0]
        self._scales[module] = rank, min(scales, key=lambda scale: scale.denominator)  # without rounding
        for leaf in sorted({leaf for leaves in held for leaf in leaves}):
            own = [(n, leaves[leaf], sources[n][1]) for n, leaves in enumerate(held) if leaf in leaves]
            first = tensors[own[0][1]]
            missing = rows.size - sum(each.bytes for _, _, form in own for each in form)
            if len({tensors[i].code for _, i, _ in own}) > 1 or (leaf == _MAGNITUDE and missing):
                raise PlanError(
                    f"module {shown(module)}: {leaf} would have several element types, or lack rows"
                )
            item, shape = first.unit.bytes, rows.shape
            if leaf == _A:
                shape = rank, a[0].shape[1]
                copied = [(i, copy_all(a[n].size, starts[n] * row)) for n, i, _ in own[: 1 if same else None]]
            elif leaf == _B:
                shape, width = (rows.shape[0], rank), rank * item
                copied = [(i, _widen(form, ranks[n] * item, width, starts[n] * item)) for n, i, form in own]
            else:
                copied = [(i, _widen(form, item, item, 0)) for _, i, form in own]
            name = f"{self._prefix}{module}.{leaf}"
            yield first._replace(name=name, shape=shape, size=math.prod(shape) * item), copied

    def _are_equal(self, indices: Sequence[int]) -> bool:
        """Return whether the tensors with these indices have equal shapes, types and bytes."""
        tensors = [self._checkpoint.tensors[index] for index in indices]
        if any((each.shape, each.code) != (tensors[0].shape, tensors[0].code) for each in tensors):
            return False
        places = [self._checkpoint.place_of(index) for index in indices]
        found = [self._checkpoint.sources[place.source] for place in places]
        with contextlib.suppress(PlanError):
            for source, place in zip(found[1:], places[1:], strict=True):
                check_equal("", found[0], places[0], source, place)
            return True
        return False

    def _find_scale(self, module: str, rank: int) -> Fraction:
        """Return the scale of a module, or its square with ``use_rslora``. Its A has ``rank`` rows."""
        stated, alpha = self._find_value(module, "r"), self._find_value(module, "lora_alpha")
        if type(stated) is not int or stated != rank:
            what = (
                f"A of module {shown(module)} has {rank} rows, but {CONFIG} states the rank {shown(stated)}"
            )
            raise PlanError(
                f"{what} (r, rank_pattern): these must be equal, as the scale depends on the rank"
            )
        if type(alpha) not in (int, float) or not 0 <= alpha < 1 << 31:
            raise PlanError(
                f"{CONFIG}: the alpha of module {shown(module)} is {shown(alpha)}, not a number from 0 to "
                "2^31"
            )
        return Fraction(alpha) ** (2 if self._config.get("use_rslora") else 1) / rank

    def _find_value(self, module: str, key: str) -> Any:
        """Return the value of ``r`` or ``lora_alpha`` (``key``) for a module. The default of both is 8."""
        pattern = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}[key]
        own = self._config.get(pattern) or {}
        if not isinstance(own, dict) or any(re.fullmatch(r"\^?[\w.-]+", name) is None for name in own):
            raise PlanError(f"{CONFIG}: {pattern} is {shown(own)}, but its keys must be names of modules")
        named = (own[name] for name in own if name == f"^{module}" or f".{module}".endswith(f".{name}"))
        return next(named, self._config.get(key, 8))

    def format_config(self) -> bytes:
        """Return the new ``adapter_config.json``. Call this after :meth:`iter_changes` is exhausted."""
        found: dict[str, tuple[int, float]] = {}
        for module, (rank, scale) in self._scales.items():
            alpha = math.sqrt(scale * rank) if self._config.get("use_rslora") else float(scale * rank)
            found[module] = rank, int(alpha) if alpha.is_integer() else alpha
        [(usual, _)] = Counter(found.values()).most_common(1)
        ends = {module[dot.end() :] for module in found for dot in re.finditer(r"\.", module)}
        # PEFT reads a key as the end of a module's name, unless it begins with ^.
        keys = {module: f"^{module}" if module in ends else module for module in found}
        patterns = [{keys[m]: pair[i] for m, pair in found.items() if pair[i] != usual[i]} for i in range(2)]
        targets, new = self._config.get("target_modules"), sorted(found)
        if isinstance(targets, list) and all(isinstance(each, str) and "." not in each for each in targets):
            old = {module.rpartition(".")[2] for module in self._modules}
            new = sorted({*targets} - old | {module.rpartition(".")[2] for module in found})
        changed = {"r": usual[0], "lora_alpha": usual[1], "target_modules": new}
        changed |= {"rank_pattern": patterns[0], "alpha_pattern": patterns[1]}
        return json.dumps({**self._config, **changed}, indent=2, sort_keys=True, ensure_ascii=False).encode()


@lru_cache(maxsize=4096)
def copy_all(size: int, target: int = 0) -> Form:
    """Return the extents that copy a tensor of ``size`` bytes to the offset ``target``."""
    return (make_contiguous(0, 0, 0, target, size),) if size else ()


def is_adapter(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has LoRA tensors."""
    return any(_NAME.fullmatch(tensor.name) for tensor in checkpoint.tensors)


def _widen(form: Form, size: int, width: int, column: int) -> Form:
    """Convert extents of one-byte rows to extents of rows of ``size`` bytes.

    Each row is copied to the offset ``column`` in a target row of ``width`` bytes.
    """
    if sum(each.runs for each in form) > _MAX_RUNS:
        raise PlanError(f"there are more than {_MAX_RUNS} groups of rows")
    rows = [
        (each.offset + n * each.stride, each.target_offset + n * each.target_stride, each.run)
        for each in form
        for n in range(each.runs)
    ]
    return tuple(Extent(0, at * size, size, 0, to * width + column, width, size, run) for at, to, run in rows)
