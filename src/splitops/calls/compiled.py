"""Keeps a split whole where ``torch.compile`` traces: binding runs for real, and aten's operators are traced.

:mod:`splitops.calls.functions` imports this module while torch.compile traces, and never otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from splitops.backends import backend_of
from splitops.calls.memo import find_plan
from splitops.calls.running import run
from splitops.operators import schema
from splitops.operators.schema import OperatorSchema

__all__ = ["call_apart", "call_whole"]


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
    backend = backend_of(data)
    return tuple(run(find_plan(row, backend, data, arguments), backend, data, copy, out))
