"""The plans that configurations of transformers declare, by the kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitops.errors import PlanError, shown

__all__ = ["auto_plan"]


def auto_plan(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plan for a model with this ``config.json``.

    Raises:
        PlanError: no plan is known for its kind.
    """
    raise PlanError(f"no plan is known for model_type {shown(config.get('model_type'))}: state one")
