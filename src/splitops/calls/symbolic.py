"""Plans with sizes that a library keeps symbolic while it traces: torch's SymInt, JAX's shape polymorphism.

Symbolic sizes support Python's arithmetic and comparisons. For a comparison, torch records a condition, and
JAX raises an error if it has no single answer. The size rules of :mod:`splitops.spec.sizes.arithmetic`
therefore apply to them unchanged.
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
from splitops.spec.sizes.arithmetic import Division, compute_part_size, count_parts, find_violation
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Binding, Fact


@dataclass(frozen=True)
class SymbolicPlan(SplitPlan):
    """A plan whose sizes may be symbolic integers of a library. Unknown sizes in ``shape`` are None."""

    shape: tuple[Any, ...]
    axis: int
    offsets: tuple[Any, ...]
    sizes: tuple[Any, ...]
    squeeze: bool
    sequence: bool


def is_exact(shape: tuple[Any, ...]) -> bool:
    """Return whether every size is a Python integer."""
    return all(type(size) is int for size in shape)


def hide_symbols(
    schema: OperatorSchema, arguments: Mapping[str, Any], symbols: tuple[Any, ...]
) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """Return arguments that binding can check, and the lengths if any of them is symbolic, or None.

    Binding gets symbolic lengths as unknown (None). A symbolic axis, number of parts or chunk size is
    specialised.
    """
    names, lengths = {source.name for source in schema.lengths}, None
    known: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in names and isinstance(value, list | tuple) and any(isinstance(e, symbols) for e in value):
            lengths = tuple(value)
            sizes = tuple(None if isinstance(entry, symbols) else entry for entry in lengths)
            known[name] = Fact(ELEMENT_TYPES["int64"], (len(sizes),), sizes)
        else:
            known[name] = specialise(value, symbols) if symbols else value
    return known, lengths


def specialise(value: Any, symbols: tuple[Any, ...]) -> Any:
    """Replace symbolic integers in an argument with their concrete values, which specialises the trace."""
    if isinstance(value, list | tuple):
        return [specialise(entry, symbols) for entry in value]
    return int(value) if isinstance(value, symbols) else value


def plan_symbolic(
    binding: Binding, shape: tuple[Any, ...], lengths: tuple[Any, ...] | None
) -> SymbolicPlan | None:
    """Plan a split with symbolic sizes. Return None if they break a rule.

    ``lengths`` is None unless a length is symbolic. A size of None in ``shape`` is unknown. On the split
    axis, it raises ArrayError.
    """
    axis = binding.axis
    assert axis is not None
    size = shape[axis]
    if size is None:
        raise ArrayError(
            f"{binding.schema}: the size of axis {axis} of data is unknown until it is computed "
            "(for a Dask array, call compute_chunk_sizes() first)"
        )
    division = binding.division
    if lengths is not None:
        known = [length for length in lengths if type(length) is int]
        if any(length < 0 for length in lengths if type(length) is not int):
            return None
        remainder = binding.schema.lengths_rule is SizeRule.REMAINDER and -1 in known
        division = Division(SizeRule.REMAINDER if remainder else SizeRule.EXPLICIT, lengths=lengths)
    assert division is not None
    if find_violation(division, size) is not None:
        return None
    count = int(count_parts(division, size))
    if binding.outputs is not None and not binding.schema.gives_sequence:
        count = min(count, binding.outputs)
    sizes = tuple(compute_part_size(division, size, index) for index in range(count))
    offsets = tuple(accumulate(sizes, initial=0))[:-1] if sizes else ()
    return SymbolicPlan(shape, axis, offsets, sizes, bool(binding.squeeze), binding.schema.gives_sequence)
