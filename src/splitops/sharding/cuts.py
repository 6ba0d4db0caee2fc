"""Cuts: which piece of a tensor each rank holds. Pure data, and the one arithmetic that makes it.

Sizes are those of the operators: an axis over N ranks is divided as Split-18 does it with ``num_outputs`` = N
(``torch.chunk``), fused sections as VariadicSplit does it. An impossible cut is rejected with the numbers.
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
from splitops.sharding.boxes import unit_bytes

MAX_RANKS: Final = 1 << 16


class RanksError(PlanError):
    """A number of ranks over which an axis cannot be cut.

    Attributes:
        what: what is wrong, without the numbers of ranks that are possible.
        good: the numbers of ranks over which this axis can be cut.
        length: the elements that they share; 0 if units repeat.
    """

    def __init__(self, what: str, good: Sequence[int], length: int = 0) -> None:
        super().__init__(f"{what}: {possible_ranks(good, length)}")
        self.what, self.good, self.length = what, tuple(good), length


def possible_ranks(good: Sequence[int], length: int = 0) -> str:
    """Return in words which numbers of ranks are possible, and how many elements each then has.

    Examples:
        >>> possible_ranks([1, 2], 8)
        '[1, 2] ranks would do, of [8, 4] elements each'
    """
    each = f", of {brief([-(-length // n) for n in good])} elements each" if length else ""
    return f"{brief(list(good))} ranks would do{each}"


class Piece(NamedTuple):
    """Neighbouring positions of the cut axis.

    Attributes:
        begin: the first one in the whole tensor.
        size: how many.
        at: the first one in the rank's tensor.
    """

    begin: int
    size: int
    at: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank holds of a tensor.

    Attributes:
        size: of the rank's tensor on the cut axis, padding at its end included; 0 of a whole one.
        pieces: in the order of the rank's tensor.
    """

    size: int = 0
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """How a tensor lies on the ranks.

    Attributes:
        axis: the axis that is cut; None where ranks hold the whole tensor.
        shards: by rank; None where a rank holds nothing of it.
        padded: the size of the axis with its padding, where it is padded; else 0.
    """

    axis: int | None
    shards: tuple[Shard | None, ...]
    padded: int = 0

    def shape(self, shape: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
        """Return the shape of a rank's tensor; None where it has none."""
        shard = self.shards[rank]
        if shard is None or self.axis is None:
            return None if shard is None else shape
        return (*shape[: self.axis], shard.size, *shape[self.axis + 1 :])

    @property
    def holders(self) -> tuple[tuple[int, Piece | None], ...]:
        """Each piece once, with the first rank that holds it; the piece of a whole tensor is None."""
        if self.axis is None:
            return ((next(rank for rank, shard in enumerate(self.shards) if shard is not None), None),)
        first: dict[tuple[int, int], tuple[int, Piece]] = {}
        for rank, shard in enumerate(self.shards):
            for piece in shard.pieces if shard is not None else ():
                first.setdefault((piece.begin, piece.size), (rank, piece))
        return tuple(first.values())


def whole(ranks: int) -> Cut:
    """Return the cut of a tensor that every rank holds whole."""
    return Cut(None, (Shard(),) * ranks)


@lru_cache(maxsize=4096)
def placed(index: int, count: int, ranks: int) -> Cut:
    """Return the cut of a tensor that one rank holds whole: entry ``index`` of ``count`` over the ranks.

    Examples:
        >>> [placed(i, 5, 2).shards.index(Shard()) for i in range(5)]
        [0, 0, 0, 1, 1]
    """
    plan = _divided(count, ranks, even=False)
    holder = next(r for r in range(ranks) if plan.offsets[r] <= index < plan.offsets[r] + plan.sizes[r])
    return Cut(None, tuple(Shard() if rank == holder else None for rank in range(ranks)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an axis is to be cut, as ``plan.schema.json`` says; without sections, it is one.

    Numbers count elements, of which ``pack`` share a position of the axis. ``replicate`` has the positions of
    the sections whose units repeat where there are fewer than ranks; a ``pad_to`` of 0 is no padding.
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
        """Whether any number of ranks can cut it."""
        return self.unit == self.pack == 1 and self.sections is None and not (self.replicate or self.even)


@lru_cache(maxsize=4096)
def cut_axis(recipe: Recipe, size: int, ranks: int) -> Cut:
    """Return the cut of an axis of a size.

    Examples:
        >>> cut = cut_axis(Recipe(0, sections=(4, 2), unit=2, replicate=frozenset({1})), 6, 2)
        >>> cut.shards[1]
        Shard(size=4, pieces=(Piece(begin=2, size=2, at=0), Piece(begin=4, size=2, at=2)))
    """
    elements = size * recipe.pack
    padded = -(-elements // recipe.pad_to) * recipe.pad_to if recipe.pad_to else elements
    if recipe.sections is not None and recipe.pad_to:
        raise PlanError("an axis of sections cannot be padded")
    sections = (padded,) if recipe.sections is None else recipe.sections
    if not recipe.replicate <= frozenset(range(len(sections))):
        raise PlanError(f"replicate = {sorted(recipe.replicate)} of {len(sections)} sections, from 0 on")
    plan = _asked("VariadicSplit", elements if recipe.sections else padded, split_lengths=list(sections))
    held: list[list[Piece]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for index, (offset, length) in enumerate(zip(plan.offsets, plan.sizes, strict=True)):
        ranges = _section(recipe, length, ranks, repeats=index in recipe.replicate)
        for rank, (begin, count) in enumerate(ranges):
            real = max(0, min(count, elements - offset - begin))
            if real:
                held[rank].append(_packed(Piece(offset + begin, real, sizes[rank]), recipe.pack))
            sizes[rank] += count
    shards = tuple(Shard(n // recipe.pack, tuple(p)) for n, p in zip(sizes, held, strict=True))
    return Cut(recipe.axis, shards, padded // recipe.pack if padded > elements else 0)


def _section(recipe: Recipe, length: int, ranks: int, *, repeats: bool) -> list[tuple[int, int]]:
    """Return where each rank's part of a section begins, and its size."""
    unit = recipe.unit
    if repeats:
        if length % unit or not length:
            raise PlanError(
                f"{length} elements are not a whole number of units of {unit}, which could repeat"
            )
        units = length // unit
        if units < ranks and ranks % units == 0:
            each = ranks // units
            return [(rank // each * unit, unit) for rank in range(ranks)]
        if units % ranks:
            good = [n for n in range(1, 2 * max(units, ranks) + 1) if units % n == 0 or n % units == 0]
            what = f"{units} units of {unit} cannot repeat on {ranks} ranks, as neither divides the other"
            raise RanksError(what, good)
    plan = _divided(length, ranks, even=recipe.even)
    through = math.lcm(unit, recipe.pack)
    for end in (offset + count for offset, count in zip(plan.offsets, plan.sizes, strict=True)):
        if end % through and end < length:
            what = f"{ranks} ranks cut {length} elements at {end}, inside a unit of {through}"
            raise RanksError(what, whole_ranks(length, through), length)
    return list(zip(plan.offsets, plan.sizes, strict=True))


def whole_ranks(length: int, unit: int) -> list[int]:
    """Return the numbers of ranks over which a length is divided without a cut inside a unit.

    Examples:
        >>> whole_ranks(32, 8)
        [1, 2, 4]
    """
    most = min(max(1, length // unit), 4096)
    return [ranks for ranks in range(1, most + 1) if ranks == 1 or -(-length // ranks) % unit == 0]


def _packed(piece: Piece, pack: int) -> Piece:
    if any(number % pack for number in piece):
        raise PlanError(
            f"a section at {piece.begin} of {piece.size} elements goes through {pack} packed ones"
        )
    return Piece(piece.begin // pack, piece.size // pack, piece.at // pack)


def _divided(size: int, ranks: int, *, even: bool) -> SplitPlan:
    """Divide a size over the ranks as Split-18 does, or as OpenVINO's Split, which is even."""
    if even:
        return _asked("Split", size, domain="openvino", num_splits=ranks)
    return _asked("Split", size, num_outputs=ranks)


def _asked(operator: str, size: int, domain: str | None = None, **arguments: object) -> SplitPlan:
    try:
        return plan_arguments(operator, (size,), None, None, domain, {"axis": 0, **arguments})
    except RuleError as error:
        raise PlanError(error.message) from error


def shard_extents(tensor: StoredTensor, cut: Cut, rank: int) -> list[Extent]:
    """Return which bytes of a tensor go to that of a rank, which must hold some; both begin at 0."""
    axis, shape = cut.axis, tensor.shape
    if axis is None:
        return [make_contiguous(0, 0, 0, 0, tensor.size)] if tensor.size else []
    shard = cut.shards[rank]
    assert shard is not None
    step = math.prod(shape[axis + 1 :])
    begins, sizes = [piece.begin for piece in shard.pieces], [piece.size for piece in shard.pieces]
    try:
        row = unit_bytes(shard.size * step, tensor.unit)
        places = [(0, unit_bytes(piece.at * step, tensor.unit)) for piece in shard.pieces]
        alone = StoredTensor("", shape, "packed", tensor.unit, 0, tensor.size)
        found = make_part_extents(alone, Plan(shape, axis, tuple(begins), tuple(sizes)), places)
    except SplitError as error:
        raise PlanError(f"{tensor.label}, {tensor.code}: {error.message}") from error
    return [extent._replace(target_stride=row) if extent.runs > 1 else extent for extent in found]
