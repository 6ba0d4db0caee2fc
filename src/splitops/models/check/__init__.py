"""Checking models: what is wrong, where, and which runtime rejects it or gets it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitops.models.check.checking import check
from splitops.models.check.findings import Finding, Severity
from splitops.models.check.limits import Limit, Outcome
from splitops.models.check.reports import sarif_log, to_json, to_sarif
from splitops.models.check.targets import RUNTIMES, Target

if TYPE_CHECKING:
    LIMITS: tuple[Limit, ...]
    """Every limit of the targets of the package."""

__all__ = [
    "LIMITS",
    "RUNTIMES",
    "Finding",
    "Limit",
    "Outcome",
    "Severity",
    "Target",
    "check",
    "sarif_log",
    "to_json",
    "to_sarif",
]


def __getattr__(name: str) -> Any:
    if name == "LIMITS":  # read when they are first asked for
        from splitops.models.check.targets import every_limit

        return every_limit()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
