"""Execution of plans on arrays of any library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from splitops.backends import Backend
from splitops.calls.arguments import resolve_array
from splitops.errors import ArrayError
from splitops.native import SplitPlan

Parts = tuple[Any, ...] | list[Any]


def call_plan(
    plan: SplitPlan, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None
) -> Parts:
    """Split data of the plan's shape. ``copy`` and ``out`` are as in :func:`splitops.onnx.split`."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling() and isinstance(data, torch.Tensor):
        # torch.compile executes this import while it traces.
        from splitops.backends.torch import BACKEND

        backend: Backend = BACKEND
    else:
        data, backend = resolve_array(data)
    shape = backend.get_shape(data)
    if shape != plan.shape:
        raise ArrayError(f"data has shape {shape}, but the plan is for shape {plan.shape}")
    return run(plan, backend, data, copy, out)


def run(plan: SplitPlan, backend: Backend, data: Any, copy: bool | None, out: Sequence[Any] | None) -> Parts:
    """Split an array by a plan for its shape: return views or, with ``copy`` or ``out``, copies.

    Nothing is written if a buffer in ``out`` does not match its part or overlaps other memory.
    """
    if out is None:
        parts = backend.make_copies(plan, data) if copy else backend.make_views(plan, data)
    elif copy is not None and not copy:
        raise ArrayError("out= makes copies, but copy=False forbids them: leave out one of the two")
    else:
        try:
            parts = tuple(out)
        except TypeError as error:
            raise ArrayError(f"out is a {type(out).__name__}, but it must be a sequence of arrays") from error
        backend.fill(plan, data, parts)
    return list(parts) if plan.sequence else parts
