"""Plans over sizes that a library keeps symbolic while it traces: torch's SymInt, JAX's shape polymorphism.

A symbolic size takes part in Python's arithmetic and comparisons; a comparison makes the library remember a
condition. So the size rules of :mod:`splitops.spec.sizes.arithmetic` run on it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from splitops.errors import ArrayError
from splitops.native import SplitPlan
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators.schemas import OperatorSchema
from splitops.spec.sizes.arithmetic import Division, part_count, part_size, violation
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding, Fact


@dataclass(frozen=True)
class SymbolicPlan(SplitPlan):
    """A plan of which some sizes are the symbolic integers of a library."""

    shape: tuple[Any, ...]
    axis: int
    offsets: tuple[Any, ...]
    sizes: tuple[Any, ...]
    squeeze: bool
    sequence: bool


def is_exact(shape: tuple[Any, ...]) -> bool:
    """Return whether every size is a Python integer."""
    return all(type(size) is int for size in shape)


class Symbols:
    """The symbolic integers among the arguments of one call.

    Attributes:
        lengths: the lengths as they were given, where one of them is symbolic; otherwise None.
    """

    def __init__(self, types: tuple[type, ...]) -> None:
        self._types: tuple[Any, ...] = types
        self.lengths: tuple[Any, ...] | None = None

    def hide(self, schema: OperatorSchema, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for binding, lengths of which some are symbolic as what is known of them.

        A symbolic axis, count or chunk cannot stay symbolic: it says which parts there are.
        """
        if not self._types:
            return dict(arguments)
        lengths = {source.name for source in schema.lengths}
        return {name: self._hide(value, name in lengths) for name, value in arguments.items()}

    def _hide(self, value: Any, lengths: bool) -> Any:
        if isinstance(value, self._types):
            return int(value)
        if not isinstance(value, list | tuple) or not any(isinstance(entry, self._types) for entry in value):
            return value
        if not lengths:
            return [int(entry) if isinstance(entry, self._types) else entry for entry in value]
        self.lengths = tuple(value)
        hidden = tuple(None if isinstance(entry, self._types) else entry for entry in value)
        return Fact(ELEMENT_TYPES["int64"], (len(hidden),), hidden)

    def specialise(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with each symbolic integer as the number that it has at hand."""
        return {name: self._specialise(value) for name, value in arguments.items()}

    def _specialise(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._specialise(entry) for entry in value]
        return int(value) if isinstance(value, self._types) else value


def plan_symbolic(
    binding: Binding, shape: tuple[Any, ...], lengths: tuple[Any, ...] | None
) -> SymbolicPlan | None:
    """Plan a split of which some sizes are symbolic.

    A size of None is unknown. ``lengths`` are given where some of them are symbolic. The plan is None where
    the sizes break a rule.
    """
    axis = binding.axis
    assert axis is not None
    size = shape[axis]
    if size is None:
        raise ArrayError(
            f"{binding.schema}: the size of axis {axis} of data is not known before it is computed "
            "(a Dask array's compute_chunk_sizes() finds it)"
        )
    division = binding.division
    if lengths is not None:
        known = [length for length in lengths if type(length) is int]
        if any(length < 0 for length in lengths if type(length) is not int):
            return None
        remainder = binding.schema.lengths_rule is SizeRule.REMAINDER and -1 in known
        division = Division(SizeRule.REMAINDER if remainder else SizeRule.EXPLICIT, lengths=lengths)
    assert division is not None
    if violation(division, size) is not None:
        return None
    count = int(part_count(division, size))
    if binding.outputs is not None and not binding.schema.gives_sequence:
        count = min(count, binding.outputs)
    sizes = tuple(part_size(division, size, index) for index in range(count))
    offsets = tuple(accumulate(sizes, initial=0))[:-1] if sizes else ()
    return SymbolicPlan(shape, axis, offsets, sizes, bool(binding.squeeze), binding.schema.gives_sequence)
