"""Keeps a split whole where ``torch.compile`` traces: binding runs for real, and aten's operators are traced.

:mod:`splitops.calls.functions` imports this module while torch.compile traces, and never otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from splitops.backends import get_backend
from splitops.calls.execution import Parts, call_plan, run
from splitops.calls.memo import find_plan
from splitops.calls.plan import plan_arguments
from splitops.calls.symbolic import SymbolicPlan
from splitops.spec.operators import schema
from splitops.spec.operators.schemas import OperatorSchema


@dataclass(frozen=True)
class TracedPlan(SymbolicPlan):
    """A plan that is made while torch.compile traces, which cannot make objects of the core."""

    def __call__(self, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None) -> Parts:
        """Split a tensor, as a plan does."""
        return call_plan(self, data, copy=copy, out=out)


def plan_whole(*asked: Any) -> TracedPlan:
    """Plan what :func:`splitops.plan` is asked while torch.compile traces."""
    return TracedPlan(*_planned(*asked))


@torch.compiler.assume_constant_result
def _planned(*asked: Any) -> tuple[Any, ...]:
    """Plan for real; the numbers are constants of the graph."""
    plan = plan_arguments(*asked)
    return plan.shape, plan.axis, plan.offsets, plan.sizes, plan.squeeze, plan.sequence


@torch.compiler.allow_in_graph
def call_whole(
    name: str,
    version: int,
    domain: str,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    """Split a tensor that stands for any of its shape, symbolic sizes included."""
    return _call(schema(name, version, domain), data, arguments, copy, out)


@torch.compiler.disable(
    reason="axis or lengths are a traced tensor or NumPy array, whose numbers no graph knows: give integers"
)
def call_apart(
    row: OperatorSchema,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    """Split a tensor between two graphs, by axis or lengths that are known where the first one has run."""
    return _call(row, data, arguments, copy, out)


def _call(
    row: OperatorSchema,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    backend = get_backend(data)
    return tuple(run(find_plan(row, backend, data, arguments), backend, data, copy, out))
