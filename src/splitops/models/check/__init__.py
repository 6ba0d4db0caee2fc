"""Check models: find invalid splits, and splits that a runtime rejects or gets wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitops.models.check.checking import check
from splitops.models.check.findings import Finding, Severity
from splitops.models.check.limits import Limit, Outcome
from splitops.models.check.reports import sarif_log, to_json, to_sarif
from splitops.models.check.targets import RUNTIMES, Target

if TYPE_CHECKING:
    LIMITS: tuple[Limit, ...]
    """All limits of the targets in the package."""

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
    if name == "LIMITS":  # loaded at the first access
        from splitops.models.check.targets import list_limits

        return list_limits()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
