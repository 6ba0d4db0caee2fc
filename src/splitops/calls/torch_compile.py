"""Splits under ``torch.compile``: known arguments are checked while tracing, and aten operators are traced.

With ``out``, ``splitops::split_into`` is traced instead, except for export. This module is imported only
while torch.compile traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from splitops.backends import get_backend
from splitops.calls.execution import Parts, call_plan, run
from splitops.calls.plan import plan_arguments
from splitops.calls.plan_cache import find_plan
from splitops.calls.symbolic import SymbolicPlan
from splitops.spec.operators import schema
from splitops.spec.operators.schemas import OperatorSchema


@dataclass(frozen=True)
class TracedPlan(SymbolicPlan):
    """A plan made while torch.compile traces: the tracer cannot create objects of the native core."""

    def __call__(self, data: Any, *, copy: bool | None = None, out: Sequence[Any] | None = None) -> Parts:
        """Split a tensor, like any plan."""
        return call_plan(self, data, copy=copy, out=out)


def plan_in_graph(*asked: Any) -> TracedPlan:
    """Plan a call of :func:`splitops.plan` while torch.compile traces."""
    return TracedPlan(*_plan(*asked))


@torch.compiler.assume_constant_result
def _plan(*asked: Any) -> tuple[Any, ...]:
    """Make the plan outside the trace. Its numbers become constants of the graph."""
    plan = plan_arguments(*asked)
    return plan.shape, plan.axis, plan.offsets, plan.sizes, plan.squeeze, plan.sequence


@torch.compiler.allow_in_graph
def call_in_graph(
    name: str,
    version: int,
    domain: str,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    """Split a tensor inside the graph. Its sizes may be symbolic."""
    return _call(schema(name, version, domain), data, arguments, copy, out)


@torch.compiler.disable(
    reason="axis or lengths are a traced tensor or NumPy array, so their values are unknown: pass integers"
)
def call_with_graph_break(
    schema: OperatorSchema,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    """Split a tensor with a graph break: the axis or lengths are known only after the first graph has run."""
    return _call(schema, data, arguments, copy, out)


def _call(
    schema: OperatorSchema,
    data: torch.Tensor,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[torch.Tensor] | None,
) -> tuple[torch.Tensor, ...]:
    backend = get_backend(data)
    return tuple(run(find_plan(schema, backend, data, arguments), backend, data, copy, out))
