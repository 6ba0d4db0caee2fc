"""Checking models: what is wrong, where, and which runtime rejects it or gets it wrong."""

from __future__ import annotations

from splitops.models.check.checking import check
from splitops.models.check.findings import Finding, Severity
from splitops.models.check.profiles import LIMITS, RUNTIMES, Limit, Outcome
from splitops.models.check.reports import to_json, to_sarif

__all__ = ["LIMITS", "RUNTIMES", "Finding", "Limit", "Outcome", "Severity", "check", "to_json", "to_sarif"]
