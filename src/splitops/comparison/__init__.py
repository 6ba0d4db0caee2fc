"""Compare what runtimes, compilers, converters and simplifiers do with splits with the specification."""

from __future__ import annotations

from splitops.comparison.driver.comparing import compare
from splitops.comparison.records import CompareError, Report

__all__ = ["CompareError", "Report", "compare"]
