"""One split: check its attributes and inputs, then plan it or infer its parts."""

from __future__ import annotations

from splitops.native import Plan, SplitPlan
from splitops.splitting.binding import Fact, bind, make_fact
from splitops.splitting.planning import MAX_PARTS, SplitRequest, plan_request

__all__ = [
    "MAX_PARTS",
    "Fact",
    "Plan",
    "SplitPlan",
    "SplitRequest",
    "bind",
    "make_fact",
    "plan_request",
]
