"""Find the shapes of unsharded tensors, and how they were sharded, from their parts on all ranks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from splitops.errors import PlanError, SplitError, brief
from splitops.files.formats.safetensors import make_tensor
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor
from splitops.sharding.expressions import Names
from splitops.sharding.heads import KEYS, QUERIES
from splitops.sharding.padding import SIZE_KEYS, classify_axis, iter_sizes
from splitops.sharding.plan_language import ShardRule, find_axis, make_axis_sharding
from splitops.sharding.roles import Roles
from splitops.sharding.tensor_sharding import AxisSharding, Piece, Shard, TensorSharding, shard_axis

_SAMPLE: Final = 4096
"""Maximum number of bytes to compare at the beginning of parts that may be copies of each other."""
Parts = Sequence[StoredTensor | None]
"""The part of a tensor on each rank. It is None if the rank does not have the tensor."""
_Solved = tuple[tuple[int, ...], TensorSharding]
"""The shape of an unsharded tensor, and its sharding."""


class ShapeSolver:
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
        self._unknown: list[Parts] = []
        """Parts of tensors whose size along the sharded axis is unknown, so that they may be copies."""

    def solve(self, rule: ShardRule, parts: Parts) -> tuple[StoredTensor, TensorSharding]:
        """Return the unsharded tensor of ``parts``, without a place in a file, and its sharding."""
        first = next(part for part in parts if part is not None)
        kinds = tuple(None if part is None else (part.code, part.shape) for part in parts)
        axes = range(len(first.shape))
        counts = tuple(classify_axis(first, axis) for axis in axes)
        roles = tuple(frozenset(self._roles.find_sizes(first, axis)) for axis in axes)
        named = first.name if "vocabulary" in counts else ""  # each gets its own warning about padding
        key = rule.number, "place" in rule.fields, kinds, counts, roles, named, _is_shared(parts)
        try:
            if key not in self._known:
                self._known[key] = self._solve(rule, first, parts)
            shape, cut = self._known[key]
            self._check_shape(rule, first, shape, roles)
            implied = cut.axis is None or "sections" in rule.fields or roles[cut.axis]
            if self._automatic and not implied and cut.shards[0] != cut.shards[1 % len(parts)]:
                self._unknown.append(parts)
            return make_tensor(first.name, first.code, list(shape), 0), cut
        except (SplitError, ValueError) as error:
            raise PlanError(f"{first.label}, {rule.label_for(first.name)}: {error}") from error

    def check_copies(self, sources: Sequence[Source]) -> None:
        """Reject tensors of unknown size whose parts on ranks 0 and 1 begin with the same data.

        They may be copies. Data that only repeats one element does not count.
        """
        for one, other in (parts[:2] for parts in self._unknown):
            if one is None or other is None or not 0 < one.size == other.size:
                continue
            data = sources[one.file].read(one.offset, min(one.size, _SAMPLE))
            constant = data == (data[: one.unit.bytes] * len(data))[: len(data)]
            if not constant and sources[other.file].read(other.offset, len(data)) == data:
                raise PlanError(
                    f"{one.label} is the same on ranks 0 and 1, although the plan of its name shards it, and "
                    "config.json does not imply its size: write a plan (--plan FILE)"
                )

    def _check_shape(
        self, rule: ShardRule, first: StoredTensor, shape: Sequence[int], roles: Sequence[Collection[int]]
    ) -> None:
        """Check the sizes of an unsharded tensor against those that ``config.json`` implies, ``roles``.

        If they differ, raise PlanError for an automatic plan. For the plan of a caller, add a warning, unless
        its rule sets the size in ``sections``.
        """
        stated = "sections" in rule.fields and not self._automatic
        for axis, (size, known) in enumerate(zip(shape, roles, strict=True)):
            if known and size not in known and not (stated and axis == find_axis(rule, first.shape)):
                sizes = brief(sorted(known))
                what = f"axis {axis} has size {size} when merged, but config.json requires {sizes}"
                if self._automatic:
                    raise PlanError(f"{what}. If it is right, write a plan (--plan FILE)")
                self.doubts.append(f"{first.label}: {what}")

    def _solve(self, rule: ShardRule, first: StoredTensor, parts: Parts) -> _Solved:
        placed = "place" in rule.fields
        axis = None if placed or _is_shared(parts) else self._find_axis(rule, first, parts)
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

    def _find_axis(self, rule: ShardRule, first: StoredTensor, parts: Parts) -> int | None:
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
        planned = axis == find_axis(rule, first.shape)
        known = self._list_sizes(rule, first, axis) if planned else self._roles.find_sizes(first, axis)
        smaller = [size for size in known if size < total]
        if not known and planned:
            self._check_padding(rule, first, counts, total)
        size = total if total in known or not known else max(smaller, default=min(known))
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        if self._automatic and "groups" in fields:  # Megatron-LM may shard a group, too
            fields = {key: value for key, value in fields.items() if key != "groups"}
            if size < total and (cut := self._find_shared_keys(axis, size, sizes)) is not None:
                return shape, cut
        own = make_axis_sharding(replace(rule, fields=fields), shape, self._names)
        assert own is not None  # the rule has an axis
        two = counts == KEYS and size == total and any(total % other == 0 for other in smaller)
        repeats = "replicate" in fields or (counts == KEYS and self._automatic)
        if len(sizes) > 1 and (two or (repeats and not known)):
            raise PlanError(
                f"it is unknown whether ranks of sizes {brief(sizes)} repeat units: set sections in the plan"
            )
        if own.sections is None and total == size:
            self._check_sizes(rule, own, sizes, is_known=total in known)
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
            f"config.json require {brief(sorted(known) or [size])}{advice}"
        )

    def _find_shared_keys(self, axis: int, size: int, sizes: Sequence[int]) -> TensorSharding | None:
        """Return the sharding of fused queries, keys and values if several ranks share the keys of a group.

        Each rank has some of the group's queries, then a copy of its keys and values. Return None if the
        sizes do not fit this.
        """
        ranks, groups = len(sizes), self._names.evaluate(KEYS)
        shared = 2 * self._names.evaluate("head_dim")
        each, queries = ranks // max(1, groups), sizes[0] - shared
        fits = ranks == groups * each and size + (ranks - groups) * shared == sum(sizes)
        if len({*sizes}) > 1 or each < 2 or queries < 1 or not fits:
            return None
        shards = []
        for rank in range(ranks):
            begin = rank // each * (each * queries + shared)
            keys = Piece(begin + each * queries, shared, queries)
            shards.append(Shard(sizes[0], (Piece(begin + rank % each * queries, queries, 0), keys)))
        return TensorSharding(axis, tuple(shards))

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

    def _list_sizes(self, rule: ShardRule, first: StoredTensor, axis: int) -> Collection[int]:
        """Return the sizes that the unsharded axis may have according to the plan or ``config.json``."""
        sections = rule.fields.get("sections", [-1])
        if -1 not in sections:
            return {sum(map(self._names.evaluate, sections))}
        counts, pack = classify_axis(first, axis), self._names.evaluate(rule.fields.get("pack", 1))
        if pack == 1 and (implied := self._roles.find_sizes(first, axis)):
            return implied
        if counts in (QUERIES, KEYS) and re.search(r"\.([qkvo]_proj|w[qkvo])\.", first.name):
            return {size // pack for size in self._roles.heads[counts]}
        if counts not in ("vocabulary", "inner"):
            return ()
        found = [size for key, size in self._sizes if SIZE_KEYS[counts].search(key)]
        if found and counts == "inner":
            found = [n * size for size in _iter_integers(self._config) for n in (1, 2, 4)]
        return {-(-size // pack) for size in found}


def _is_shared(parts: Parts) -> bool:
    """Return whether all ranks share one stored tensor. It is complete, even if a rule shards its name."""
    return len(parts) > 1 and all(part is parts[0] for part in parts)


def _iter_integers(value: Any) -> Iterator[int]:
    """Yield all positive integers in a JSON document. Some sizes have keys that :data:`SIZE_KEYS` lacks."""
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from (each,) * (each > 0) if type(each) is int else _iter_integers(each)
