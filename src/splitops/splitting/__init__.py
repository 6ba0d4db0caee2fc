"""What one split means: attributes and inputs come in; a valid request, its plan or inferred parts go out."""

from __future__ import annotations

from splitops.native import Plan, SplitPlan
from splitops.splitting.planning import MAX_PARTS, SplitRequest, plan_request

__all__ = ["MAX_PARTS", "Plan", "SplitPlan", "SplitRequest", "plan_request"]
