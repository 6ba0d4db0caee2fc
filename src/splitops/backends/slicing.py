"""Splitting by slicing, which most array libraries support."""

from __future__ import annotations

from typing import Any

from splitops.native import SplitPlan


def slice_parts(plan: SplitPlan, array: Any) -> tuple[Any, ...]:
    """Slice an array into its parts with its ``__getitem__``, which keeps masks, units and names."""
    before: tuple[Any, ...] = (slice(None),) * plan.axis
    if plan.squeeze:
        return tuple(array[(*before, offset, ...)] for offset in plan.offsets)
    return tuple(
        array[(*before, slice(offset, offset + size), ...)]
        for offset, size in zip(plan.offsets, plan.sizes, strict=True)
    )
