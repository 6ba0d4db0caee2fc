"""How tensors are sharded over ranks: data types, and the arithmetic that divides an axis.

An axis is divided over N ranks by the rule of Split-18 with ``num_outputs`` = N, like ``torch.chunk``, but
with empty parts instead of fewer ones. Units may repeat on several ranks. Fused sections of an axis are
separated by the rule of VariadicSplit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from splitops.calls.plan import plan_arguments
from splitops.errors import PlanError, RuleError, SplitError, brief
from splitops.files.extents import Extent, make_contiguous
from splitops.files.tensors import StoredTensor, make_part_extents
from splitops.native import Plan, SplitPlan
from splitops.sharding.boxes import count_bytes

MAX_RANKS: Final = 1 << 16


class RanksError(PlanError):
    """An axis cannot be sharded over this number of ranks.

    Attributes:
        what: message without the possible numbers of ranks.
        good: numbers of ranks, not necessarily all, that keep the units of the same section complete.
        length: number of elements in this section, which these ranks share; 0 if units repeat.
    """

    def __init__(self, what: str, good: Sequence[int], length: int = 0) -> None:
        super().__init__(f"{what}: {format_possible_ranks(good, length)}")
        self.what, self.good, self.length = what, tuple(good), length


def format_possible_ranks(good: Sequence[int], length: int = 0) -> str:
    """Format possible numbers of ranks as advice. Given ``length``, add the largest part for each number.

    Examples:
        >>> format_possible_ranks([1, 2], 8)
        'use [1, 2] ranks, of [8, 4] elements each'
    """
    each = f", of {brief([-(-length // n) for n in good])} elements each" if length else ""
    return f"use {brief(list(good))} ranks{each}"


class Piece(NamedTuple):
    """A range along the sharded axis.

    Attributes:
        begin: first index in the unsharded tensor.
        size: size of the range.
        at: first index in the tensor of the rank.
    """

    begin: int
    size: int
    at: int


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a tensor on one rank.

    Attributes:
        size: size of the rank's tensor along the sharded axis, including padding at its end or at the end
            of each section. 0 if the tensor is not sharded.
        pieces: ranges of the unsharded tensor, in the order in which the rank stores them.
    """

    size: int = 0
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSharding:
    """How a tensor is distributed over ranks.

    Attributes:
        axis: the sharded axis, or None if ranks store the complete tensor.
        shards: the part on each rank; None for a rank without the tensor.
        padded: size of the axis with padding; 0 if it is not padded.
    """

    axis: int | None
    shards: tuple[Shard | None, ...]
    padded: int = 0

    def shape(self, shape: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
        """Return the shape of a rank's part of a tensor with ``shape``, or None if the rank has none."""
        shard = self.shards[rank]
        if shard is None or self.axis is None:
            return None if shard is None else shape
        return (*shape[: self.axis], shard.size, *shape[self.axis + 1 :])

    @property
    def holders(self) -> tuple[tuple[int, Piece | None], ...]:
        """Each distinct piece, preceded by the first rank that stores it. None is the complete tensor."""
        if self.axis is None:
            return ((next(rank for rank, shard in enumerate(self.shards) if shard is not None), None),)
        first: dict[tuple[int, int], tuple[int, Piece]] = {}
        for rank, shard in enumerate(self.shards):
            for piece in shard.pieces if shard is not None else ():
                first.setdefault((piece.begin, piece.size), (rank, piece))
        return tuple(first.values())


def replicate(ranks: int) -> TensorSharding:
    """Return the sharding of a tensor that is replicated on all ranks."""
    return TensorSharding(None, (Shard(),) * ranks)


@lru_cache(maxsize=4096)
def assign_to_rank(index: int, count: int, ranks: int) -> TensorSharding:
    """Return the sharding of a tensor on one rank: the one that gets entry ``index`` of ``count`` entries.

    Examples:
        >>> [assign_to_rank(i, 5, 2).shards.index(Shard()) for i in range(5)]
        [0, 0, 0, 1, 1]
    """
    plan = _divide(count, ranks, even=False)
    holder = next(r for r in range(ranks) if plan.offsets[r] <= index < plan.offsets[r] + plan.sizes[r])
    return TensorSharding(None, tuple(Shard() if rank == holder else None for rank in range(ranks)))


@dataclass(frozen=True, slots=True)
class AxisSharding:
    """The rule by which an axis is sharded, as documented in ``plan.schema.json``.

    All sizes count elements, and each index of the axis holds ``pack`` of them. There is one section if
    ``sections`` is None. ``replicate`` has the indices of sections whose units repeat if there are more ranks
    than units. Each section is padded to a multiple of ``pad_to``; 0 means no padding.
    """

    axis: int
    sections: tuple[int, ...] | None = None
    unit: int = 1
    replicate: frozenset[int] = frozenset()
    pad_to: int = 0
    pack: int = 1
    even: bool = False

    @property
    def is_simple(self) -> bool:
        """Whether the axis is a single section that any number of ranks can share."""
        return self.unit == self.pack == 1 and self.sections is None and not (self.replicate or self.even)


@lru_cache(maxsize=4096)
def shard_axis(axis_sharding: AxisSharding, size: int, ranks: int) -> TensorSharding:
    """Shard an axis of ``size`` indices over ``ranks``. Raise PlanError if that is not possible.

    Examples:
        >>> cut = shard_axis(AxisSharding(0, sections=(4, 2), unit=2, replicate=frozenset({1})), 6, 2)
        >>> cut.shards[1]
        Shard(size=4, pieces=(Piece(begin=2, size=2, at=0), Piece(begin=4, size=2, at=2)))
    """
    elements = size * axis_sharding.pack
    sections = (elements,) if axis_sharding.sections is None else axis_sharding.sections
    if not axis_sharding.replicate <= frozenset(range(len(sections))):
        raise PlanError(
            f"replicate = {sorted(axis_sharding.replicate)}, but there are {len(sections)} sections"
        )
    plan = _plan_split("VariadicSplit", elements, split_lengths=list(sections))
    held: list[list[Piece]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    padded = 0
    for index, (offset, length) in enumerate(zip(plan.offsets, plan.sizes, strict=True)):
        whole = -(-length // axis_sharding.pad_to) * axis_sharding.pad_to if axis_sharding.pad_to else length
        padded += whole
        ranges = _divide_section(axis_sharding, whole, ranks, repeats=index in axis_sharding.replicate)
        for rank, (begin, count) in enumerate(ranges):
            real = max(0, min(count, length - begin))
            if real:
                held[rank].append(_pack(Piece(offset + begin, real, sizes[rank]), axis_sharding.pack))
            sizes[rank] += count
    shards = tuple(Shard(n // axis_sharding.pack, tuple(p)) for n, p in zip(sizes, held, strict=True))
    return TensorSharding(
        axis_sharding.axis, shards, padded // axis_sharding.pack if padded > elements else 0
    )


def _divide_section(
    axis_sharding: AxisSharding, length: int, ranks: int, *, repeats: bool
) -> list[tuple[int, int]]:
    """Return the offset and the size of each rank's part of a section.

    With ``repeats``, several ranks get the same unit if there are fewer units than ranks.
    """
    unit = axis_sharding.unit
    if repeats:
        if length % unit or not length:
            raise PlanError(
                f"units of {unit} cannot be repeated: {length} elements are not a positive multiple of {unit}"
            )
        units = length // unit
        if units < ranks and ranks % units == 0:
            each = ranks // units
            return [(rank // each * unit, unit) for rank in range(ranks)]
        if units % ranks:
            limit = min(2 * max(units, ranks), MAX_RANKS)
            good = [n for n in range(1, limit + 1) if units % n == 0 or n % units == 0]
            what = f"{units} units of {unit} cannot be repeated on {ranks} ranks"
            raise RanksError(f"{what}, as neither number divides the other", good)
    plan = _divide(length, ranks, even=axis_sharding.even)
    through = math.lcm(unit, axis_sharding.pack)
    for end in (offset + count for offset, count in zip(plan.offsets, plan.sizes, strict=True)):
        if end % through and end < length:
            what = f"{ranks} ranks would split {length} elements at {end}, inside of a unit of {through}"
            raise RanksError(what, find_possible_ranks(length, through), length)
    return list(zip(plan.offsets, plan.sizes, strict=True))


def find_possible_ranks(length: int, unit: int) -> list[int]:
    """Return the numbers of ranks over which a length can be divided without splitting a unit.

    They do not exceed the number of units or 4096.

    Examples:
        >>> find_possible_ranks(32, 8)
        [1, 2, 4]
    """
    limit = min(max(1, length // unit), 4096)
    return [ranks for ranks in range(1, limit + 1) if ranks == 1 or -(-length // ranks) % unit == 0]


def _pack(piece: Piece, pack: int) -> Piece:
    if any(number % pack for number in piece):
        raise PlanError(
            f"a piece of {piece.size} elements at {piece.begin} would split {pack} packed elements"
        )
    return Piece(piece.begin // pack, piece.size // pack, piece.at // pack)


def _divide(size: int, ranks: int, *, even: bool) -> SplitPlan:
    """Divide ``size`` by the rule of Split-18 or, if ``even``, of OpenVINO's Split (without a remainder)."""
    if even:
        return _plan_split("Split", size, domain="openvino", num_splits=ranks)
    return _plan_split("Split", size, num_outputs=ranks)


def _plan_split(operator: str, size: int, domain: str | None = None, **arguments: object) -> SplitPlan:
    try:
        return plan_arguments(operator, (size,), None, None, domain, {"axis": 0, **arguments})
    except RuleError as error:
        raise PlanError(error.message) from error


def shard_extents(tensor: StoredTensor, cut: TensorSharding, rank: int) -> list[Extent]:
    """Return the extents from a tensor to a rank's part of it. Both begin at byte 0; the part must exist."""
    axis, shape = cut.axis, tensor.shape
    if axis is None:
        return [make_contiguous(0, 0, 0, 0, tensor.size)] if tensor.size else []
    shard = cut.shards[rank]
    assert shard is not None
    step = math.prod(shape[axis + 1 :])
    begins, sizes = [piece.begin for piece in shard.pieces], [piece.size for piece in shard.pieces]
    try:
        row = count_bytes(shard.size * step, tensor.unit)
        places = [(0, count_bytes(piece.at * step, tensor.unit)) for piece in shard.pieces]
        source = StoredTensor("", shape, "packed", tensor.unit, 0, tensor.size)
        found = make_part_extents(source, Plan(shape, axis, tuple(begins), tuple(sizes)), places)
    except SplitError as error:
        raise PlanError(f"{tensor.label}, {tensor.code}: {error.message}") from error
    return [extent._replace(target_stride=row) if extent.runs > 1 else extent for extent in found]
